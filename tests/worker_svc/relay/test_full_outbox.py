"""A relay's link to a scheduler that takes every hello."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc
from worker_svc.relay.scheduler_link import MAX_OUTBOX, SharedSchedulerLink


class Greeter(scheduler_pb2_grpc.SchedulerServiceServicer):
    async def FindLeader(self, request: Any, context: Any) -> scheduler_pb2.FindLeaderResponse:  # noqa: N802
        return scheduler_pb2.FindLeaderResponse(is_leader=True)

    async def AttachWorkers(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield scheduler_pb2.AttachWorkersResponse()
        async for _ in requests:
            pass


async def test_a_link_that_got_too_much_to_send_comes_back() -> None:
    server = grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(Greeter(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    attached: asyncio.Queue[bool] = asyncio.Queue()
    relay = SharedSchedulerLink(f"127.0.0.1:{port}", "r", 0.001, 60, attached.put)
    running = asyncio.create_task(relay.run())
    try:
        async with asyncio.timeout(60):
            assert await attached.get()
            link = relay.open(b"")
            for _ in range(MAX_OUTBOX):
                relay.send(link, b"")
            assert [await attached.get(), await attached.get()] == [False, True]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(0)
