"""What frontends have to be told about their requests."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_svc.core.request import RequestKey


@dataclass(frozen=True)
class Placed:
    """A worker owns the request now."""

    key: RequestKey
    attempt: int
    worker_id: str
    num_cached_tokens: int


@dataclass(frozen=True)
class Rejected:
    """Refused before placement. `code` is the name of a class of signalbox/errors.py."""

    key: RequestKey
    attempt: int
    code: str
    message: str
    field: str = ""
    retry_after_s: float | None = None
    """When trying again makes sense; None: nothing is known of that."""


@dataclass(frozen=True)
class Lost:
    """Nobody has the request any more."""

    key: RequestKey
    attempt: int
    reason: str


Notice = Placed | Rejected | Lost
