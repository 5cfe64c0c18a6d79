"""What clients want, as their frontend says it, and what a frontend sees of workers."""

from __future__ import annotations

import logging
from typing import Any

from scheduler_svc.core.recovery.frontend_desk import Question
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.request import Request, RequestKey
from scheduler_svc.links.codec import delta
from signalbox.protocol.enums import WorkerReach
from signalbox.v1 import from_frontend_pb2

logger = logging.getLogger(__name__)


def operate(
    core: Scheduler,
    frontend: str,
    operation: from_frontend_pb2.FrontendOperation,
    now: float,
    wall_ms: int,
) -> Request | None:
    """Takes one operation of a frontend to the core; `wall_ms` is Unix time in milliseconds. Returns the request that
    was submitted, if it was one."""
    kind = operation.WhichOneof("operation")
    if kind is None:
        return None
    body: Any = getattr(operation, kind)
    if kind == "reach":
        _reach(core, frontend, body, now)
        return None
    key, attempt = RequestKey(frontend, body.ref.request_id), body.ref.attempt
    if kind == "submit":
        request = delta.parse_submit(body, frontend, wall_ms)
        core.submit(request, now)
        return request
    if kind == "cancel":
        core.cancel(key, attempt)
    elif kind == "finish":
        core.finish(key, attempt)
    elif kind == "check":
        question = Question(
            key, attempt, body.worker_id, body.worker_instance, tuple(body.may_be_on), body.model
        )
        core.check(question, now)
    else:
        core.set_paused(key, attempt, kind == "pause")
    return None


def _reach(core: Scheduler, frontend: str, message: from_frontend_pb2.WorkerReach, now: float) -> None:
    if message.state not in {reach.value for reach in WorkerReach}:
        return
    process = Process(message.worker.worker_id, message.worker.worker_instance)
    reach = WorkerReach(message.state)
    logger.info("frontend %s: worker %s is %s", frontend, process.worker_id, reach.name.lower())
    core.reach_worker(frontend, process, reach, now)
