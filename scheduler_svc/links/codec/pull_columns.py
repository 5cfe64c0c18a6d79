"""Orders and events of pulls, as messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from scheduler_svc.core.parts.pulls.desk import Pull, PullDesk
from scheduler_svc.core.parts.pulls.pull import PullOrders
from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import DivergenceError
from signalbox.protocol import columns
from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts import pulls
from signalbox.protocol.parts.blocks import GroupBlock
from signalbox.protocol.parts.names import WorkerName
from signalbox.v1 import from_worker_pb2, to_worker_pb2

logger = logging.getLogger(__name__)


def write_pulls(message: to_worker_pb2.SchedulerOutput, orders: PullOrders) -> None:
    """Reads by others that begin and end with a step."""
    exports = [
        pulls.ExportOrder(each.number, each.key, WorkerName(*each.target.process), _blocks(each.shown))
        for each in orders.exports
    ]
    pulls.write(message, pulls.PullOrders(exports=exports, ended_exports=orders.ended))


def write_pull(message: to_worker_pb2.SchedulerOutput, fetch: Fence) -> None:
    """The pull that a step begins at its target."""
    pull: Pull = fetch.pull
    source = pull.source
    order = pulls.PullOrder(
        message.step_id,
        pull.number,
        pull.key,
        WorkerName(*source.process),
        source.info.address,
        _blocks(pull.written),
        fetch.most_us,
    )
    pulls.write(message, pulls.PullOrders(order))


def _blocks(blocks: Sequence[Blocks]) -> list[GroupBlock]:
    return [GroupBlock(group, block) for group, each in enumerate(blocks) for block in each.tolist()]


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
    desk.ended(worker, ended.step_id, failure, ended.duration_us, block_us, now, ReadFault(ended.fault))
