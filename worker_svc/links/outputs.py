"""The streams of frontends: what the logs (worker_svc/links/output_logs.py) want to be written, written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc

from signalbox.errors import InvalidRequestError, SignalboxError
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.links.readable import first_message
from signalbox.links.rpc import abort
from signalbox.links.tls.guard import names_of
from signalbox.links.tls.owners import Owners
from signalbox.links.versions import check_versions
from signalbox.v1 import worker_pb2, worker_pb2_grpc
from worker_svc.core.step import FrontendOutput
from worker_svc.links.output_logs import MESSAGE_BYTES, NOBODY, Obeyed, OutputLogs, OutputStream

Context = grpc.aio.ServicerContext[Any, Any]
FLUSH_POLL_S = 0.01


class Outputs:
    """The logs of a worker, by the clock of the event loop that owns them."""

    def __init__(self, worker_instance: str, max_bytes: int, timeout_s: float) -> None:
        """max_bytes, timeout_s: limits of each frontend's log, as `OutputLogs` has them."""
        self.worker_instance = worker_instance
        self._logs = OutputLogs(worker_instance, max_bytes, timeout_s)
        self.on_open: Callable[[str], None] = lambda instance: None
        """Hears of a frontend that has opened a stream."""
        self.on_orders: Callable[[str, Sequence[worker_pb2.AttemptOperation]], None] = (
            lambda instance, orders: None
        )
        """Hears what a frontend wants while it has no scheduler."""

    def append(self, outputs: list[FrontendOutput]) -> None:
        """Adds what one step made."""
        self._logs.append(outputs, _now())

    def obey(self, term: int, instance: str) -> None:
        """Tells all frontends whom the worker obeys; nobody: the term is 0."""
        self._logs.obey(Obeyed(term, instance) if term else NOBODY)

    def unread_of(self, instance: str, attempt: int) -> list[worker_pb2.OutputBatch]:
        """What a frontend has not acknowledged of one of its attempts, oldest first."""
        return self._logs.unread_of(instance, attempt)

    def repeat(self, instance: str, batches: Sequence[worker_pb2.OutputBatch], leg: int) -> None:
        """Adds what a frontend has not acknowledged to the worker that had a request before."""
        self._logs.repeat(instance, batches, leg, _now())

    def take_lost(self) -> list[str]:
        """Frontends that read nothing for too long or leave too much unread; their logs are forgotten."""
        return self._logs.take_lost(_now())

    def is_open(self, instance: str) -> bool:
        """The frontend has a stream."""
        return self._logs.is_open(instance)

    def unread(self) -> tuple[int, int, int]:
        """(logs, messages, bytes) that frontends have not acknowledged."""
        return self._logs.unread()

    @property
    def is_being_read(self) -> bool:
        """Some frontend has a stream, and something unread."""
        return self._logs.is_being_read

    async def flush(self, timeout_s: float) -> None:
        """Waits until frontends with a stream have read everything, for `timeout_s` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._logs.is_being_read:
                    await asyncio.sleep(FLUSH_POLL_S)

    async def stream(
        self,
        hello: worker_pb2.StreamOutputsRequest,
        requests: AsyncIterator[worker_pb2.StreamOutputsRequest],
        context: Context,
    ) -> None:
        """Sends the log of a frontend until the stream ends or the frontend opens another."""
        ready = asyncio.Event()
        stream = self._logs.open(hello, _now(), ready.set)
        self.on_open(hello.frontend_instance)
        self._take_orders(stream, hello)
        reader = asyncio.create_task(self._read(stream, requests))
        beats = asyncio.create_task(_beat(stream))
        try:
            while True:
                await ready.wait()
                ready.clear()
                while not reader.done() and self._logs.is_newest(stream):
                    message = self._logs.next_message(stream)
                    if message is None:
                        break
                    await context.write(message)
                else:
                    break
        finally:
            reader.cancel()
            beats.cancel()
            self._logs.close(stream, _now())

    async def _read(
        self, stream: OutputStream, requests: AsyncIterator[worker_pb2.StreamOutputsRequest]
    ) -> None:
        try:
            async for message in requests:
                self._logs.acknowledge(stream, message)
                self._take_orders(stream, message)
        finally:
            stream.wake()

    def _take_orders(self, stream: OutputStream, message: worker_pb2.StreamOutputsRequest) -> None:
        if message.operations:
            self.on_orders(stream.frontend.instance, message.operations)


async def _beat(stream: OutputStream) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        stream.beat()


def _now() -> float:
    return asyncio.get_running_loop().time()


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """Serves signalbox.v1.WorkerService: the streams of outputs."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._owners = Owners()

    async def StreamOutputs(  # noqa: N802
        self, requests: AsyncIterator[worker_pb2.StreamOutputsRequest], context: Context
    ) -> None:
        """The life of one frontend's stream."""
        try:
            first = await first_message(requests)
            if first is None or not first.frontend_instance:
                message = "the first message must name the frontend"
                raise InvalidRequestError(message, field="frontend_instance")
            self._owners.check(first.frontend_instance, names_of(context))
            check_versions(first.protocol, f"frontend {first.frontend_instance[:64]!r}", "this worker")
        except SignalboxError as error:
            await abort(context, error)
        await self._outputs.stream(first, requests, context)


__all__ = ["MESSAGE_BYTES", "Outputs", "WorkerServicer"]
