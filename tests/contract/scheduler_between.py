"""A scheduler that means harm: it stands between a real one and its ring, and says odd things beside what that says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from signalbox.v1 import to_worker_pb2

SERVICE = "signalbox.v1.SchedulerService"
STREAMS = ("AttachWorker", "AttachWorkers", "AttachFrontend")
UNARY = ("FindLeader", "ReportWorkerExit")
Tamper = Callable[[str, bytes, int], list[bytes] | None]
"""Gets the method, what the real scheduler says, and how many messages came by this stream before; returns what is said
instead, None: nothing, and the stream ends."""
LARGE = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]


def honest(method: str, message: bytes, number: int) -> list[bytes]:
    """Nothing is changed."""
    return [message]


class SchedulerBetween:
    """Passes on what the real scheduler says, tampered with."""

    def __init__(self, real: str) -> None:
        self.tamper: Tamper = honest
        self.num_streams = dict.fromkeys(STREAMS, 0)
        self._channel = grpc.aio.insecure_channel(real, options=LARGE)

    @asynccontextmanager
    async def serve(self, address: str) -> AsyncIterator[None]:
        """Listens at `address` until the block ends."""
        server = grpc.aio.server(options=LARGE)
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(self._stream_of(name)) for name in STREAMS
        } | {name: grpc.unary_unary_rpc_method_handler(self._unary_of(name)) for name in UNARY}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        server.add_insecure_port(address)
        await server.start()
        try:
            yield
        finally:
            await server.stop(0)
            await self._channel.close()

    def _unary_of(self, name: str) -> Any:
        async def call(request: bytes, context: Any) -> bytes:
            try:
                answer: bytes = await self._channel.unary_unary(f"/{SERVICE}/{name}")(request, timeout=2)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
            return answer

        return call

    def _stream_of(self, name: str) -> Any:
        async def stream(requests: AsyncIterator[bytes], context: Any) -> None:
            self.num_streams[name] += 1
            real = self._channel.stream_stream(f"/{SERVICE}/{name}")()
            upward = asyncio.create_task(self._pass_up(requests, real))
            number = 0
            try:
                while (message := await real.read()) is not grpc.aio.EOF:
                    said = self.tamper(name, message, number)
                    if said is None:
                        return
                    for each in said:
                        await context.write(each)
                    number += 1
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", error.trailing_metadata())
            finally:
                upward.cancel()
                real.cancel()

        return stream

    async def _pass_up(self, requests: AsyncIterator[bytes], real: Any) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async for message in requests:
                await real.write(message)
            await real.done_writing()


def greeted_term(message: bytes) -> tuple[int, int]:
    """Term and id of the last step that a message to a worker names; 0: none."""
    said = to_worker_pb2.AttachWorkerResponse.FromString(message)
    if said.steps:
        return said.steps[-1].scheduler_epoch, said.steps[-1].step_id
    return said.scheduler_epoch, 0
