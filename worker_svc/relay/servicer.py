"""The relay's side of its workers' streams. What they carry is not read here, so it is not unpacked either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from signalbox.errors import DeadlineExceededError, InvalidRequestError, SignalboxError, UnavailableError
from signalbox.links import rpc
from signalbox.links.outbox import MAX_BATCH_BYTES, split
from signalbox.links.readable import first_message
from signalbox.links.tls.guard import instance_in
from signalbox.links.tls.owners import check_worker
from signalbox.links.tls.roles import Role
from signalbox.v1 import from_worker_pb2, scheduler_pb2
from worker_svc.relay.scheduler_link import SharedSchedulerLink
from worker_svc.relay.worker_link import WorkerLink

SERVICE = "signalbox.v1.SchedulerService"
Context = grpc.aio.ServicerContext[Any, Any]


class RelayServicer:
    """AttachWorker of signalbox.v1.SchedulerService over the relay's link, FindLeader, ReportWorkerExit, and nothing
    else of it."""

    def __init__(self, scheduler: SharedSchedulerLink) -> None:
        self._scheduler = scheduler

    def handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """The handlers for a server. Without (de)serializers, messages are the bytes of the wire."""
        attach = grpc.stream_stream_rpc_method_handler(self._attach_worker)
        find = grpc.unary_unary_rpc_method_handler(self._find_leader)
        report = grpc.unary_unary_rpc_method_handler(self._report_worker_exit)
        methods = {"AttachWorker": attach, "FindLeader": find, "ReportWorkerExit": report}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _find_leader(self, request: bytes, context: Context) -> bytes:
        """Answers that the scheduler to which the relay has a stream leads: to workers, the relay is that."""
        return self._scheduler.leader().SerializeToString()

    async def _report_worker_exit(self, request: bytes, context: Context) -> bytes:
        """What the guardian of a worker says goes to the scheduler that leads; its answer comes back."""
        own = instance_in(context, Role.WORKER)
        if own is not None:
            await _check(context, own, _named_in_report, request, "worker")
        try:
            return await self._scheduler.call(f"/{SERVICE}/ReportWorkerExit", request)
        except UnavailableError as error:
            await rpc.abort(context, error)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")

    async def _attach_worker(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """The life of one worker's stream."""
        try:
            first = await first_message(requests)
        except DeadlineExceededError as error:
            await rpc.abort(context, error)
        if first is None:
            return  # the worker changed its mind
        own = instance_in(context, Role.WORKER)
        if own is not None:  # only then is it worth to be read
            await _check(context, own, _named_in_hello, first, "hello")
        try:
            link = self._scheduler.open(first)
        except UnavailableError as error:
            await rpc.abort(context, error)
        tasks = [asyncio.create_task(work) for work in (self._read(requests, link), _write(link, context))]
        either: list[asyncio.Future[Any]] = [*tasks, link.ended]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._scheduler.close(link)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        reason = link.ended.result() if link.ended.done() else None
        if reason is not None:
            await rpc.abort(context, reason)

    async def _read(self, requests: AsyncIterator[bytes], link: WorkerLink) -> None:
        async for message in requests:
            self._scheduler.send(link, message)


def _named_in_hello(first: bytes) -> str:
    return from_worker_pb2.AttachWorkerRequest.FromString(first).hello.worker_id


def _named_in_report(request: bytes) -> str:
    return scheduler_pb2.ReportWorkerExitRequest.FromString(request).worker.worker_id


async def _check(
    context: Context, own: str, named_in: Callable[[bytes], str], message: bytes, field: str
) -> None:
    """Refuses a message that names another worker than the caller's certificate. own: that of the certificate."""
    try:
        check_worker(own, named_in(message), field=f"{field}.worker_id")
    except SignalboxError as error:
        await rpc.abort(context, error)
    except DecodeError:
        await rpc.abort(context, InvalidRequestError(f"no {field}", field=field))


async def _write(link: WorkerLink, context: Context) -> None:
    """The one writer of the stream: what waits travels in one message."""
    while True:
        for part in split(await link.outbox.take(), len, MAX_BATCH_BYTES):
            # Serialized messages one behind the other are their merger (protobuf.dev, "Last One Wins").
            await context.write(b"".join(part))
