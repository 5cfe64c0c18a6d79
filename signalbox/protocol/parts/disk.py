"""The disk tier: loads, stores and deletions (DT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from signalbox.protocol import columns
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.hash_chain import split_hashes
from signalbox.protocol.parts.blocks import GroupBlock, PartBounds
from signalbox.protocol.parts.orders import Orders

if TYPE_CHECKING:
    from signalbox.v1 import to_worker_pb2


class NamedBlock(NamedTuple):
    """A block of the device, and the name of its content."""

    group: int
    block: int
    name: bytes


@dataclass(frozen=True)
class DiskOrders(Orders):
    """Orders of one step: loads into blocks, and stores of blocks, beside the steps."""

    part: ClassVar[str] = "disk"
    step_id: int
    """The step that orders them, which is reported when they have ended. It is written with the step, not with the
    orders."""
    loads: list[NamedBlock] = field(default_factory=list)
    most_us: int = 0
    """Microseconds after which the loads are given up."""
    stores: list[NamedBlock] = field(default_factory=list)
    drops: list[bytes] = field(default_factory=list)
    """Names of contents that are wrong, in all groups."""
    drops_all: bool = False

    def targets(self, group: int = SPINE) -> list[int]:
        """As `Orders.targets`."""
        return [load.block for load in self.loads if load.group == group]

    @property
    def written(self) -> Sequence[GroupBlock]:
        """As `Orders.written`."""
        return [GroupBlock(group, block) for group, block, _ in self.loads]

    @property
    def touched(self) -> Sequence[GroupBlock]:
        """As `Orders.touched`."""
        return [GroupBlock(group, block) for group, block, _ in (*self.loads, *self.stores)]


def write(message: to_worker_pb2.SchedulerOutput, orders: DiskOrders) -> None:
    """Adds the orders to the message of their step."""
    body = message.disk
    body.SetInParent()
    if orders.loads:
        _write_blocks(body.loads, orders.loads)
    if orders.most_us:
        body.most_us = orders.most_us
    if orders.stores:
        _write_blocks(body.stores, orders.stores)
    if orders.drops:
        body.drops = b"".join(orders.drops)
    if orders.drops_all:
        body.drops_all = True


def read(message: to_worker_pb2.SchedulerOutput) -> DiskOrders | None:
    """The orders of a step; None: there are none. ValueError when columns do not fit each other."""
    if not message.HasField("disk"):
        return None
    body = message.disk
    return DiskOrders(
        message.step_id,
        _read_blocks(body.loads),
        body.most_us,
        _read_blocks(body.stores),
        split_hashes(body.drops),
        body.drops_all,
    )


def _write_blocks(message: to_worker_pb2.NamedBlocks, blocks: Sequence[NamedBlock]) -> None:
    message.groups = columns.pack([each.group for each in blocks], columns.U8)
    message.block_ids = columns.pack([each.block for each in blocks], columns.U32)
    message.hashes = b"".join(each.name for each in blocks)


def _read_blocks(message: to_worker_pb2.NamedBlocks) -> list[NamedBlock]:
    groups = columns.unpack(message.groups, columns.U8)
    blocks, names = columns.unpack(message.block_ids, columns.U32), split_hashes(message.hashes)
    if not len(groups) == len(blocks) == len(names):
        raise ValueError("groups, block_ids and hashes of the disk tier differ in length")
    return [NamedBlock(*each) for each in zip(groups, blocks, names, strict=True)]


def validate(orders: DiskOrders, bounds: PartBounds) -> str | None:
    """Why the orders can fit no worker of these bounds; None: they can (K10). Each block is written once."""
    missing = bounds.missing(orders.touched)
    if missing is not None:
        return f"it loads or stores block {missing[1]} of group {missing[0]}, and there is none"
    targets = set(orders.written)
    stored = {GroupBlock(group, block) for group, block, _ in orders.stores}
    if len(targets) != len(orders.loads) or not targets.isdisjoint(stored):
        return "it loads a block twice, or one that is to be stored"
    return None
