"""Hand-offs: requests that go from one worker to another (HO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from signalbox.protocol import columns
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.parts.blocks import GroupBlock, PartBounds
from signalbox.protocol.parts.import_start import Blocks, ImportStart
from signalbox.protocol.parts.names import WorkerName, read_worker, write_worker
from signalbox.protocol.parts.orders import Orders

if TYPE_CHECKING:
    from signalbox.v1 import to_worker_pb2


class ExportOrder(NamedTuple):
    """A slot that another worker may read."""

    slot: int
    transfer: int
    target: WorkerName
    key: bytes


@dataclass(frozen=True)
class HandoffOrders(Orders):
    """Orders of one step, in the order in which they are applied: what ends, then what begins."""

    part: ClassVar[str] = "handoff"
    kept_slots: list[int] = field(default_factory=list)
    """Slots that are read no more, and go on; they were not frozen."""
    thawed: list[tuple[int, int]] = field(default_factory=list)
    """(slot, leg) of frozen ones that go on here as they were."""
    exports: list[ExportOrder] = field(default_factory=list)
    frozen_slots: list[int] = field(default_factory=list)
    """Slots of which nothing changes after the step before this one."""
    import_starts: list[ImportStart] = field(default_factory=list)
    committed_slots: list[int] = field(default_factory=list)
    """Slots whose import counts: they go on from here."""
    committed_legs: list[int] = field(default_factory=list)
    """Their legs from now on; empty: those that they came with."""

    def targets(self, group: int) -> list[int]:
        """As `Orders.targets`: blocks whose content comes from the source."""
        return [block for start in self.import_starts for block in start.written_of(group)]

    @property
    def written(self) -> list[GroupBlock]:
        """As `Orders.written`."""
        return [
            GroupBlock(group, block)
            for start in self.import_starts
            for group in range(1 + len(start.groups))
            for block in start.written_of(group)
        ]

    @property
    def touched(self) -> list[GroupBlock]:
        """As `Orders.touched`: what was found is read by nobody beside the steps."""
        return self.written

    @property
    def tables(self) -> list[ImportStart]:
        """As `Orders.tables`."""
        return self.import_starts

    @property
    def going_on(self) -> set[int]:
        """As `Orders.going_on`: committed ones, and frozen ones that go on here."""
        return {*self.committed_slots, *(slot for slot, _ in self.thawed)}

    @property
    def slots(self) -> list[int]:
        """As `Orders.slots`."""
        return [
            *self.kept_slots,
            *(slot for slot, _ in self.thawed),
            *(order.slot for order in self.exports),
            *self.frozen_slots,
            *(start.slot for start in self.import_starts),
            *self.committed_slots,
        ]


def write(message: to_worker_pb2.SchedulerOutput, orders: HandoffOrders) -> None:
    """Adds the orders to the message of their step. An absent column stays unset."""
    body = message.handoffs
    body.SetInParent()
    if orders.import_starts:
        _write_starts(body.import_starts, orders.import_starts)
    if orders.exports:
        columns.EXPORTS.write(body, [(each.slot, each.transfer) for each in orders.exports])
        for each in orders.exports:
            write_worker(body.export_targets.add(), each.target)
        body.export_keys.extend(each.key for each in orders.exports)
    if orders.thawed:
        columns.THAWED.write(body, orders.thawed)
    for name in ("kept_slots", "frozen_slots", "committed_slots"):
        if slots := getattr(orders, name):
            setattr(body, name, columns.pack(slots, columns.U16))
    if orders.committed_legs:
        body.committed_legs = columns.pack(orders.committed_legs, columns.U32)


def read(message: to_worker_pb2.SchedulerOutput) -> HandoffOrders | None:
    """The orders of a step; None: there are none. ValueError when columns do not fit each other."""
    if not message.HasField("handoffs"):
        return None
    body = message.handoffs
    committed = columns.unpack(body.committed_slots, columns.U16)
    legs = columns.unpack(body.committed_legs, columns.U32)
    if len(legs) not in (0, len(committed)):
        raise ValueError("committed_slots and committed_legs differ in length")
    return HandoffOrders(
        kept_slots=columns.unpack(body.kept_slots, columns.U16),
        thawed=[(slot, leg) for slot, leg in columns.THAWED.read(body)],
        exports=_read_exports(body),
        frozen_slots=columns.unpack(body.frozen_slots, columns.U16),
        import_starts=_read_starts(body.import_starts),
        committed_slots=committed,
        committed_legs=legs,
    )


def _read_exports(body: to_worker_pb2.Handoffs) -> list[ExportOrder]:
    rows = columns.EXPORTS.read(body)
    if not len(rows) == len(body.export_targets) == len(body.export_keys):
        raise ValueError("export_slots, export_targets and export_keys differ in length")
    return [
        ExportOrder(slot, transfer, read_worker(target), key)
        for (slot, transfer), target, key in zip(rows, body.export_targets, body.export_keys, strict=True)
    ]


def _write_starts(body: to_worker_pb2.ImportStarts, starts: Sequence[ImportStart]) -> None:
    rows = [(start.slot, len(start.blocks), start.num_found) for start in starts]
    columns.IMPORT_STARTS.write(body, rows)
    body.block_ids = _pack_tables([start.blocks for start in starts])
    for tables in zip(*(start.groups for start in starts), strict=True):
        group = body.groups.add()
        columns.GROUP_STARTS.write(group, [(first, len(blocks)) for first, blocks in tables])
        group.block_ids = _pack_tables([blocks for _, blocks in tables])


def _read_starts(body: to_worker_pb2.ImportStarts) -> list[ImportStart]:
    rows = columns.IMPORT_STARTS.read(body)
    tables = _unpack_tables(body.block_ids, [count for _, count, _ in rows])
    groups = []
    for group in body.groups if rows else ():
        heads = columns.GROUP_STARTS.read(group)
        if len(heads) != len(rows):
            raise ValueError(f"a group has tables of {len(heads)} slots of {len(rows)}")
        others = _unpack_tables(group.block_ids, [count for _, count in heads])
        groups.append([(first, table) for (first, _), table in zip(heads, others, strict=True)])
    return [
        ImportStart(slot, table, num_found, tuple(group[row] for group in groups))
        for row, ((slot, _, num_found), table) in enumerate(zip(rows, tables, strict=True))
    ]


def _pack_tables(tables: Sequence[Blocks]) -> bytes:
    return columns.pack([block for table in tables for block in table], columns.U32)


def _unpack_tables(raw: bytes, counts: Sequence[int]) -> list[list[int]]:
    """Tables of so many blocks each, one after the other."""
    blocks = columns.unpack(raw, columns.U32)
    if sum(counts) != len(blocks):
        raise ValueError(f"block_counts say {sum(counts)} blocks, and there are {len(blocks)}")
    return [blocks[begin:end] for begin, end in pairwise(accumulate(counts, initial=0))]


def validate(orders: HandoffOrders, bounds: PartBounds) -> str | None:
    """Why the orders can fit no worker of these bounds; None: they can (K10)."""
    slot = max(orders.slots, default=0)
    if slot >= bounds.num_slots:
        return f"it names slot {slot}, and there are {bounds.num_slots}"
    for start in orders.import_starts:
        reason = _validate_start(start, bounds)
        if reason is not None:
            return reason
    starts = [start.slot for start in orders.import_starts]
    exports = [order.slot for order in orders.exports]
    if len(set(starts)) != len(starts) or len(set(exports)) != len(exports):
        return "it hands a slot over twice"
    return None


def _validate_start(start: ImportStart, bounds: PartBounds) -> str | None:
    num_groups = len(bounds.num_blocks) - 1
    if len(start.groups) != num_groups:
        return f"it gives a slot tables in {len(start.groups)} groups, and there are {num_groups}"
    if start.num_found > len(start.blocks):
        return f"it found {start.num_found} of {len(start.blocks)} blocks"
    for group, size in enumerate(bounds.num_blocks):
        blocks = start.blocks_of(group)
        if bounds.missing((group, block) for block in blocks) is not None:
            return f"it names a block of group {group} that is none of {size}"
        if len(set(blocks)) != len(blocks):
            return f"slot {start.slot} is taken over with a block twice"
    for group, (first, blocks) in enumerate(start.groups, SPINE + 1):
        if first + len(blocks) > bounds.num_blocks[SPINE]:
            return (
                f"a table of group {group} ends at block {first + len(blocks)}, and the first group has "
                f"{bounds.num_blocks[SPINE]}"
            )
    return None
