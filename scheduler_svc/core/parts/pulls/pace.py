"""How long a worker takes to pull blocks, and to compute tokens, as it was measured lately (PB7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler_svc.core.parts.disk.worth import DiskPace
from signalbox.runtime.token_pace import WEIGHT, TokenPace

LEAST_US = 1000.0
"""What a pull costs besides its bytes at least: two steps that order it, a stream, and an event that ends it."""
STALE_S = 60.0
"""How long what was measured of a pull is believed, in seconds."""


class _Measured(NamedTuple):
    """Pulls from one source: when they were measured, what they took besides their blocks, and what a block of each
    group took, in microseconds."""

    at: float
    base_us: float
    block_us: tuple[float, ...]


class PullPace(TokenPace):
    """Times of one target."""

    def __init__(self) -> None:
        super().__init__()
        self._pulls: dict[str, _Measured] = {}
        """What was measured, by source."""

    def pulled(self, source_id: str, base_us: float, block_us: Sequence[float], now: float) -> None:
        """A pull from there took that, `base_us` besides its blocks; 0: it had none of a group."""
        before = self._known(source_id, now)
        known = before.block_us if before is not None else ()
        merged = [
            _mixed(known[group] if group < len(known) else 0.0, new) for group, new in enumerate(block_us)
        ]
        base_us = _mixed(before.base_us if before is not None else 0.0, max(base_us, LEAST_US))
        self._pulls[source_id] = _Measured(now, base_us, tuple(merged))

    def of(self, source_id: str, now: float) -> DiskPace:
        """What is known of pulls from there."""
        known = self._known(source_id, now)
        if known is None:
            return DiskPace(token_us=self.token_us)
        return DiskPace(known.base_us, known.block_us, self.token_us)

    def _known(self, source_id: str, now: float) -> _Measured | None:
        found = self._pulls.get(source_id)
        return found if found is not None and now - found.at < STALE_S else None


def _mixed(before: float, new: float) -> float:
    return new or before if not (before and new) else before + (new - before) * WEIGHT
