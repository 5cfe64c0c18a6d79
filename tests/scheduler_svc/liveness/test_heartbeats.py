"""The scheduler's half of heartbeats, its own stalls, and the evidence that comes by other ways than a worker's link
(docs/liveness.md, H1 to H5, E2, E6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.step_loop import StepLoop
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.links.outbox import OutboxFullError
from signalbox.protocol.enums import WorkerHealth
from signalbox.v1 import (
    from_frontend_pb2,
    from_worker_pb2,
    scheduler_pb2,
    shared_pb2,
    to_frontend_pb2,
    to_worker_pb2,
)
from tests.scheduler_svc.attached import (
    RelayStream,
    attach_frontend,
    dial,
    make_event,
    make_hello,
    serve,
    submit,
)
from tests.scheduler_svc.harness import make_request


class Loop:
    """A step loop on a clock that a test turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.core = Scheduler(SchedulerConfig(max_inflight_steps=1), epoch=1, now=0.0)
        self.loop = StepLoop(self.core, lambda: self.now, lambda when, action: None)
        self.sent: dict[str, list[to_worker_pb2.AttachWorkerResponse]] = {}

    def attach(self, name: str) -> None:
        self.loop.attach_worker(make_hello(name).hello, self.sent.setdefault(name, []).append)

    def run(self, until: float, *alive: str) -> None:
        """Ticks as the service does, while some workers speak as often."""
        while self.now + HEARTBEAT_S <= until:
            self.now += HEARTBEAT_S
            for name in alive:
                self.loop.on_worker(name, from_worker_pb2.AttachWorkerRequest())
            self.loop.tick()


def test_every_link_says_something_every_heartbeat() -> None:
    """H1: whoever has just said something else need not say it twice."""
    ring = Loop()
    ring.attach("a")
    frontend = ring.loop.attach_frontend(from_frontend_pb2.FrontendHello(frontend_instance="f"))
    ring.run(1.0, "a")
    assert ring.sent["a"][1:] == [to_worker_pb2.AttachWorkerResponse()] * 4
    assert len(frontend.outbox) == 1 + 4
    ring.core.submit(make_request("x", 6), ring.now)
    ring.run(1.25, "a")
    step, loan = ring.sent["a"][5:]
    assert len(step.steps) == 1 and loan.HasField("loan")


def test_a_link_that_takes_no_heartbeat_is_dropped() -> None:
    ring = Loop()

    def refuse(message: to_worker_pb2.AttachWorkerResponse) -> None:
        if not message.scheduler_epoch:
            raise OutboxFullError("full")

    ring.loop.attach_worker(make_hello("a").hello, refuse)
    ring.run(0.5)
    assert not ring.core.workers["a"].attached


def test_an_empty_message_is_a_sign_of_life() -> None:
    """H2."""
    ring = Loop()
    ring.attach("a")
    ring.attach("b")
    ring.run(3.0, "a")
    healths = {name: worker.health for name, worker in ring.core.workers.items()}
    assert healths == {"a": WorkerHealth.GOOD, "b": WorkerHealth.SILENT}


@pytest.mark.parametrize("stall_s", [0.6, 2.0, 30.0])
def test_a_scheduler_that_stood_still_judges_nobody(stall_s: float) -> None:
    """H3: what has arrived on all links is read first; no worker was silent."""
    ring = Loop()
    ring.attach("a")
    ring.run(2.0, "a")
    for _ in range(5):
        ring.now += stall_s
        ring.loop.tick()  # the timer is first, then what has arrived
        assert ring.core.workers["a"].health is WorkerHealth.GOOD
        ring.run(ring.now + 1.0, "a")
    ring.run(ring.now + 2.0)
    assert ring.core.workers["a"].health is WorkerHealth.SILENT, "whoever stays silent is judged all the same"


def test_at_five_times_the_load_late_ticks_judge_nobody() -> None:
    """H3, E6: ticks come late by anything up to seconds, workers speak on time or as late; nobody is suspected."""
    ring = Loop()
    names = [f"w{number}" for number in range(8)]
    for name in names:
        ring.attach(name)
    for turn in range(400):
        ring.now += HEARTBEAT_S * (1 + turn * 7919 % 13 * 0.9)
        ring.loop.tick()
        for name in names[turn % 3 :: 3] if turn % 2 else names:
            ring.loop.on_worker(name, make_event())
        assert all(worker.health is WorkerHealth.GOOD for worker in ring.core.workers.values()), turn


async def until(condition: Callable[[], bool], loop: StepLoop) -> None:
    """Ticks until it holds."""
    async with asyncio.timeout(10):
        while not condition():
            loop.tick()
            await asyncio.sleep(0.02)


async def next_lost(frontend: Any) -> to_frontend_pb2.RequestLost:
    async with asyncio.timeout(10):
        while not (message := await frontend.read()).lost:
            pass
    lost: to_frontend_pb2.RequestLost = message.lost[0]
    return lost


async def say(frontend: Any, worker: str, state: from_frontend_pb2.WorkerReachState) -> None:
    reach = from_frontend_pb2.WorkerReach(
        worker=shared_pb2.WorkerRef(worker_id=worker, worker_instance=f"{worker}-1"), state=state
    )
    operation = from_frontend_pb2.FrontendOperation(reach=reach)
    await frontend.write(from_frontend_pb2.AttachFrontendRequest(operations=[operation]))


@pytest.mark.parametrize("is_relayed", [False, True])
async def test_the_link_of_a_silent_worker_is_closed_when_its_requests_move(is_relayed: bool) -> None:
    """E6, E10, over real streams: the frontend hears the cause, and the stream of the worker ends."""
    async with serve() as (loop, address), dial(address) as stub:
        frontend = await attach_frontend(stub)
        await submit(frontend, "x")
        if is_relayed:
            relay = await RelayStream(stub).attach()
            await relay.send((1, make_hello("a")))
            await relay.step_of(1)
        else:
            stream = stub.AttachWorker()
            await stream.write(make_hello("a"))
        await until(lambda: bool(loop.core.workers) and len(loop.core.workers["a"].records) == 1, loop)
        other = stub.AttachWorker()
        await other.write(make_hello("b"))
        await until(lambda: "b" in loop.core.workers, loop)
        await say(frontend, "a", from_frontend_pb2.WORKER_REACH_STATE_SILENT)
        await until(lambda: bool(loop.core.workers["a"].vitals.unheard_by), loop)
        loop.core.workers["a"].vitals.heard_at -= 2.0  # type: ignore[operator]
        await until(lambda: not loop.core.workers["a"].attached, loop)
        lost = await next_lost(frontend)
        assert (lost.ref.request_id, lost.cause) == ("x", to_frontend_pb2.LOSS_CAUSE_SILENT)
        if is_relayed:
            while not isinstance(await relay.next_of(1), scheduler_pb2.LinkClosed):
                pass
        else:
            async with asyncio.timeout(10):
                while await stream.read() is not grpc.aio.EOF:
                    pass


async def test_the_guardian_reports_the_end_of_its_worker() -> None:
    """E2, over a real server."""
    async with serve() as (loop, address), dial(address) as stub:
        frontend = await attach_frontend(stub)
        await submit(frontend, "x")
        stream = stub.AttachWorker()
        await stream.write(make_hello("a"))
        await until(lambda: bool(loop.core.workers) and len(loop.core.workers["a"].records) == 1, loop)
        ref = shared_pb2.WorkerRef(worker_id="a", worker_instance="a-1")
        request = scheduler_pb2.ReportWorkerExitRequest(
            worker=ref, exit=scheduler_pb2.WORKER_EXIT_CRASHED, reason="SIGSEGV"
        )
        await stub.ReportWorkerExit(request)
        assert "a" in loop.core.workers
        stream.cancel()
        lost = await next_lost(frontend)
        assert lost.cause == to_frontend_pb2.LOSS_CAUSE_CRASH and "SIGSEGV" in lost.reason
        assert "a" not in loop.core.workers
        for wrong in (
            scheduler_pb2.ReportWorkerExitRequest(worker=ref),
            scheduler_pb2.ReportWorkerExitRequest(exit=scheduler_pb2.WORKER_EXIT_KILLED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await stub.ReportWorkerExit(wrong)
            assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_new_link_of_a_process_ends_its_old_one() -> None:
    """H5: the old stream would stay open until something was said on it."""
    async with serve() as (loop, address), dial(address) as stub:
        streams = []
        for _ in range(2):
            streams.append(stub.AttachWorker())
            await streams[-1].write(make_hello("a"))
            assert (await streams[-1].read()).scheduler_epoch == 7
        async with asyncio.timeout(10):
            while await streams[0].read() is not grpc.aio.EOF:
                pass
        assert loop.core.workers["a"].attached


async def test_the_last_word_of_a_worker_moves_its_requests() -> None:
    """E1, over a real server: the directory loses the worker with the end of its stream."""
    async with serve() as (loop, address), dial(address) as stub:
        frontend = await attach_frontend(stub)
        await submit(frontend, "x")
        stream = stub.AttachWorker()
        await stream.write(make_hello("a"))
        await until(lambda: bool(loop.core.workers) and len(loop.core.workers["a"].records) == 1, loop)
        leaving = from_worker_pb2.WorkerEvent(leaving=from_worker_pb2.Leaving(reason="SIGTERM"))
        await stream.write(from_worker_pb2.AttachWorkerRequest(events=[leaving]))
        assert (await next_lost(frontend)).cause == to_frontend_pb2.LOSS_CAUSE_MOVED
        stream.cancel()
        async with asyncio.timeout(10):
            while not (message := await frontend.read()).HasField("workers") or message.workers.workers:
                pass
        assert not loop.core.workers
