"""Whoever reaches the scheduler's port and calls what is for operators, or for probes: nobody else notices."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack

import grpc
import psutil
import pytest
from google.protobuf import message_factory
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from scheduler_svc.admin.servicer import AdminServicer
from signalbox.v1 import admin_pb2
from tests.contract.odd_calls import call_once, methods_of
from tests.contract.odd_messages import OddMessages
from tests.scheduler_svc.attached import dial_admin, serve

SCALE = int(os.environ.get("SIGNALBOX_FUZZ", "1"))
CALLS = 60 * SCALE
WATCHERS = 50
MOST_GROWTH_BYTES = 100 << 20
METHODS = methods_of(admin_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
ANSWERS = (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)
KNOWN = {
    "worker_id": ("w",),
    "service": ("", "signalbox.v1.AdminService", "liveness", "\x00", "s" * 70_000),
    "request_id": ("r", "r" * 70_000),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.timeout(60 * SCALE)
async def test_odd_calls_disturb_nobody(name: str, caplog: pytest.LogCaptureFixture) -> None:
    method, made = METHODS[name], message_factory.GetMessageClass(METHODS[name].input_type)
    odd = OddMessages(name, KNOWN)
    async with serve() as (_, address), dial_admin(address) as admin:
        before, answers = psutil.Process().memory_info().rss, 0
        async with grpc.aio.insecure_channel(address) as channel:
            for _ in range(CALLS):
                messages = [odd.bytes_of(odd.make(made())) for _ in range(4)]
                garbage = bytes(odd.rng.randrange(256) for _ in range(odd.rng.randrange(64)))
                said = odd.rng.choice((messages, [garbage]))
                answers += await call_once(channel, name, method, said) in ANSWERS
        assert answers >= CALLS // 4, "what nobody hears attacks nothing"
        assert (await admin.GetStatus(admin_pb2.GetStatusRequest(), timeout=5)).scheduler_epoch == 7
        assert psutil.Process().memory_info().rss - before < MOST_GROWTH_BYTES
    stacks = [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    assert not stacks, [record.getMessage() for record in stacks]


async def test_watchers_that_never_read_are_forgotten_and_hold_up_nobody() -> None:
    made: list[AdminServicer] = []

    class Noted(AdminServicer):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(self)

    async with serve(admin=Noted) as (_, address), dial_admin(address) as admin:
        async with AsyncExitStack() as stack:
            for _ in range(WATCHERS):
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
                call = channel.unary_stream("/signalbox.v1.AdminService/WatchBoard")
                await call(b"").wait_for_connection()  # and nothing is read of it
            good = admin.WatchBoard(admin_pb2.WatchBoardRequest())
            async with asyncio.timeout(20):
                for _ in range(3):
                    assert await good.read() is not grpc.aio.EOF
                while made[0]._board._num_watchers < WATCHERS + 1:
                    await asyncio.sleep(0.02)
            good.cancel()
        async with asyncio.timeout(20):
            while made[0]._board._num_watchers:
                await asyncio.sleep(0.02)
        assert made[0]._board._task is None, "nobody watches, and nothing is made"
