"""What is wrong with one link is nobody else's business."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from scheduler_svc import step_loop
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.notices import Lost
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.links.worker_link import WorkerSession
from scheduler_svc.step_loop import FrontendLink, StepLoop
from signalbox.errors import SignalboxError
from signalbox.links.outbox import Outbox, OutboxFullError
from signalbox.protocol.enums import LossCause
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, to_frontend_pb2, to_worker_pb2
from tests.scheduler_svc.attached import attach_frontend, dial, make_event, make_hello, serve, submit
from tests.scheduler_svc.harness import MODEL, WORKER, make_request, make_scheduler, run_step

OTHER = "other"


def make_loop(**settings: object) -> StepLoop:
    core = Scheduler(SchedulerConfig(max_inflight_steps=1, **settings), epoch=1, now=0.0)  # type: ignore[arg-type]
    return StepLoop(core, lambda: 0.0, lambda when, action: None)


def attach(loop: StepLoop, instance: str) -> FrontendLink:
    return loop.attach_frontend(from_frontend_pb2.FrontendHello(frontend_instance=instance))


def lost(scheduler: Scheduler) -> dict[str, LossCause]:
    """Names of the requests that frontends are told are lost, and why."""
    return {n.key.request_id: n.cause for n in scheduler.drain_notices() if isinstance(n, Lost)}


# -- a worker gives up a frontend --


def test_every_request_that_ends_with_a_lost_frontend_is_told_lost() -> None:
    """R8: the frontend may well live. Only what the one worker had for it is lost: no request vanishes without a
    word."""
    scheduler = make_scheduler(max_inflight_steps=1, max_num_seqs=1)
    info = WorkerInfo(OTHER, "i", "a:1", MODEL, 16, 64, 4, 1 << 20, 1 << 20)
    scheduler.attach_worker(info, None, 0.0)
    for name in ("here", "there", "queued"):
        scheduler.submit(make_request(name, 6), 0.0)
    run_step(scheduler)
    assert scheduler.schedule(OTHER, 0.0) is not None
    scheduler.drain_notices()
    scheduler.lose_frontend("f", WORKER)
    assert lost(scheduler) == {"here": LossCause.OUTPUT_LOST}
    assert {key.request_id for key in scheduler.requests} == {"there", "queued"}
    scheduler.check_integrity()
    assert scheduler.schedule(WORKER, 0.0).finished_slots == [0]  # type: ignore[union-attr]


def test_requests_of_a_frontend_that_is_gone_end_everywhere() -> None:
    """Z3."""
    scheduler = make_scheduler(max_inflight_steps=1, max_num_seqs=1, frontend_grace_s=1.0)
    scheduler.attach_frontend("f", [], [], 0.0)
    for name in ("placed", "queued"):
        scheduler.submit(make_request(name, 6), 0.0)
    run_step(scheduler)
    scheduler.detach_frontend("f", 0.0)
    scheduler.tick(2.0)
    assert not scheduler.requests and not scheduler.frontends.by_instance
    scheduler.check_integrity()


def test_a_frontend_is_told_that_a_worker_has_thrown_its_outputs_away() -> None:
    """F5: ends were among them perhaps, which nobody here remembers; it asks for all that it has there."""
    loop, sent = make_loop(), list[to_worker_pb2.AttachWorkerResponse]()
    frontend = attach(loop, "f")
    loop.attach_worker(make_hello("w").hello, sent.append)
    message = from_worker_pb2.AttachWorkerRequest()
    message.events.add().frontend_lost.frontend_instance = "f"
    loop.on_worker("w", message)
    told = [worker for message in asyncio.run(frontend.outbox.take()) for worker in message.outputs_lost]
    assert [(worker.worker_id, worker.worker_instance) for worker in told] == [("w", "w-1")]


# -- a frontend that does not read --


def test_a_stuck_frontend_loses_its_link_and_the_others_hear_everything() -> None:
    """R9."""
    loop, sent = make_loop(), list[to_worker_pb2.AttachWorkerResponse]()
    stuck, well = attach(loop, "stuck"), attach(loop, "well")
    stuck.outbox = Outbox(1)
    stuck.outbox.put(to_frontend_pb2.AttachFrontendResponse())
    for number, instance in enumerate(("stuck", "well", "stuck", "well")):
        loop.core.submit(make_request(f"r{number}", 6, key=RequestKey(instance, f"r{number}")), 0.0)
    link = loop.attach_worker(make_hello("w").hello, sent.append)
    assert stuck.is_closed.is_set() and not well.is_closed.is_set()
    assert loop.num_frontends == 1 and loop.is_current("w", link), "the worker has done nothing wrong"
    placed = [ref for message in asyncio.run(well.outbox.take()) for ref in message.placed]
    assert [each.ref.request_id for each in placed] == ["r1", "r3"]
    assert not loop.core.frontends.by_instance["stuck"].attached, "its grace time runs"


async def test_the_stream_of_a_stuck_frontend_ends() -> None:
    async with serve() as (loop, address), dial(address) as stub:
        frontend = await attach_frontend(stub)
        loop._frontends["f"].outbox = Outbox(0)
        await submit(frontend, "a")
        worker, other = stub.AttachWorker(), stub.AttachWorker()
        await worker.write(make_hello("w"))
        async with asyncio.timeout(10):
            assert await frontend.read() == grpc.aio.EOF
        assert loop.num_frontends == 0 and loop.core.workers["w"].attached
        again = await attach_frontend(stub)
        await other.write(make_hello("other"))
        await submit(again, "b")
        async with asyncio.timeout(10):
            while not (message := await again.read()).placed:
                pass
        assert message.placed[0].ref.request_id == "b"


# -- a worker whose step cannot be built --


def test_a_worker_whose_step_fails_is_asked_for_its_snapshot_and_the_others_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, sent = make_loop(), list[to_worker_pb2.AttachWorkerResponse]()
    schedule = loop.core.schedule

    def fail_for_a(worker_id: str, now: float):  # type: ignore[no-untyped-def]
        if worker_id == "a":
            raise IndexError("a bug of ours")
        return schedule(worker_id, now)

    monkeypatch.setattr(loop.core, "schedule", fail_for_a)
    loop.attach_worker(make_hello("b").hello, sent.append)
    loop.core.submit(make_request("r", 6), 0.0)
    loop.attach_worker(make_hello("a").hello, sent.append)
    loop.tick()
    assert {name: worker.attached for name, worker in loop.core.workers.items()} == {"a": False, "b": True}
    assert [len(message.steps) for message in sent if message.steps] == [1]


def test_a_worker_that_is_dropped_while_it_speaks() -> None:
    """R9: it is idle and a request waits, so that it would be looked at twice."""
    loop = make_loop()

    def refuse(message: to_worker_pb2.AttachWorkerResponse) -> None:
        if message.steps:
            raise OutboxFullError("full")

    loop.attach_worker(make_hello("w").hello, refuse)
    for number in range(9):  # one more than it has slots
        loop.core.submit(make_request(f"r{number}", 6), 0.0)
    loop.on_worker("w", make_event())
    assert not loop.core.workers["w"].attached and loop.core.num_waiting == 1


def test_a_hello_that_fails_leaves_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, sent = make_loop(), list[to_worker_pb2.AttachWorkerResponse]()

    def fail(concerned: str | None = None) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(loop, "_advance", fail)
    with pytest.raises(SignalboxError):
        WorkerSession(loop, make_hello("w"), sent.append)
    assert not loop._workers and not loop.core.workers["w"].attached


# -- large requests --


def test_large_requests_go_ahead_of_their_step_in_messages_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2, M1."""
    monkeypatch.setattr(step_loop, "MAX_BATCH_BYTES", 3000)
    loop, sent = make_loop(), list[to_worker_pb2.AttachWorkerResponse]()
    for number in range(5):
        loop.core.submit(make_request(f"r{number}", 6, payload=bytes(1000)), 0.0)
    loop.attach_worker(make_hello("w").hello, sent.append)
    assert [(len(message.new_requests), len(message.steps)) for message in sent[1:]] == [
        (2, 0),
        (2, 0),
        (1, 1),
    ]
    assert all(message.ByteSize() < 3200 for message in sent)


async def test_what_waits_for_a_worker_that_reads_late_comes_in_messages_that_fit() -> None:
    """R2: two requests of 40 MB each would be more than a message may have."""
    async with serve() as (loop, address), dial(address) as stub:
        worker = stub.AttachWorker()
        await worker.write(make_hello("w", num_slots=4))
        await worker.read()
        for number in range(2):
            loop.core.submit(make_request(f"r{number}", 6, payload=bytes(40 << 20)), 0.0)
        loop.tick()
        names: list[str] = []
        async with asyncio.timeout(60):
            while len(names) < 2:
                message = await worker.read()
                assert message is not grpc.aio.EOF, "the link broke"
                names += [request.ref.request_id for request in message.new_requests]
        assert names == ["r0", "r1"]
