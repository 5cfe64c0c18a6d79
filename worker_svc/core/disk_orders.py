"""What a step orders of the disk tier (docs/design.md, DT)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from signalbox.protocol.block_groups import SPINE


class NamedBlock(NamedTuple):
    """A block of the device, and the name of its content."""

    group: int
    block: int
    name: bytes


@dataclass(frozen=True)
class DiskOrders:
    """Loads into blocks, and stores of what stands in blocks, beside the steps."""

    step_id: int
    """What is reported when they have ended."""
    loads: list[NamedBlock] = field(default_factory=list)
    most_us: int = 0
    """How long the loads may take before they are given up, in microseconds."""
    stores: list[NamedBlock] = field(default_factory=list)
    drops: list[bytes] = field(default_factory=list)
    """Names of contents that are wrong, in all groups."""
    drops_all: bool = False

    def targets(self, group: int = SPINE) -> list[int]:
        """Blocks of a group that are written."""
        return [load.block for load in self.loads if load.group == group]
