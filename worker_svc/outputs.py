"""Tokens on their way to frontends: one log per frontend process, which outlives streams."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc

from signalbox.errors import InvalidRequestError
from signalbox.rpc import abort
from signalbox.v1 import worker_pb2, worker_pb2_grpc
from worker_svc import delta
from worker_svc.core.outbound_log import OutboundLog
from worker_svc.core.step import FrontendOutput

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
MESSAGE_BYTES = 1 << 20
"""Batches travel together up to this size: prompt log-probabilities can make a batch of megabytes."""


@dataclass
class _Stream:
    """One stream of a frontend."""

    sent: int
    """Number of the newest message that was written to it."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has something to do."""


@dataclass
class _Frontend:
    """A frontend's log and its stream."""

    log: OutboundLog
    log_number: int
    stream: _Stream | None = None
    """The newest; an older one ends when it sees that it is not."""
    closed_at: float = field(default_factory=time.monotonic)

    def wake(self) -> None:
        """The stream, if there is one, has something to do."""
        if self.stream is not None:
            self.stream.ready.set()


class Outputs:
    """All logs. Owned by the event loop."""

    def __init__(self, worker_instance: str, max_bytes: int, timeout_s: float) -> None:
        self.worker_instance = worker_instance
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._frontends: dict[str, _Frontend] = {}
        self._num_logs = 0

    def append(self, outputs: list[FrontendOutput]) -> None:
        """Adds what one step made."""
        now = time.time_ns() // 1000
        for output in outputs:
            frontend = self._of(output.frontend_instance)
            batch = delta.build_outputs(output, frontend.log.next_sequence, now)
            frontend.log.append(batch.SerializeToString())
            frontend.wake()

    def take_lost(self) -> list[str]:
        """Frontends that read nothing for too long or leave too much unread; their logs are forgotten."""
        now = time.monotonic()
        lost = [
            instance
            for instance, frontend in self._frontends.items()
            if frontend.log.is_full
            or (
                frontend.stream is None
                and now - frontend.closed_at > self._timeout_s
                and not frontend.log.is_empty
            )
        ]
        for instance in lost:
            self._frontends.pop(instance).wake()
        idle = [
            instance
            for instance, frontend in self._frontends.items()
            if frontend.stream is None
            and frontend.log.is_empty
            and now - frontend.closed_at > self._timeout_s
        ]
        for instance in idle:
            del self._frontends[instance]
        return lost

    def is_open(self, instance: str) -> bool:
        """The frontend has a stream."""
        frontend = self._frontends.get(instance)
        return frontend is not None and frontend.stream is not None

    def unread(self) -> tuple[int, int, int]:
        """(logs, messages, bytes) that frontends have not acknowledged."""
        logs = [frontend.log for frontend in self._frontends.values()]
        return len(logs), sum(map(len, logs)), sum(log.num_bytes for log in logs)

    def _of(self, instance: str) -> _Frontend:
        frontend = self._frontends.get(instance)
        if frontend is None:
            self._num_logs += 1
            frontend = self._frontends[instance] = _Frontend(OutboundLog(self._max_bytes), self._num_logs)
        return frontend

    # -- one stream --

    async def stream(
        self,
        hello: worker_pb2.StreamOutputsRequest,
        requests: AsyncIterator[worker_pb2.StreamOutputsRequest],
        context: Context,
    ) -> None:
        """Sends the log of a frontend until the stream ends or the frontend opens another."""
        instance = hello.frontend_instance
        frontend = self._of(instance)
        known = (hello.worker_instance, hello.log_number) == (self.worker_instance, frontend.log_number)
        stream = _Stream(sent=hello.acknowledged if known else 0)
        frontend.log.acknowledge(stream.sent)
        frontend.wake()  # the older stream, which ends
        frontend.stream = stream
        frontend.wake()

        def is_newest() -> bool:
            return frontend.stream is stream and self._frontends.get(instance) is frontend

        reader = asyncio.create_task(_read_acknowledgements(frontend.log, stream, requests))
        try:
            await context.write(
                worker_pb2.StreamOutputsResponse(
                    worker_instance=self.worker_instance, log_number=frontend.log_number
                )
            )
            while True:
                await stream.ready.wait()
                if reader.done() or not is_newest():
                    break
                await _send(frontend.log, stream, context)
        finally:
            reader.cancel()
            if frontend.stream is stream:
                frontend.stream, frontend.closed_at = None, time.monotonic()


async def _send(log: OutboundLog, stream: _Stream, context: Context) -> None:
    """Sends a message of what the stream has not sent, if there is any."""
    stream.ready.clear()
    batches = _first_batches(log.after(stream.sent))
    if batches:
        stream.sent = batches[-1].sequence
        if stream.sent < log.next_sequence - 1:
            stream.ready.set()
        await context.write(worker_pb2.StreamOutputsResponse(batches=batches))


def _first_batches(log: Iterable[tuple[int, bytes]]) -> list[worker_pb2.OutputBatch]:
    """The first one, and as many more as make a message of MESSAGE_BYTES."""
    batches: list[worker_pb2.OutputBatch] = []
    num_bytes = 0
    for _, raw in log:
        num_bytes += len(raw)
        if batches and num_bytes > MESSAGE_BYTES:
            break
        batches.append(worker_pb2.OutputBatch.FromString(raw))
    return batches


async def _read_acknowledgements(
    log: OutboundLog, stream: _Stream, requests: AsyncIterator[worker_pb2.StreamOutputsRequest]
) -> None:
    try:
        async for message in requests:
            log.acknowledge(message.acknowledged)
    finally:
        stream.ready.set()


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """signalbox.v1.WorkerService."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    async def StreamOutputs(  # noqa: N802
        self, requests: AsyncIterator[worker_pb2.StreamOutputsRequest], context: Context
    ) -> None:
        """The life of one frontend's stream."""
        first = await anext(aiter(requests), None)
        if first is None or not first.frontend_instance:
            message = "the first message must name the frontend"
            await abort(context, InvalidRequestError(message, field="frontend_instance"))
        await self._outputs.stream(first, requests, context)
