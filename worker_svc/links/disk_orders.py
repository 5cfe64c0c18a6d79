"""What a step orders of the disk tier, out of its message."""

from __future__ import annotations

from signalbox.protocol import columns
from signalbox.protocol.hash_chain import split_hashes
from signalbox.v1 import to_worker_pb2
from worker_svc.core.disk_orders import DiskOrders, NamedBlock


def parse_disk_orders(message: to_worker_pb2.SchedulerOutput) -> DiskOrders | None:
    """The orders of a step; None: there are none. ValueError when their columns do not fit each other."""
    if not message.HasField("disk"):
        return None
    orders = message.disk
    return DiskOrders(
        message.step_id,
        _parse_blocks(orders.loads),
        orders.most_us,
        _parse_blocks(orders.stores),
        split_hashes(orders.drops),
        orders.drops_all,
    )


def _parse_blocks(message: to_worker_pb2.NamedBlocks) -> list[NamedBlock]:
    groups = columns.unpack(message.groups, columns.U8)
    blocks, names = columns.unpack(message.block_ids, columns.U32), split_hashes(message.hashes)
    if not len(groups) == len(blocks) == len(names):
        raise ValueError("groups, block_ids and hashes of the disk tier differ in length")
    return [NamedBlock(*each) for each in zip(groups, blocks, names, strict=True)]
