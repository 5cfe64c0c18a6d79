"""Bytes that are no message: refused by the name of the call, of any kind, and met by whoever reads answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import pytest

from signalbox.links import rpc
from signalbox.links.readable import read_message
from signalbox.v1 import admin_pb2, admin_pb2_grpc, worker_pb2, worker_pb2_grpc

GARBAGE = b"\xff\xff\xff"


class Admin(admin_pb2_grpc.AdminServiceServicer):
    """Answers both kinds of calls with one message."""

    async def GetStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        return admin_pb2.GetStatusResponse()

    async def WatchBoard(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield admin_pb2.WatchBoardResponse()


class Worker(worker_pb2_grpc.WorkerServiceServicer):
    """Answers by the context."""

    async def StreamOutputs(self, requests: Any, context: Any) -> None:  # noqa: N802
        async for _ in requests:
            await context.write(worker_pb2.StreamOutputsResponse())


class Generator(worker_pb2_grpc.WorkerServiceServicer):
    """Answers as a generator."""

    async def StreamOutputs(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for _ in requests:
            yield worker_pb2.StreamOutputsResponse()


@pytest.mark.parametrize("worker", [Worker, Generator])
@pytest.mark.parametrize(
    "method", ["AdminService/GetStatus", "AdminService/WatchBoard", "WorkerService/StreamOutputs"]
)
async def test_it_is_refused_and_what_can_be_read_is_answered(
    method: str, worker: type[worker_pb2_grpc.WorkerServiceServicer], caplog: pytest.LogCaptureFixture
) -> None:
    server = rpc.Server(["signalbox.v1.AdminService", "signalbox.v1.WorkerService"])
    admin_pb2_grpc.add_AdminServiceServicer_to_server(Admin(), server.grpc)
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker(), server.grpc)
    port = await server.start("127.0.0.1:0")
    async with rpc.channel(f"127.0.0.1:{port}") as channel:

        async def ask(data: bytes) -> None:
            name = f"/signalbox.v1.{method}"
            if method.endswith("GetStatus"):
                await channel.unary_unary(name)(data)
            elif method.endswith("WatchBoard"):
                assert [answer async for answer in channel.unary_stream(name)(data)] == [b""]
            else:
                call = channel.stream_stream(name)()
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # refused while it is written
                    await call.write(data)
                assert await call.read() == b""
                call.cancel()

        await ask(b"")
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await ask(GARBAGE)
        await ask(b"")
    await server.stop(0)
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.value.details() == f"a message to {method.partition('/')[2]} cannot be parsed"
    assert "Traceback" not in caplog.text


async def test_whoever_reads_answers_hears_of_one_that_is_none() -> None:
    async def stream(requests: Any, context: Any) -> AsyncIterator[bytes]:
        yield b""
        yield GARBAGE

    server = grpc.aio.server()
    handlers = {"StreamOutputs": grpc.stream_stream_rpc_method_handler(stream)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("signalbox.v1.WorkerService", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with rpc.channel(f"127.0.0.1:{port}") as channel:
        call = worker_pb2_grpc.WorkerServiceStub(channel).StreamOutputs()
        assert await read_message(call) == worker_pb2.StreamOutputsResponse()
        with pytest.raises(ConnectionError, match="no message"):
            await read_message(call)
        call.cancel()
    await server.stop(0)
