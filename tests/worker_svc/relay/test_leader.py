"""The relay stands for the scheduler that leads while that speaks to it (docs/liveness.md, A4 and H4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc
from worker_svc.relay.scheduler_link import SharedSchedulerLink


class SilentScheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Takes the relay's hello, and says nothing more."""

    async def FindLeader(self, request: Any, context: Any) -> scheduler_pb2.FindLeaderResponse:  # noqa: N802
        return scheduler_pb2.FindLeaderResponse(is_leader=True, scheduler_epoch=7, scheduler_instance="s")

    async def AttachWorkers(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield scheduler_pb2.AttachWorkersResponse()
        async for _ in requests:
            pass


async def test_a_scheduler_that_is_silent_while_there_are_workers_is_left() -> None:
    server = grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(SilentScheduler(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    attached: asyncio.Queue[bool] = asyncio.Queue()
    relay = SharedSchedulerLink(f"127.0.0.1:{port}", "r", 0.0, 0.75, attached.put)
    assert not relay.leader().is_leader
    running = asyncio.create_task(relay.run())
    try:
        async with asyncio.timeout(60):
            assert await attached.get()
            answer = relay.leader()
            assert (answer.is_leader, answer.scheduler_epoch, answer.scheduler_instance) == (True, 7, "s")
            await asyncio.sleep(1.5)
            assert attached.empty(), "it speaks to workers, and there are none"
            link = relay.open(b"")
            assert not await attached.get()
            assert link.ended.done(), "its worker goes on alone"
            assert not relay.leader().is_leader or await attached.get()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(0)
