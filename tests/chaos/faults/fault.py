"""What a fault is: something that is done to a ring, and undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.kinds import Ask
from tests.chaos.ring import Ring, Shape

Act = Callable[[Ring, int], Awaitable[None]]
"""Takes the ring and the number of the repetition."""


async def nothing(ring: Ring, turn: int) -> None:
    """No act."""


def as_they_are(asks: Sequence[Ask]) -> Sequence[Ask]:
    """No change."""
    return asks


@dataclass(frozen=True)
class Fault:
    """One kind of fault. Its window begins with `strike` and ends `window_s` behind it."""

    name: str
    strike: Act
    prepare: Act = nothing
    """Under load, just before."""
    heal: Act = nothing
    """Under load, when the window is over."""
    begin: Callable[[Ring], Awaitable[None]] | None = None
    """Once, without load."""
    window_s: float = 12.0
    times: int = 3
    """Repetitions unless others are asked for."""
    shape: Shape = field(default_factory=Shape)
    asks: Callable[[Sequence[Ask]], Sequence[Ask]] = as_they_are
    """The streams that run, of those of the trial: the same requests, read otherwise."""
