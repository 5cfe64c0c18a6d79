"""Says at a handler what body it reads, for the description of the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from frontend_svc.api.openai.schema import Body

Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True)
class Reads:
    """What a handler reads."""

    schema: type[Body]
    example: dict[str, Any]
    """A body that a server of one model takes."""
    runs: bool
    """It runs the model, so the headers of requests hold."""


_READS: dict[Callable[..., Any], Reads] = {}


def reads(schema: type[Body], example: dict[str, Any], *, runs: bool = True) -> Callable[[Handler], Handler]:
    """Decorates the handler of a route; see Reads."""

    def mark(handler: Handler) -> Handler:
        _READS[handler] = Reads(schema, example, runs)
        return handler

    return mark


def read_by(handler: Callable[..., Any]) -> Reads | None:
    """What a handler, or a bound method, reads; None: it said nothing."""
    return _READS.get(getattr(handler, "__func__", handler))
