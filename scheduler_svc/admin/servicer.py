"""What operators ask and set: signalbox.v1.AdminService."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import grpc

from scheduler_svc.admin.board_feed import BoardFeed
from scheduler_svc.admin.board_snapshot import HEALTH
from scheduler_svc.admin.explanation_message import make_explanation
from scheduler_svc.admin.group_status import checkpoint_status, disk_status, group_statuses
from scheduler_svc.admin.tenant_file import Limits
from scheduler_svc.core.moves.desk import HandoffRefusedError
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InvalidRequestError, StartupError, UnsupportedError
from signalbox.links.rpc import abort
from signalbox.protocol.enums import WorkerRole
from signalbox.runtime.watched_file import WatchedFile
from signalbox.v1 import admin_pb2, admin_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """signalbox.v1.AdminService over a step loop."""

    def __init__(self, loop: StepLoop, tenants: WatchedFile[Limits] | None = None) -> None:
        """`tenants`: None when the scheduler was started without a file of tenants."""
        self._loop, self._tenants = loop, tenants
        self._board = BoardFeed(loop)

    async def GetStatus(  # noqa: N802
        self, request: admin_pb2.GetStatusRequest, context: Context
    ) -> admin_pb2.GetStatusResponse:
        """Queue, workers and cache as they are now."""
        core = self._loop.core
        return admin_pb2.GetStatusResponse(
            scheduler_epoch=core.epoch,
            num_waiting=core.num_waiting,
            num_frontends=self._loop.num_frontends,
            workers=[worker_status(worker) for worker in core.workers.values()],
            safe_mode=self._loop.safe_mode(),
        )

    async def ExplainRequest(  # noqa: N802
        self, request: admin_pb2.ExplainRequestRequest, context: Context
    ) -> admin_pb2.ExplainRequestResponse:
        """Where a request is, and why it does not run."""
        if not request.request_id:
            await abort(context, InvalidRequestError("a request has an id", field="request_id"))
        explained = self._loop.explain(request.request_id)
        wall_ms = time.time() * 1e3
        return admin_pb2.ExplainRequestResponse(
            requests=[make_explanation(each, wall_ms) for each in explained]
        )

    async def ResetPrefixCache(  # noqa: N802
        self, request: admin_pb2.ResetPrefixCacheRequest, context: Context
    ) -> admin_pb2.ResetPrefixCacheResponse:
        """Forgets all cached blocks of all workers."""
        return admin_pb2.ResetPrefixCacheResponse(num_blocks=self._loop.core.reset_prefix_cache())

    async def DrainWorker(  # noqa: N802
        self, request: admin_pb2.DrainWorkerRequest, context: Context
    ) -> admin_pb2.DrainWorkerResponse:
        """Places nothing more on a worker, or again."""
        try:
            count = self._loop.drain_worker(request.worker_id, not request.resume)
        except KeyError:
            message = f"no worker {request.worker_id!r} is known here"
            await abort(context, InvalidRequestError(message, field="worker_id"))
        return admin_pb2.DrainWorkerResponse(num_requests=count)

    async def SetWorkerRole(  # noqa: N802
        self, request: admin_pb2.SetWorkerRoleRequest, context: Context
    ) -> admin_pb2.SetWorkerRoleResponse:
        """Says what a worker is there for."""
        worker = self._loop.core.workers.get(request.worker_id)
        if worker is None:
            message = f"no worker {request.worker_id!r} is known here"
            await abort(context, InvalidRequestError(message, field="worker_id"))
        elif int(request.role) not in set(WorkerRole):
            await abort(context, InvalidRequestError("it is both, prefill or decode", field="role"))
        elif WorkerRole(request.role) is not WorkerRole.BOTH and not worker.info.kv_layout:
            message = (
                f"worker {request.worker_id} hands nothing over (--hand-off): it has no other role than both"
            )
            await abort(context, InvalidRequestError(message, field="role"))
        else:
            worker.role = WorkerRole(request.role)
            self._loop.tick()
        return admin_pb2.SetWorkerRoleResponse()

    async def MoveRequest(  # noqa: N802
        self, request: admin_pb2.MoveRequestRequest, context: Context
    ) -> admin_pb2.MoveRequestResponse:
        """Hands one request over to another worker."""
        try:
            source = self._loop.move_request(request.request_id, request.worker_id)
        except HandoffRefusedError as error:
            await abort(context, InvalidRequestError(str(error), field=error.field))
        return admin_pb2.MoveRequestResponse(source_worker_id=source)

    async def SetSafeMode(  # noqa: N802
        self, request: admin_pb2.SetSafeModeRequest, context: Context
    ) -> admin_pb2.SetSafeModeResponse:
        """Suspends the classes below a level."""
        try:
            self._loop.set_safe_mode(request.level)
        except ValueError as error:
            await abort(context, UnsupportedError(str(error), field="level"))
        return admin_pb2.SetSafeModeResponse(safe_mode=self._loop.safe_mode())

    async def LiftSafeMode(  # noqa: N802
        self, request: admin_pb2.LiftSafeModeRequest, context: Context
    ) -> admin_pb2.LiftSafeModeResponse:
        """Lets all classes go on."""
        self._loop.lift_safe_mode()
        return admin_pb2.LiftSafeModeResponse(safe_mode=self._loop.safe_mode())

    async def ReloadTenants(  # noqa: N802
        self, request: admin_pb2.ReloadTenantsRequest, context: Context
    ) -> admin_pb2.ReloadTenantsResponse:
        """Reads the file of tenants again."""
        if self._tenants is None:
            message = "the scheduler was started without a file of tenants (--tenants FILE)"
            await abort(context, InvalidRequestError(message, field="tenants"))
        try:
            self._tenants.load()
        except StartupError as error:
            message = f"{error.message}; the limits stay as they are"
            await abort(context, InvalidRequestError(message, field="tenants"))
        default, named = self._tenants.content
        self._loop.core.queues.set_limits(default, named)
        self._loop.tick()
        return admin_pb2.ReloadTenantsResponse(num_tenants=len(named))

    async def WatchBoard(  # noqa: N802
        self, request: admin_pb2.WatchBoardRequest, context: Context
    ) -> None:
        """Snapshots until the watcher goes."""
        async with aclosing(self._board.watch()) as snapshots:
            async for snapshot in snapshots:
                await context.write(snapshot)


def worker_status(worker: Worker) -> admin_pb2.WorkerStatus:
    """How a worker is, in figures."""
    stats = worker.stats
    return admin_pb2.WorkerStatus(
        worker_id=worker.info.worker_id,
        address=worker.info.address,
        model=worker.info.model,
        attached=worker.attached,
        num_running=worker.table.num_running,
        num_preempted=len(worker.table.preempted),
        num_blocks=worker.pool.num_blocks,
        num_free_blocks=worker.pool.num_free,
        num_cached_blocks=worker.pool.num_cached,
        num_inflight_steps=len(worker.records),
        num_steps=stats.num_steps,
        num_preemptions=stats.num_preemptions,
        num_prefix_hit_tokens=stats.num_prefix_hit_tokens,
        num_prefix_query_tokens=stats.num_prefix_query_tokens,
        num_output_tokens=stats.num_output_tokens,
        draining=worker.draining,
        num_draft_tokens=stats.num_draft_tokens,
        num_accepted_tokens=stats.num_accepted_tokens,
        health=HEALTH[worker.health],
        num_unheard_by=len(worker.vitals.unheard_by),
        groups=group_statuses(worker),
        checkpoints=checkpoint_status(worker),
        disk=disk_status(worker),
        worker_instance=worker.info.instance,
        num_lent_blocks=worker.loan.num_left(worker.pool),
        num_requests=len(worker.requests()),
        role=int(worker.role),  # type: ignore[arg-type]
        num_ranks=worker.info.num_ranks,
    )
