"""What messages say of cached blocks that go from one worker to another."""

from __future__ import annotations

from collections.abc import Sequence

from signalbox.protocol import columns
from signalbox.v1 import from_worker_pb2, generation_pb2, to_worker_pb2
from worker_svc.core.pull_orders import ExportOrder, GroupBlock, PullOrder, PullOrders
from worker_svc.links.handoff_columns import parse_worker

MOST_NS = (1 << 32) - 1


def parse_pulls(message: to_worker_pb2.SchedulerOutput) -> PullOrders | None:
    """The orders of a step; None: there are none. ValueError when their columns do not fit each other."""
    if not message.HasField("pulls"):
        return None
    orders = message.pulls
    return PullOrders(
        _parse_pull(message.step_id, orders.pull) if orders.HasField("pull") else None,
        [
            ExportOrder(each.number, each.key, parse_worker(each.target), _parse_blocks(each))
            for each in orders.exports
        ],
        columns.unpack(orders.ended_exports, columns.U64),
    )


def _parse_pull(step_id: int, pull: to_worker_pb2.BlockPull) -> PullOrder:
    source = parse_worker(pull.source)
    return PullOrder(step_id, pull.number, pull.key, source, pull.address, _parse_blocks(pull), pull.most_us)


def _parse_blocks(message: to_worker_pb2.BlockPull | to_worker_pb2.BlockExport) -> list[GroupBlock]:
    groups = columns.unpack(message.groups, columns.U8)
    blocks = columns.unpack(message.block_ids, columns.U32)
    if len(groups) != len(blocks):
        raise ValueError("groups and block_ids of a pull differ in length")
    return [GroupBlock(*each) for each in zip(groups, blocks, strict=True)]


def build_pull_ended(step_id: int, seconds: float, block_ns: Sequence[float]) -> from_worker_pb2.WorkerEvent:
    """The blocks of the pull that a step began are here. block_ns: what one of each group took."""
    ended = from_worker_pb2.BlockPullEnded(
        step_id=step_id,
        duration_us=int(seconds * 1e6),
        block_ns=columns.pack([min(int(each), MOST_NS) for each in block_ns], columns.U32),
    )
    return from_worker_pb2.WorkerEvent(block_pull_ended=ended)


def build_pull_failed(step_id: int, reason: str) -> from_worker_pb2.WorkerEvent:
    """Nothing of it counts."""
    error = generation_pb2.Error(code="UnavailableError", message=reason[:500])
    return from_worker_pb2.WorkerEvent(
        block_pull_ended=from_worker_pb2.BlockPullEnded(step_id=step_id, error=error)
    )
