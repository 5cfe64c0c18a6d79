"""Copies that a worker makes, as they are named on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.parts.disk import NamedBlock


class BlockCopy(NamedTuple):
    """Copy of one block of a group; host blocks carry HOST_BIT."""

    source: int
    target: int
    group: int = SPINE
    """Number of the group; that behind the last one: checkpoints of recurrent states."""


@dataclass(eq=False)
class CopyGroup:
    """Copies beside the steps, from the step whose delta carries them until the worker says that they have ended. A
    step carries one such group at most, so the fence has the number of its step."""

    fence_id: int
    copies: list[BlockCopy] = field(default_factory=list)
    """In order, behind the copies of the step itself."""
    loads: list[NamedBlock] = field(default_factory=list)
    """What comes from a disk: such a group has no copies, and the negative number of its step."""
