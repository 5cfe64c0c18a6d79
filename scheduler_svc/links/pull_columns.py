"""What a step says of cached blocks that go from one worker to another, as a message, and what workers say of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from scheduler_svc.core.parts.pulls.desk import Pull, PullDesk
from scheduler_svc.core.parts.pulls.pull import PullOrders
from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import DivergenceError
from scheduler_svc.links.handoff_columns import build_worker
from signalbox.protocol import columns
from signalbox.v1 import from_worker_pb2, to_worker_pb2

logger = logging.getLogger(__name__)


def write_pulls(message: to_worker_pb2.SchedulerOutput, orders: PullOrders) -> None:
    """What a step tells a source: pulls that begin and end there."""
    for pull in orders.exports:
        export = message.pulls.exports.add(
            number=pull.number, key=pull.key, target=build_worker(pull.target.process)
        )
        export.groups, export.block_ids = _pack(pull.shown)
    message.pulls.ended_exports = columns.pack(orders.ended, columns.U64)


def write_pull(message: to_worker_pb2.SchedulerOutput, fetch: Fence) -> None:
    """The pull that a step begins at its target."""
    pull: Pull = fetch.pull
    begun = message.pulls.pull
    begun.number, begun.key, begun.most_us = pull.number, pull.key, fetch.most_us
    begun.source.CopyFrom(build_worker(pull.source.process))
    begun.address = pull.source.info.address
    begun.groups, begun.block_ids = _pack(pull.written)


def _pack(blocks: Sequence[Blocks]) -> tuple[bytes, bytes]:
    rows = [(group, block) for group, each in enumerate(blocks) for block in each.tolist()]
    groups, ids = ([row[column] for row in rows] for column in (0, 1))
    return columns.pack(groups, columns.U8), columns.pack(ids, columns.U32)


def take_pull_ended(
    desk: PullDesk, worker: Worker, ended: from_worker_pb2.BlockPullEnded, now: float
) -> None:
    """A target says that a pull has ended. DivergenceError when it cannot be read."""
    failure = ""
    if ended.HasField("error"):
        failure = ended.error.message or "it does not say why"
        logger.info("a pull of worker %s came to nothing: %s", worker.info.worker_id, failure[:200])
    try:
        block_us = [each / 1e3 for each in columns.unpack(ended.block_ns, columns.U32)]
    except ValueError as error:
        raise DivergenceError(f"what it says of a pull cannot be read: {error}") from error
    desk.ended(worker, ended.step_id, failure, ended.duration_us, block_us, now)
