"""What a worker says between its reports."""

from __future__ import annotations

import logging

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.links.codec.disk import DISK_EVENTS, take_disk_event
from scheduler_svc.links.codec.handoff_columns import parse_arrived
from scheduler_svc.links.codec.pull_columns import take_pull_ended
from signalbox.protocol.enums import ReadFault
from signalbox.v1 import from_worker_pb2

logger = logging.getLogger(__name__)
_LEAVES = {False: "leaves", True: "has failed, and leaves"}


def _take_import(core: Scheduler, worker_id: str, ended: from_worker_pb2.ImportEnded, now: float) -> None:
    """A request that the worker takes over is there, or never will be."""
    if ended.HasField("error"):
        logger.warning(
            "worker %s does not take over the request of slot %d: %s",
            worker_id,
            ended.slot,
            ended.error.message,
        )
        why = ended.error.message[:200]
        core.handoffs.failed(worker_id, ended.slot, ended.transfer, now, why, ReadFault(ended.fault))
    else:
        core.handoffs.ended(worker_id, ended.slot, ended.transfer, parse_arrived(ended), now)


def take_event(core: Scheduler, worker_id: str, event: from_worker_pb2.WorkerEvent, now: float) -> None:
    """Tells the core of it. Raises DivergenceError."""
    kind = event.WhichOneof("event")
    if kind == "alive":
        vitals, alive = core.workers[worker_id].vitals, event.alive
        vitals.oldest_step_s, vitals.oldest_step_id = alive.oldest_step_ms / 1e3, alive.step_id
        vitals.compiles = alive.compiles
    elif kind == "grammar_ready":
        ready = event.grammar_ready
        core.grammar_ready(worker_id, ready.slot, ready.ref.request_id, ready.ref.attempt)
    elif kind == "grammar_failed":
        failed = event.grammar_failed
        core.grammar_failed(worker_id, failed.slot, failed.ref.request_id, failed.ref.attempt)
    elif kind == "fence_ended":
        ended = event.fence_ended
        if ended.HasField("error"):
            logger.error("copies of worker %s failed: %s", worker_id, ended.error.message)
        core.fence_ended(worker_id, ended.fence, failed=ended.HasField("error"))
    elif kind == "import_ready":
        core.handoffs.ready(worker_id, event.import_ready.slot, event.import_ready.transfer, now)
    elif kind == "import_ended":
        _take_import(core, worker_id, event.import_ended, now)
    elif kind == "block_pull_ended":
        take_pull_ended(core.handoffs.pulls, core.workers[worker_id], event.block_pull_ended, now)
    elif kind in DISK_EVENTS:
        take_disk_event(core.workers[worker_id], event)
    elif kind == "frontend_lost":
        logger.warning("worker %s gave up frontend %s", worker_id, event.frontend_lost.frontend_instance)
        core.lose_frontend(event.frontend_lost.frontend_instance, worker_id)
    elif kind == "draining":
        count = core.drain_worker(worker_id, True, now)
        logger.info("worker %s drains, %d requests", worker_id, count)
    elif kind == "leaving":
        leaving = event.leaving
        logger.warning("worker %s %s: %s", worker_id, _LEAVES[leaving.has_crashed], leaving.reason)
        core.worker_leaves(worker_id, leaving.reason, has_crashed=leaving.has_crashed)
