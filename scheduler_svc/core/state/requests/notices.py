"""What frontends have to be told about their requests."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_svc.core.state.requests.request import RequestKey
from signalbox.protocol.enums import LossCause


@dataclass(frozen=True)
class OfRequest:
    """A notice about one request."""

    key: RequestKey

    @property
    def frontend_instance(self) -> str:
        """The frontend that has to be told."""
        return self.key.frontend_instance


@dataclass(frozen=True)
class Placed(OfRequest):
    """A worker owns the request now."""

    attempt: int
    worker_id: str
    num_cached_tokens: int
    leg: int = 0
    """Above 0: the worker may run it from now on, in place of the one that has it (HO10)."""
    word: int = 0
    """Number by which the frontend acknowledges it; 0: it does not."""


@dataclass(frozen=True)
class Rejected(OfRequest):
    """Refused before placement. `code` is the name of a class of signalbox/errors.py."""

    attempt: int
    code: str
    message: str
    field: str = ""
    retry_after_s: float | None = None
    """Seconds until trying again makes sense; None: nothing is known of that."""


@dataclass(frozen=True)
class Lost(OfRequest):
    """Nobody has the request any more."""

    attempt: int
    reason: str
    cause: LossCause = LossCause.UNKNOWN


@dataclass(frozen=True)
class OutputsLost:
    """A worker has thrown away what the frontend had not read: ends were among it perhaps, of requests that nobody
    here remembers (F5)."""

    frontend_instance: str
    worker_id: str
    worker_instance: str


Notice = Placed | Rejected | Lost | OutputsLost
