"""Tells the schedulers how a worker ended."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import grpc

from signalbox.links import rpc
from signalbox.links.tls.roles import Role
from signalbox.protocol.enums import WorkerExit
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc, shared_pb2
from worker_svc.guardian.ending import Ending
from worker_svc.guardian.step_mark import StepMark

logger = logging.getLogger(__name__)
RETRY_S = 0.25
TRY_S = 1.0
"""A scheduler that has not answered by then is asked again."""
GIVE_UP_S = 5.0
"""Later nobody waits for the news: the scheduler has found out without it."""


@dataclass(frozen=True)
class Ward:
    """A worker process that is watched."""

    worker_id: str
    instance: str
    schedulers: tuple[str, ...]
    """host:port of all that may lead, or of a relay that passes it on."""
    upward: Role = Role.SCHEDULER
    """Which of the two."""
    mark: StepMark = field(default_factory=StepMark)
    """Where it says which step it executes."""


def tell(ward: Ward, ending: Ending) -> None:
    """Tells all schedulers; returns when one has taken it and each was asked, or after GIVE_UP_S."""
    asyncio.run(_tell_all(ward, ending))


async def _tell_all(ward: Ward, ending: Ending) -> None:
    request = scheduler_pb2.ReportWorkerExitRequest(
        worker=shared_pb2.WorkerRef(worker_id=ward.worker_id, worker_instance=ward.instance),
        exit=int(ending.exit),  # type: ignore[arg-type]
        reason=ending.reason,
        step_id=ward.mark.read(),
    )
    enough = asyncio.Event()
    if ending.exit == WorkerExit.STOPPED:  # which it has said itself: this is in case it could not
        enough.set()
    calls = [_tell(address, ward.upward, request, enough) for address in ward.schedulers]
    try:
        await asyncio.wait_for(asyncio.gather(*calls), GIVE_UP_S)
    except TimeoutError:
        logger.warning("no scheduler was told of the end of %s", ward.worker_id)


async def _tell(
    address: str, role: Role, request: scheduler_pb2.ReportWorkerExitRequest, enough: asyncio.Event
) -> None:
    """enough: nobody need be asked twice; set when the scheduler at `address` has taken it."""
    target = address
    while True:
        try:
            async with rpc.channel(target, role) as channel:
                stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
                await stub.ReportWorkerExit(request, timeout=TRY_S)
            enough.set()
            return
        except grpc.aio.AioRpcError as error:
            if enough.is_set() or error.code() not in _GONE:
                logger.debug("the scheduler at %s was not told: %s", target, error.details())
                return
        await asyncio.sleep(RETRY_S)
        target = await _leader_named_at(address, role)


async def _leader_named_at(address: str, role: Role) -> str:
    """A standby says where the leader is, which the list need not name (B3); without one, `address` itself."""
    async with rpc.channel(address, role) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        try:
            answer = await stub.FindLeader(scheduler_pb2.FindLeaderRequest(), timeout=TRY_S)
        except grpc.aio.AioRpcError:
            return address
    return str(answer.leader_address) or address


_GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
"""A scheduler may be there in a moment."""
