"""What a step says of requests that go from one worker to another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE

I32 = NDArray[np.int32]


class WorkerName(NamedTuple):
    """One worker process."""

    worker_id: str
    instance: str


@dataclass(frozen=True)
class ImportStart:
    """The block table of a slot that is taken over, as far as its request is known."""

    slot: int
    blocks: I32
    num_found: int = 0
    """Blocks at the head of each of its tables whose content is there."""
    groups: tuple[tuple[int, I32], ...] = ()
    """Its table in each group but the spine: index of the first block, and the blocks."""

    def blocks_of(self, group: int) -> I32:
        """The blocks that it gives in one group."""
        return self.blocks if group == SPINE else self.groups[group - 1][1]

    def written_of(self, group: int) -> I32:
        """The blocks among them whose content is to come."""
        first = 0 if group == SPINE else self.groups[group - 1][0]
        return self.blocks_of(group)[max(self.num_found - first, 0) :]


class ExportOrder(NamedTuple):
    """A slot that another worker may read."""

    slot: int
    transfer: int
    target: WorkerName
    key: bytes


@dataclass(frozen=True)
class HandoffOrders:
    """Columns of `Handoffs`, in the order in which they are applied: what ends, then what begins."""

    kept_slots: list[int] = field(default_factory=list)
    """Slots that are read no more, and go on; they were not frozen."""
    thawed: list[tuple[int, int]] = field(default_factory=list)
    """(slot, leg) of frozen ones that go on here as they were."""
    exports: list[ExportOrder] = field(default_factory=list)
    frozen_slots: list[int] = field(default_factory=list)
    """Behind the step before this one nothing of them changes."""
    import_starts: list[ImportStart] = field(default_factory=list)
    committed_slots: list[int] = field(default_factory=list)
    """Their import counts: they go on from here."""
    committed_legs: list[int] = field(default_factory=list)
    """Their legs from now on; empty: those that they came with."""

    @property
    def slots(self) -> list[int]:
        """All that are named."""
        return [
            *self.kept_slots,
            *(slot for slot, _ in self.thawed),
            *(order.slot for order in self.exports),
            *self.frozen_slots,
            *(start.slot for start in self.import_starts),
            *self.committed_slots,
        ]


NO_HANDOFFS = HandoffOrders()
