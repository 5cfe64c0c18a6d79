"""Pulls: cached blocks that go from one worker to another (PB)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from signalbox.protocol import columns
from signalbox.protocol.parts.blocks import GroupBlock, PartBounds
from signalbox.protocol.parts.names import MAX_KEY_BYTES, WorkerName, are_valid, read_worker, write_worker
from signalbox.protocol.parts.orders import Orders

if TYPE_CHECKING:
    from signalbox.v1 import to_worker_pb2


@dataclass(frozen=True)
class PullOrder:
    """Blocks to read from another worker."""

    step_id: int
    """The step that orders it, which is reported when it has ended. It is written with the step, not with the
    orders."""
    number: int
    key: bytes = field(repr=False)
    source: WorkerName
    address: str
    """host:port of the source."""
    blocks: list[GroupBlock]
    """Blocks to write, in each group in the order of the source's."""
    most_us: int
    """Microseconds after which it is given up."""

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
class PullOrders(Orders):
    """Orders of one step: at most one pull, and reads by others."""

    part: ClassVar[str] = "pulls"
    pull: PullOrder | None = None
    exports: list[ExportOrder] = field(default_factory=list)
    ended_exports: list[int] = field(default_factory=list)
    """Numbers of reads by others that are over."""

    def targets(self, group: int) -> list[int]:
        """As `Orders.targets`."""
        return [] if self.pull is None else self.pull.targets(group)

    @property
    def written(self) -> Sequence[GroupBlock]:
        """As `Orders.written`."""
        return () if self.pull is None else self.pull.blocks

    @property
    def touched(self) -> Sequence[GroupBlock]:
        """As `Orders.touched`."""
        return [*self.written, *(block for export in self.exports for block in export.blocks)]


def write(message: to_worker_pb2.SchedulerOutput, orders: PullOrders) -> None:
    """Adds the orders to the message of their step."""
    body = message.pulls
    body.SetInParent()
    if orders.pull is not None:
        pull = orders.pull
        body.pull.number, body.pull.key, body.pull.most_us = pull.number, pull.key, pull.most_us
        body.pull.address = pull.address
        write_worker(body.pull.source, pull.source)
        _write_blocks(body.pull, pull.blocks)
    for order in orders.exports:
        export = body.exports.add(number=order.number, key=order.key)
        write_worker(export.target, order.target)
        _write_blocks(export, order.blocks)
    if orders.ended_exports:
        body.ended_exports = columns.pack(orders.ended_exports, columns.U64)


def read(message: to_worker_pb2.SchedulerOutput) -> PullOrders | None:
    """The orders of a step; None: there are none. ValueError when columns do not fit each other."""
    if not message.HasField("pulls"):
        return None
    body = message.pulls
    pull = None
    if body.HasField("pull"):
        begun = body.pull
        source, blocks = read_worker(begun.source), _read_blocks(begun)
        pull = PullOrder(
            message.step_id, begun.number, begun.key, source, begun.address, blocks, begun.most_us
        )
    exports = [
        ExportOrder(each.number, each.key, read_worker(each.target), _read_blocks(each))
        for each in body.exports
    ]
    return PullOrders(pull, exports, columns.unpack(body.ended_exports, columns.U64))


def _write_blocks(
    message: to_worker_pb2.BlockPull | to_worker_pb2.BlockExport, blocks: Sequence[GroupBlock]
) -> None:
    message.groups = columns.pack([each.group for each in blocks], columns.U8)
    message.block_ids = columns.pack([each.block for each in blocks], columns.U32)


def _read_blocks(message: to_worker_pb2.BlockPull | to_worker_pb2.BlockExport) -> list[GroupBlock]:
    groups = columns.unpack(message.groups, columns.U8)
    blocks = columns.unpack(message.block_ids, columns.U32)
    if len(groups) != len(blocks):
        raise ValueError("groups and block_ids of a pull differ in length")
    return [GroupBlock(*each) for each in zip(groups, blocks, strict=True)]


def validate(orders: PullOrders, bounds: PartBounds) -> str | None:
    """Why the orders can fit no worker of these bounds; None: they can (K10)."""
    pull = orders.pull
    for blocks in (*([] if pull is None else [pull.blocks]), *(export.blocks for export in orders.exports)):
        missing = bounds.missing(blocks)
        if missing is not None:
            return f"it pulls or shows block {missing[1]} of group {missing[0]}, and there is none"
        if len(set(blocks)) != len(blocks):
            return "it pulls or shows a block twice"
    if pull is None:
        return None
    if not are_valid(*pull.source, pull.address):
        return "it pulls blocks from a worker without a name, or an address"
    if not 0 < len(pull.key) <= MAX_KEY_BYTES:
        return f"it pulls blocks under a key of {len(pull.key)} bytes"
    written = set(pull.blocks)
    if any(not written.isdisjoint(export.blocks) for export in orders.exports):
        return "it shows blocks that it has written"
    return None
