"""A stream whose first message does not come is ended by whoever serves it (docs/liveness.md, H6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from signalbox.links import readable, rpc
from signalbox.v1 import transfer_pb2_grpc, worker_pb2_grpc
from tests.scheduler_svc.attached import serve
from worker_svc.links.outputs import Outputs, WorkerServicer
from worker_svc.relay.scheduler_link import SharedSchedulerLink
from worker_svc.relay.servicer import RelayServicer
from worker_svc.transfer.control.servicer import TransferServicer


@asynccontextmanager
async def worker_and_relay() -> AsyncIterator[str]:
    """Where a server listens that has a worker's services, and a relay's."""

    async def attached(is_attached: bool) -> None:
        pass

    server = rpc.Server(["signalbox.v1.WorkerService"])
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(
        WorkerServicer(Outputs("w", 1 << 20, 10.0)), server.grpc
    )
    transfer_pb2_grpc.add_TransferServiceServicer_to_server(TransferServicer(), server.grpc)
    relay = RelayServicer(SharedSchedulerLink("127.0.0.1:1", "r", 0.001, 60, attached))
    server.grpc.add_generic_rpc_handlers((relay.handler(),))
    port = await server.start("127.0.0.1:0")
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def ends_with(address: str, method: str) -> grpc.StatusCode:
    """How a stream ends on which nothing is said."""
    async with rpc.channel(address) as channel, asyncio.timeout(20):
        call = channel.stream_stream(f"/signalbox.v1.{method}")()
        with pytest.raises(grpc.aio.AioRpcError) as end:
            await call.read()
        await asyncio.sleep(
            0.1
        )  # what the server still had to read ends in this loop, not in the next test's
    return end.value.code()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readable, "FIRST_MESSAGE_S", 0.1)


@pytest.mark.parametrize("method", ["AttachWorker", "AttachWorkers", "AttachFrontend"])
async def test_a_scheduler_waits_for_no_hello_for_ever(method: str) -> None:
    async with serve() as (_, address):
        assert await ends_with(address, f"SchedulerService/{method}") is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "method", ["WorkerService/StreamOutputs", "TransferService/Pull", "SchedulerService/AttachWorker"]
)
async def test_nor_do_a_worker_and_a_relay(method: str) -> None:
    async with worker_and_relay() as address:
        assert await ends_with(address, method) is grpc.StatusCode.DEADLINE_EXCEEDED
