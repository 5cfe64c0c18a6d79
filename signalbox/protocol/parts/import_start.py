"""The block tables of a request that is taken over from another worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from signalbox.protocol.block_groups import SPINE

Blocks = Sequence[int]
Table = tuple[int, Blocks]
"""Index of the first block, and the blocks."""


@dataclass(frozen=True)
class ImportStart:
    """The block tables of a slot whose request is taken over, as far as it is known."""

    slot: int
    blocks: Blocks
    num_found: int = 0
    """Blocks at the head of each table whose content is there."""
    groups: tuple[Table, ...] = ()
    """Tables in each group but the spine."""

    def blocks_of(self, group: int) -> Blocks:
        """Blocks of one group."""
        return self.blocks if group == SPINE else self.groups[group - 1][1]

    def written_of(self, group: int) -> Blocks:
        """Blocks of one group whose content is to come."""
        first = 0 if group == SPINE else self.groups[group - 1][0]
        return self.blocks_of(group)[max(self.num_found - first, 0) :]
