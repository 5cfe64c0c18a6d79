"""The streams of frontends and workers, and the status calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any

import grpc

from scheduler_svc.admin.board_feed import BoardFeed
from scheduler_svc.admin.board_snapshot import HEALTH
from scheduler_svc.admin.explanation_message import make_explanation
from scheduler_svc.admin.tenant_file import TenantFile
from scheduler_svc.core.cluster.term import TermError
from scheduler_svc.core.liveness.evidence import ExitKind, Process
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.links.directory import MAX_OUTBOX, MAX_WORKER_BYTES, FrontendLink
from scheduler_svc.links.names import check_name
from scheduler_svc.links.relay_link import RelayLink
from scheduler_svc.links.worker_link import TERM_FIELD, WorkerSession
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InvalidRequestError, SignalboxError, UnsupportedError
from signalbox.links.outbox import MAX_BATCH_BYTES, Outbox, OutboxFullError, split
from signalbox.links.rpc import abort
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]


class SchedulerServicer(scheduler_pb2_grpc.SchedulerServiceServicer):
    """signalbox.v1.SchedulerService over a step loop."""

    def __init__(self, loop: StepLoop, tenants: TenantFile | None = None) -> None:
        self._loop, self._tenants = loop, tenants
        self._board = BoardFeed(loop)

    async def AttachWorker(  # noqa: N802
        self, requests: AsyncIterator[scheduler_pb2.AttachWorkerRequest], context: Context
    ) -> None:
        """The life of one worker's stream."""
        first = await anext(aiter(requests), None) or scheduler_pb2.AttachWorkerRequest()
        outbox = Outbox[scheduler_pb2.AttachWorkerResponse](
            MAX_OUTBOX, MAX_WORKER_BYTES, lambda message: message.ByteSize()
        )
        closed = asyncio.Event()
        try:
            session = WorkerSession(self._loop, first, outbox.put, closed.set)
        except SignalboxError as error:
            await abort(context, error)
        writer = asyncio.create_task(_write_to_worker(outbox, context))
        try:
            await _until(closed, _read_worker(session, requests))
            if session.refusal is not None:
                await abort(context, session.refusal)
        except SignalboxError as error:
            await abort(context, error)
        finally:
            writer.cancel()
            session.end()

    async def AttachWorkers(  # noqa: N802
        self, requests: AsyncIterator[scheduler_pb2.AttachWorkersRequest], context: Context
    ) -> None:
        """The life of one relay's stream. Its end is the end of the links of all its workers."""
        first = await anext(aiter(requests), None) or scheduler_pb2.AttachWorkersRequest()
        try:
            relay = RelayLink(self._loop, first)
        except SignalboxError as error:
            await abort(context, error)
        await context.write(scheduler_pb2.AttachWorkersResponse())
        writer = asyncio.create_task(_write_to_relay(relay, context))
        try:
            relay.take(first.entries)
            await _until(relay.is_stuck, _read_relay(relay, requests))
        except SignalboxError as error:
            await abort(context, error)
        except OutboxFullError:
            logger.error("relay %s does not read its messages", relay.relay_id)
        finally:
            writer.cancel()
            relay.end()

    async def AttachFrontend(  # noqa: N802
        self, requests: AsyncIterator[scheduler_pb2.AttachFrontendRequest], context: Context
    ) -> None:
        """The life of one frontend's stream."""
        first = await anext(aiter(requests), None)
        if first is None or not first.HasField("hello"):
            await abort(context, InvalidRequestError("the first message must carry hello", field="hello"))
        try:
            check_name("hello.frontend_instance", first.hello.frontend_instance)
            link = self._loop.attach_frontend(first.hello)
        except SignalboxError as error:
            await abort(context, error)
        except TermError as error:
            await abort(context, InvalidRequestError(str(error), field=TERM_FIELD))
        await context.send_initial_metadata(())
        writer = asyncio.create_task(_write_to_frontend(link.outbox, context))
        try:
            self._loop.on_frontend(link, first)
            await _until(link.is_closed, self._read_frontend(link, requests))
        finally:
            writer.cancel()
            self._loop.detach_frontend(link)

    async def _read_frontend(
        self, link: FrontendLink, requests: AsyncIterator[scheduler_pb2.AttachFrontendRequest]
    ) -> None:
        async for message in requests:
            self._loop.on_frontend(link, message)

    async def ReportWorkerExit(  # noqa: N802
        self, request: scheduler_pb2.ReportWorkerExitRequest, context: Context
    ) -> scheduler_pb2.ReportWorkerExitResponse:
        """The guardian of a worker says how its process has ended."""
        process = Process(request.worker.worker_id, request.worker.worker_instance)
        if not all(process):
            await abort(context, InvalidRequestError("a process has an id and an instance", field="worker"))
        if request.exit not in {kind.value for kind in ExitKind}:
            await abort(context, InvalidRequestError("how the process ended is not said", field="exit"))
        self._loop.on_worker_exit(process, ExitKind(request.exit), request.reason)
        return scheduler_pb2.ReportWorkerExitResponse()

    async def FindLeader(  # noqa: N802
        self, request: scheduler_pb2.FindLeaderRequest, context: Context
    ) -> scheduler_pb2.FindLeaderResponse:
        """This process leads."""
        term = self._loop.core.term
        return scheduler_pb2.FindLeaderResponse(
            is_leader=True, scheduler_epoch=term.number, scheduler_instance=term.instance
        )

    async def GetStatus(  # noqa: N802
        self, request: scheduler_pb2.GetStatusRequest, context: Context
    ) -> scheduler_pb2.GetStatusResponse:
        """Queue, workers and cache as they are now."""
        core = self._loop.core
        return scheduler_pb2.GetStatusResponse(
            scheduler_epoch=core.epoch,
            num_waiting=core.num_waiting,
            num_frontends=self._loop.num_frontends,
            workers=[worker_status(worker) for worker in core.workers.values()],
            safe_mode=self._loop.safe_mode(),
        )

    async def ExplainRequest(  # noqa: N802
        self, request: scheduler_pb2.ExplainRequestRequest, context: Context
    ) -> scheduler_pb2.ExplainRequestResponse:
        """Where a request is, and why it does not run."""
        if not request.request_id:
            await abort(context, InvalidRequestError("a request has an id", field="request_id"))
        explained = self._loop.explain(request.request_id)
        wall_ms = time.time() * 1e3
        return scheduler_pb2.ExplainRequestResponse(
            requests=[make_explanation(each, wall_ms) for each in explained]
        )

    async def ResetPrefixCache(  # noqa: N802
        self, request: scheduler_pb2.ResetPrefixCacheRequest, context: Context
    ) -> scheduler_pb2.ResetPrefixCacheResponse:
        """Forgets all cached blocks."""
        return scheduler_pb2.ResetPrefixCacheResponse(num_blocks=self._loop.core.reset_prefix_cache())

    async def DrainWorker(  # noqa: N802
        self, request: scheduler_pb2.DrainWorkerRequest, context: Context
    ) -> scheduler_pb2.DrainWorkerResponse:
        """Places nothing more on a worker, or again."""
        try:
            count = self._loop.drain_worker(request.worker_id, not request.resume)
        except KeyError:
            message = f"no worker {request.worker_id!r} is known here"
            await abort(context, InvalidRequestError(message, field="worker_id"))
        return scheduler_pb2.DrainWorkerResponse(num_requests=count)

    async def SetSafeMode(  # noqa: N802
        self, request: scheduler_pb2.SetSafeModeRequest, context: Context
    ) -> scheduler_pb2.SetSafeModeResponse:
        """Suspends the classes below a level."""
        try:
            self._loop.set_safe_mode(request.level)
        except ValueError as error:
            await abort(context, UnsupportedError(str(error), field="level"))
        return scheduler_pb2.SetSafeModeResponse(safe_mode=self._loop.safe_mode())

    async def LiftSafeMode(  # noqa: N802
        self, request: scheduler_pb2.LiftSafeModeRequest, context: Context
    ) -> scheduler_pb2.LiftSafeModeResponse:
        """Lets all classes go on."""
        self._loop.lift_safe_mode()
        return scheduler_pb2.LiftSafeModeResponse(safe_mode=self._loop.safe_mode())

    async def ReloadTenants(  # noqa: N802
        self, request: scheduler_pb2.ReloadTenantsRequest, context: Context
    ) -> scheduler_pb2.ReloadTenantsResponse:
        """Reads the file of tenants again."""
        if self._tenants is None:
            message = "the scheduler was started without a file of tenants (--tenants FILE)"
            await abort(context, InvalidRequestError(message, field="tenants"))
        try:
            count = self._tenants.load()
        except (OSError, ValueError) as error:
            message = f"{self._tenants.path}: {error}; the limits stay as they are"
            await abort(context, InvalidRequestError(message, field="tenants"))
        self._loop.tick()
        return scheduler_pb2.ReloadTenantsResponse(num_tenants=count)

    async def WatchBoard(  # noqa: N802
        self, request: scheduler_pb2.WatchBoardRequest, context: Context
    ) -> None:
        """Snapshots until the watcher goes."""
        async with aclosing(self._board.watch()) as snapshots:
            async for snapshot in snapshots:
                await context.write(snapshot)


async def _until(closed: asyncio.Event, reading: Coroutine[Any, Any, None]) -> None:
    """Takes what the other end sends, until its stream ends or is closed from our side."""
    tasks = asyncio.create_task(reading), asyncio.create_task(closed.wait())
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


async def _read_worker(
    session: WorkerSession, requests: AsyncIterator[scheduler_pb2.AttachWorkerRequest]
) -> None:
    async for message in requests:
        if not session.take(message):
            return


async def _read_relay(relay: RelayLink, requests: AsyncIterator[scheduler_pb2.AttachWorkersRequest]) -> None:
    async for message in requests:
        relay.take(message.entries)


async def _write_to_worker(outbox: Outbox[scheduler_pb2.AttachWorkerResponse], context: Context) -> None:
    """The one writer of a worker's stream: what waits travels in one message, unless that grows too large."""
    while True:
        for first, *others in split(await outbox.take(), lambda each: each.ByteSize(), MAX_BATCH_BYTES):
            for other in others:
                first.MergeFrom(other)
            await context.write(first)


async def _write_to_relay(relay: RelayLink, context: Context) -> None:
    """The one writer of a relay's stream: what its workers get within the window travels in one message."""
    while True:
        entries = await relay.outbox.take(relay.window_s)
        for part in split(entries, lambda entry: len(entry.message), MAX_BATCH_BYTES):
            await context.write(scheduler_pb2.AttachWorkersResponse(entries=part))


async def _write_to_frontend(outbox: Outbox[scheduler_pb2.AttachFrontendResponse], context: Context) -> None:
    """The one writer of a frontend's stream: what waits travels in one message, with the newest directory only."""
    while True:
        first, *others = await outbox.take()
        for other in others:
            if other.HasField("workers"):
                first.ClearField("workers")
            first.MergeFrom(other)
        await context.write(first)


def worker_status(worker: Worker) -> scheduler_pb2.WorkerStatus:
    """How a worker is, in figures."""
    stats = worker.stats
    return scheduler_pb2.WorkerStatus(
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
        worker_instance=worker.info.instance,
        num_lent_blocks=worker.loan.num_left(worker.pool),
    )
