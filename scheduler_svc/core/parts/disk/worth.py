"""Whether it is sooner to load blocks than to compute their tokens (DT7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MARGIN = 0.8
"""A load is to take so much of the time of computing at most: both are measured, and vary."""
TRIAL_US = 1_000_000
"""Longest time of a load that is tried because something was not measured yet."""


@dataclass(frozen=True)
class DiskPace:
    """What a worker has measured, in microseconds; 0: not yet."""

    base_us: float = 0.0
    """What a group of loads takes besides its blocks."""
    block_us: tuple[float, ...] = ()
    """To load a block of each group."""
    token_us: float = 0.0
    """To compute a token of a prompt."""

    def load_us(self, counts: Sequence[int]) -> float:
        """How long loads of so many blocks of each group take."""
        return self.base_us + sum(
            count * each for count, each in zip(counts, self.block_us, strict=False) if count
        )

    def is_measured(self, counts: Sequence[int]) -> bool:
        """Both times are known."""
        known = len(self.block_us) >= len(counts)
        return self.token_us > 0 and known and all(self.block_us[g] > 0 for g, n in enumerate(counts) if n)


def most_load_us(pace: DiskPace, counts: Sequence[int], num_tokens: int, ahead_us: float) -> int:
    """How long a load of `counts` blocks of each group may take that spares computing `num_tokens`, in microseconds,
    behind others of `ahead_us`; 0: it is not to be made. Where something is not measured yet, one load at a time is
    tried."""
    if not pace.is_measured(counts):
        return 0 if ahead_us else TRIAL_US
    compute_us = num_tokens * pace.token_us
    return int(compute_us) if ahead_us + pace.load_us(counts) < MARGIN * compute_us else 0
