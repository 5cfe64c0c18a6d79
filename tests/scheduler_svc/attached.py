"""A scheduler behind a real server, and the streams of workers, relays and frontends that a test speaks by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from scheduler_svc.admin.servicer import AdminServicer
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.servicer import SchedulerServicer
from scheduler_svc.step_loop import StepLoop
from signalbox.links import rpc
from signalbox.v1 import (
    admin_pb2_grpc,
    from_frontend_pb2,
    from_worker_pb2,
    generation_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
    shared_pb2,
    to_worker_pb2,
)

MODEL = "m"
PROMPT_TOKENS = 6


@asynccontextmanager
async def serve(
    servicer: type[SchedulerServicer] = SchedulerServicer,
    port: int = 0,
    admin: type[AdminServicer] = AdminServicer,
) -> AsyncIterator[tuple[StepLoop, str]]:
    """A scheduler with one step in flight; its loop and its address."""
    clock = asyncio.get_running_loop()
    core = Scheduler(
        SchedulerConfig(max_inflight_steps=1, max_num_batched_tokens=64), epoch=7, now=clock.time()
    )
    loop = StepLoop(core, clock.time, clock.call_at, wall_clock=lambda: 1e9)
    server = rpc.Server(["signalbox.v1.SchedulerService", "signalbox.v1.AdminService"])
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer(loop), server.grpc)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin(loop), server.grpc)
    port = await server.start(f"127.0.0.1:{port}")
    try:
        yield loop, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def dial_admin(address: str) -> AsyncIterator[Any]:
    """A stub for what operators ask."""
    async with rpc.channel(address) as channel:
        yield admin_pb2_grpc.AdminServiceStub(channel)


@asynccontextmanager
async def dial(address: str) -> AsyncIterator[Any]:
    """A stub for the scheduler's service."""
    async with rpc.channel(address) as channel:
        yield scheduler_pb2_grpc.SchedulerServiceStub(channel)


def make_hello(worker_id: str, **fields: Any) -> from_worker_pb2.AttachWorkerRequest:
    """The first message of a worker."""
    values: dict[str, Any] = {
        "worker_id": worker_id,
        "worker_instance": f"{worker_id}-1",
        "address": "127.0.0.1:1",
        "model": shared_pb2.ModelEntry(model=MODEL, max_model_len=256, block_size=4),
        "num_slots": 8,
        "num_blocks": 64,
        "max_num_batched_tokens": 256,
        "kinds": [generation_pb2.REQUEST_KIND_GENERATE],
    } | fields
    return from_worker_pb2.AttachWorkerRequest(hello=from_worker_pb2.WorkerHello(**values))


def make_report(step_id: int, **fields: Any) -> from_worker_pb2.AttachWorkerRequest:
    """Of one step."""
    return from_worker_pb2.AttachWorkerRequest(
        outputs=[from_worker_pb2.ModelRunnerOutput(step_id=step_id, **fields)]
    )


def make_event() -> from_worker_pb2.AttachWorkerRequest:
    """The worker is alive."""
    return from_worker_pb2.AttachWorkerRequest(
        events=[from_worker_pb2.WorkerEvent(alive=from_worker_pb2.Alive())]
    )


async def submit(frontend: Any, *names: str) -> None:
    """Requests in one message."""
    operations = []
    for number, name in enumerate(names):
        meta = from_frontend_pb2.RequestMeta(
            model=MODEL, num_prompt_tokens=PROMPT_TOKENS, max_tokens=8, arrival_ms=number, hash_block_size=4
        )
        ref = shared_pb2.RequestRef(request_id=name, attempt=1)
        request = from_frontend_pb2.SubmitRequest(ref=ref, meta=meta, payload=name.encode())
        operations.append(from_frontend_pb2.FrontendOperation(submit=request))
    await frontend.write(from_frontend_pb2.AttachFrontendRequest(operations=operations))


async def attach_frontend(stub: Any) -> Any:
    """The stream of a frontend that has said hello."""
    stream = stub.AttachFrontend()
    hello = from_frontend_pb2.FrontendHello(frontend_instance="f")
    await stream.write(from_frontend_pb2.AttachFrontendRequest(hello=hello))
    await stream.read()
    return stream


class RelayStream:
    """A relay's stream in the hands of a test."""

    def __init__(self, stub: Any) -> None:
        self.stream = stub.AttachWorkers()
        self.messages: list[list[int]] = []
        """Links of the entries of each message that came."""
        self._entries: list[scheduler_pb2.RelayedResponse] = []

    async def attach(self, **hello: Any) -> RelayStream:
        """Says hello and waits until it is taken."""
        relay = scheduler_pb2.RelayHello(**{"relay_id": "r"} | hello)
        await self.stream.write(scheduler_pb2.AttachWorkersRequest(hello=relay))
        await self.stream.read()
        return self

    async def send(self, *entries: tuple[int, from_worker_pb2.AttachWorkerRequest | bytes | None]) -> None:
        """(link, what its worker sends) in one message; None: its stream ended."""
        message = scheduler_pb2.AttachWorkersRequest()
        for link, content in entries:
            entry = message.entries.add(link=link)
            if content is None:
                entry.closed.SetInParent()
            else:
                entry.message = content if isinstance(content, bytes) else content.SerializeToString()
        await self.stream.write(message)

    async def next_of(self, link: int) -> to_worker_pb2.AttachWorkerResponse | scheduler_pb2.LinkClosed:
        """The next message for that link, or its end."""
        while True:
            for entry in self._entries:
                if entry.link == link:
                    self._entries.remove(entry)
                    closed = entry.WhichOneof("entry") == "closed"
                    return (
                        entry.closed
                        if closed
                        else to_worker_pb2.AttachWorkerResponse.FromString(entry.message)
                    )
            async with asyncio.timeout(10):
                message = await self.stream.read()
            self.messages.append([entry.link for entry in message.entries])
            self._entries += message.entries

    async def step_of(self, link: int) -> to_worker_pb2.AttachWorkerResponse:
        """The next message for that link that has a step; the link must not end."""
        while True:
            message = await self.next_of(link)
            assert isinstance(message, to_worker_pb2.AttachWorkerResponse), message
            if message.steps:
                return message
