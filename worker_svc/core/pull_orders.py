"""What a step says of cached blocks that go from one worker to another (docs/design.md, PB)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from worker_svc.core.handoff.orders import WorkerName


class GroupBlock(NamedTuple):
    """A block of the device."""

    group: int
    block: int


@dataclass(frozen=True)
class PullOrder:
    """Blocks that are to be read from another worker."""

    step_id: int
    """What is reported when that has ended."""
    number: int
    key: bytes = field(repr=False)
    source: WorkerName
    address: str
    """host:port of the source."""
    blocks: list[GroupBlock]
    """Where they go: in each group in the order in which the source has them."""
    most_us: int
    """How long it may take before it is given up, in microseconds."""

    def targets(self, group: int) -> list[int]:
        """Blocks of a group that are written, in order."""
        return [block for number, block in self.blocks if number == group]


@dataclass(frozen=True)
class ExportOrder:
    """Blocks that one other worker may read."""

    number: int
    key: bytes = field(repr=False)
    target: WorkerName
    blocks: list[GroupBlock]


@dataclass(frozen=True)
class PullOrders:
    """All that a step says of them."""

    pull: PullOrder | None = None
    exports: list[ExportOrder] = field(default_factory=list)
    ended_exports: list[int] = field(default_factory=list)

    def targets(self, group: int) -> list[int]:
        """Blocks of a group that are written."""
        return [] if self.pull is None else self.pull.targets(group)
