"""Groups of layers whose blocks are counted by themselves (docs/design.md, GR).

Group 0, the spine, has a block for every position of a request. The layers of any other group look back so far and no
farther: what lies behind is released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from signalbox.protocol.enums import BlockGroupKind

Positions = TypeVar("Positions", int, Any)
"""A number, or a column of them: there is no numpy here."""
SPINE = 0
"""Number of the group that all others are counted by."""


@dataclass(frozen=True)
class BlockGroup:
    """A group of layers other than the spine's."""

    kind: int
    """A `BlockGroupKind`."""
    reach: int
    """How far it looks back, in positions."""
    num_blocks: int
    """Blocks of the group on the worker."""
    bytes_per_block: int = 0
    """In all layers of the group; 0: it is not said."""
    num_host_blocks: int = 0
    """Blocks of the group in the host tier."""

    @property
    def words(self) -> str:
        """What its layers have, for people."""
        kind = "chunks" if self.kind == BlockGroupKind.CHUNK else "a window"
        return f"{kind} of {self.reach} positions"

    def first_seen(self, position: Positions) -> Positions:
        """The first position that a query at `position`, or behind it, looks at."""
        if self.kind == BlockGroupKind.CHUNK:
            return position // self.reach * self.reach
        return (position - self.reach + 1) * (position >= self.reach)

    def blocks_of_one(self, block_size: int, max_draft_tokens: int = 0) -> int:
        """Blocks with which a request goes on, whatever else runs: for its reach and a step, wherever they begin."""
        return -(-(self.reach + 1 + max_draft_tokens) // block_size) + 1


@dataclass(frozen=True)
class StateGroup:
    """The checkpoints of a worker's recurrent states: each is the state behind so many tokens of one sequence (CK).
    Between device and host tier they are copied as blocks of a group, `states_number`."""

    boundary: int
    """There are checkpoints at multiples of it, in positions; a multiple of the block size."""
    num_checkpoints: int
    bytes_per_checkpoint: int = 0
    """In all layers; 0: it is not said."""
    prompts_only: bool = False
    """States that decoding made are not kept (CK11)."""
    num_host_checkpoints: int = 0
    """Checkpoints in the host tier."""

    def last_boundary(self, position: Positions) -> Positions:
        """The last boundary up to `position`; 0: there is none yet."""
        return position // self.boundary * self.boundary


def states_number(groups: tuple[BlockGroup, ...]) -> int:
    """Number of the checkpoints' group where they are copied: that behind the last of the worker's groups."""
    return SPINE + 1 + len(groups)
