"""The streams of frontends and workers, and who leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import grpc

from scheduler_svc.core.cluster.term import TermError
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.links.budget_desk import BudgetDesk
from scheduler_svc.links.directory import MAX_OUTBOX, MAX_WORKER_BYTES, FrontendLink
from scheduler_svc.links.names import check_frontend, check_name
from scheduler_svc.links.relay_link import RelayLink
from scheduler_svc.links.worker_link import TERM_FIELD, WorkerSession
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InvalidRequestError, SignalboxError
from signalbox.links import versions
from signalbox.links.outbox import MAX_BATCH_BYTES, Outbox, OutboxFullError, split
from signalbox.links.readable import first_message
from signalbox.links.rpc import abort
from signalbox.links.tls.guard import instance_in, names_of
from signalbox.links.tls.owners import Owners, check_worker
from signalbox.links.tls.roles import Role
from signalbox.protocol.enums import WorkerExit
from signalbox.v1 import (
    from_frontend_pb2,
    from_worker_pb2,
    generation_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
    to_frontend_pb2,
    to_worker_pb2,
)

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]


class SchedulerServicer(scheduler_pb2_grpc.SchedulerServiceServicer):
    """signalbox.v1.SchedulerService over a step loop."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self._owners = Owners()
        hold_s = loop.core.config.frontend_grace_s
        self.budgets = BudgetDesk(asyncio.get_running_loop().time, hold_s)

    async def AttachWorker(  # noqa: N802
        self, requests: AsyncIterator[from_worker_pb2.AttachWorkerRequest], context: Context
    ) -> None:
        """The life of one worker's stream."""
        outbox = Outbox[to_worker_pb2.AttachWorkerResponse](
            MAX_OUTBOX, MAX_WORKER_BYTES, lambda message: message.ByteSize()
        )
        closed = asyncio.Event()
        try:
            first = await first_message(requests) or from_worker_pb2.AttachWorkerRequest()
            check_worker(instance_in(context, Role.WORKER), first.hello.worker_id)
            session = WorkerSession(self._loop, first, outbox.put, closed.set)
        except SignalboxError as error:
            await abort(context, error)
        # A refusal may come while the writer's first message is on its way: both would begin with it.
        await context.send_initial_metadata(())
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
        try:
            first = await first_message(requests) or scheduler_pb2.AttachWorkersRequest()
            relay = RelayLink(self._loop, first)
        except SignalboxError as error:
            await abort(context, error)
        await context.write(scheduler_pb2.AttachWorkersResponse(protocol=versions.ours()))
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
        self, requests: AsyncIterator[from_frontend_pb2.AttachFrontendRequest], context: Context
    ) -> None:
        """The life of one frontend's stream."""
        try:
            first = await first_message(requests)
            if first is None or not first.HasField("hello"):
                raise InvalidRequestError("the first message must carry hello", field="hello")
            check_name("hello.frontend_instance", first.hello.frontend_instance)
            self._owners.check(first.hello.frontend_instance, names_of(context))
            check_frontend(first.hello)
            link = self._loop.attach_frontend(first.hello)
        except SignalboxError as error:
            await abort(context, error)
        except TermError as error:
            await abort(context, InvalidRequestError(str(error), field=TERM_FIELD))
        self.budgets.begin(link)
        await context.send_initial_metadata(())
        writer = asyncio.create_task(_write_to_frontend(link.outbox, context))
        try:
            self._loop.on_frontend(link, first)
            self.budgets.take(link, first.budgets)
            await _until(link.is_closed, self._read_frontend(link, requests))
        finally:
            writer.cancel()
            self._loop.detach_frontend(link)
            self.budgets.end(link)

    async def _read_frontend(
        self, link: FrontendLink, requests: AsyncIterator[from_frontend_pb2.AttachFrontendRequest]
    ) -> None:
        async for message in requests:
            self._loop.on_frontend(link, message)
            self.budgets.take(link, message.budgets)

    async def ReportWorkerExit(  # noqa: N802
        self, request: scheduler_pb2.ReportWorkerExitRequest, context: Context
    ) -> scheduler_pb2.ReportWorkerExitResponse:
        """The guardian of a worker says how its process has ended."""
        process = Process(request.worker.worker_id, request.worker.worker_instance)
        if not all(process):
            await abort(context, InvalidRequestError("a process has an id and an instance", field="worker"))
        if request.exit not in {kind.value for kind in WorkerExit}:
            await abort(context, InvalidRequestError("how the process ended is not said", field="exit"))
        try:
            check_worker(instance_in(context, Role.WORKER), process.worker_id, field="worker.worker_id")
        except SignalboxError as error:
            await abort(context, error)
        self._loop.on_worker_exit(process, WorkerExit(request.exit), request.reason, request.step_id)
        return scheduler_pb2.ReportWorkerExitResponse()

    async def FindLeader(  # noqa: N802
        self, request: scheduler_pb2.FindLeaderRequest, context: Context
    ) -> scheduler_pb2.FindLeaderResponse:
        """Answers that this process leads."""
        term = self._loop.core.term
        return scheduler_pb2.FindLeaderResponse(
            is_leader=True, scheduler_epoch=term.number, scheduler_instance=term.instance
        )


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
    session: WorkerSession, requests: AsyncIterator[from_worker_pb2.AttachWorkerRequest]
) -> None:
    async for message in requests:
        if not session.take(message):
            return


async def _read_relay(relay: RelayLink, requests: AsyncIterator[scheduler_pb2.AttachWorkersRequest]) -> None:
    async for message in requests:
        relay.take(message.entries)


async def _write_to_worker(outbox: Outbox[to_worker_pb2.AttachWorkerResponse], context: Context) -> None:
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


async def _write_to_frontend(
    outbox: Outbox[to_frontend_pb2.AttachFrontendResponse], context: Context
) -> None:
    """The one writer of a frontend's stream: what waits travels in one message, with the newest directory only."""
    protocol: generation_pb2.ProtocolVersions | None = versions.ours()
    while True:
        first, *others = await outbox.take()
        first.MergeFrom(to_frontend_pb2.AttachFrontendResponse(protocol=protocol))
        protocol = None  # the first message alone says it
        for other in others:
            if other.HasField("workers"):
                first.ClearField("workers")
            first.MergeFrom(other)
        await context.write(first)
