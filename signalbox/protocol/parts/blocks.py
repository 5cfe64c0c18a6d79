"""Blocks of the device that orders name, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class GroupBlock(NamedTuple):
    """A block of the device."""

    group: int
    block: int


@dataclass(frozen=True)
class PartBounds:
    """How far the numbers of orders can go at one worker."""

    num_slots: int
    num_blocks: Sequence[int]
    """Blocks of each group, the spine's first."""
    num_lanes: int = 1

    def missing(self, blocks: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
        """The first of (group, block) that does not exist; None: all do."""
        for group, block in blocks:
            if not (0 <= group < len(self.num_blocks) and 0 <= block < self.num_blocks[group]):
                return group, block
        return None
