"""A frontend that does not read: the scheduler hears of it, also when it was away at the time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from signalbox.links import rpc
from signalbox.v1 import from_worker_pb2, to_worker_pb2, worker_pb2, worker_pb2_grpc
from tests.worker_svc.test_worker_process import (
    ScriptedScheduler,
    first_step,
    new_request,
    worker_process,
)

TIMEOUT_S = 0.3


async def put_a_request(scheduler: ScriptedScheduler) -> None:
    """Of the frontend f, which reads nothing; it is not at its end after the first step."""
    assert not (await scheduler.hellos.get()).HasField("snapshot")
    request = new_request(0)
    request.max_tokens = 20
    message = to_worker_pb2.AttachWorkerResponse(new_requests=[request], steps=[first_step(0)])
    scheduler.messages.put_nowait(message)
    await scheduler.reports.get()
    scheduler.last_step_id = 1


async def next_hello(scheduler: ScriptedScheduler) -> from_worker_pb2.WorkerHello:
    """The stream ends, and the worker comes back."""
    scheduler.messages.put_nowait(None)
    return await scheduler.hellos.get()


@asynccontextmanager
async def frontend_stream(address: str) -> AsyncIterator[None]:
    """The frontend f reads."""
    async with rpc.channel(address) as channel:
        stream = worker_pb2_grpc.WorkerServiceStub(channel).StreamOutputs()
        await stream.write(worker_pb2.StreamOutputsRequest(frontend_instance="f"))
        await stream.read()
        yield
        stream.cancel()


async def assert_nobody_is_named(scheduler: ScriptedScheduler) -> None:
    """With the last hello; a report that came behind it is there."""
    await run_a_step(scheduler)
    assert scheduler.events.empty()
    scheduler.messages.put_nowait(None)


async def run_a_step(scheduler: ScriptedScheduler) -> None:
    scheduler.last_step_id += 1
    step = to_worker_pb2.SchedulerOutput(step_id=scheduler.last_step_id, scheduler_epoch=1)
    scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(steps=[step]))
    await scheduler.reports.get()


async def lost(scheduler: ScriptedScheduler) -> str:
    return (await scheduler.events.get()).frontend_lost.frontend_instance


@pytest.mark.slow
async def test_a_scheduler_that_was_away_hears_which_frontends_were_lost() -> None:
    """R8."""
    options = ("--runner=sim", f"--frontend-timeout-s={TIMEOUT_S}")
    async with asyncio.timeout(60), worker_process(*options) as (scheduler, _):
        await put_a_request(scheduler)
        scheduler.is_away = True
        scheduler.messages.put_nowait(None)
        await asyncio.sleep(TIMEOUT_S + 1)
        scheduler.is_away = False
        assert len((await scheduler.hellos.get()).snapshot.slots) == 1
        assert await lost(scheduler) == "f"

        await next_hello(scheduler)
        assert await lost(scheduler) == "f", "it may have been lost with the stream"

        await run_a_step(scheduler)
        await next_hello(scheduler)
        await assert_nobody_is_named(scheduler)


async def test_a_frontend_that_came_back_meanwhile_is_named_once() -> None:
    """What was dropped is missing in its outputs; the scheduler lets its requests start anew."""
    options = ("--runner=sim", f"--frontend-timeout-s={TIMEOUT_S}")
    async with asyncio.timeout(60), worker_process(*options) as (scheduler, address):
        await put_a_request(scheduler)
        scheduler.is_away = True
        scheduler.messages.put_nowait(None)
        await asyncio.sleep(TIMEOUT_S + 1)
        async with frontend_stream(address):
            scheduler.is_away = False
            await scheduler.hellos.get()
            assert await lost(scheduler) == "f"
            await run_a_step(scheduler)
            await next_hello(scheduler)
            await assert_nobody_is_named(scheduler)


async def test_an_attached_scheduler_hears_of_it_at_once_and_once() -> None:
    options = ("--runner=sim", f"--frontend-timeout-s={TIMEOUT_S}")
    async with asyncio.timeout(60), worker_process(*options) as (scheduler, address):
        await put_a_request(scheduler)
        assert await lost(scheduler) == "f"
        async with frontend_stream(address):
            await next_hello(scheduler)
            await assert_nobody_is_named(scheduler)
