"""What a step orders of the disk tier, out of its message."""

from __future__ import annotations

from signalbox.protocol import columns
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.v1 import scheduler_pb2
from worker_svc.core.disk_orders import DiskOrders, NamedBlock


def parse_disk_orders(message: scheduler_pb2.SchedulerOutput) -> DiskOrders | None:
    """The orders of a step; None: there are none. ValueError when their columns do not fit each other."""
    if not message.HasField("disk"):
        return None
    orders = message.disk
    return DiskOrders(
        message.step_id,
        _parse_blocks(orders.loads),
        orders.most_us,
        _parse_blocks(orders.stores),
        _parse_names(orders.drops),
        orders.drops_all,
    )


def _parse_blocks(message: scheduler_pb2.NamedBlocks) -> list[NamedBlock]:
    groups = columns.unpack(message.groups, columns.U8)
    blocks, names = columns.unpack(message.block_ids, columns.U32), _parse_names(message.hashes)
    if not len(groups) == len(blocks) == len(names):
        raise ValueError("groups, block_ids and hashes of the disk tier differ in length")
    return [NamedBlock(*each) for each in zip(groups, blocks, names, strict=True)]


def _parse_names(raw: bytes) -> list[bytes]:
    if len(raw) % HASH_BYTES:
        raise ValueError("a hash is cut short")
    return [raw[at : at + HASH_BYTES] for at in range(0, len(raw), HASH_BYTES)]
