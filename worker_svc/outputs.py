"""Tokens on their way to frontends: one log per frontend process, which outlives streams."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
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


@dataclass
class _Frontend:
    """A frontend's log and its stream."""

    log: OutboundLog
    log_number: int
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the stream has something to do."""
    stream: int = 0
    """Number of the newest stream; an older one ends when it sees that."""
    is_open: bool = False
    closed_at: float = field(default_factory=time.monotonic)
    sent: int = 0


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
            frontend.ready.set()

    def take_lost(self) -> list[str]:
        """Frontends that read nothing for too long or leave too much unread; their logs are forgotten."""
        now = time.monotonic()
        lost = [
            instance
            for instance, frontend in self._frontends.items()
            if frontend.log.is_full
            or (
                not frontend.is_open
                and now - frontend.closed_at > self._timeout_s
                and not frontend.log.is_empty
            )
        ]
        for instance in lost:
            self._frontends.pop(instance).ready.set()
        idle = [
            instance
            for instance, frontend in self._frontends.items()
            if not frontend.is_open and frontend.log.is_empty and now - frontend.closed_at > self._timeout_s
        ]
        for instance in idle:
            del self._frontends[instance]
        return lost

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
        frontend.stream += 1
        number = frontend.stream
        known = (hello.worker_instance, hello.log_number) == (self.worker_instance, frontend.log_number)
        frontend.sent = hello.acknowledged if known else 0
        frontend.log.acknowledge(frontend.sent)
        frontend.is_open = True
        frontend.ready.set()
        reader = asyncio.create_task(_read_acknowledgements(frontend, requests))
        try:
            await context.write(
                worker_pb2.StreamOutputsResponse(
                    worker_instance=self.worker_instance, log_number=frontend.log_number
                )
            )
            while (
                not reader.done() and frontend.stream == number and self._frontends.get(instance) is frontend
            ):
                await self._send(frontend, context)
        finally:
            reader.cancel()
            if frontend.stream == number:
                frontend.is_open, frontend.closed_at = False, time.monotonic()

    async def _send(self, frontend: _Frontend, context: Context) -> None:
        await frontend.ready.wait()
        frontend.ready.clear()
        batches = list(frontend.log.after(frontend.sent))
        if batches:
            frontend.sent = batches[-1][0]
            message = worker_pb2.StreamOutputsResponse(
                batches=[worker_pb2.OutputBatch.FromString(raw) for _, raw in batches]
            )
            await context.write(message)


async def _read_acknowledgements(
    frontend: _Frontend, requests: AsyncIterator[worker_pb2.StreamOutputsRequest]
) -> None:
    try:
        async for message in requests:
            frontend.log.acknowledge(message.acknowledged)
    finally:
        frontend.ready.set()


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
