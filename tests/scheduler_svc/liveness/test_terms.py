"""Terms are numbers that rise with what is heard, and never a clock (T1, T3)."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from scheduler_svc.core.cluster.term import Term, TermError
from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InvalidRequestError
from signalbox.links.rpc_errors import error_of
from signalbox.protocol.terms import MAX_TERM
from signalbox.v1 import admin_pb2, from_frontend_pb2, from_worker_pb2, scheduler_pb2, to_worker_pb2
from tests.scheduler_svc.attached import dial, dial_admin, make_hello, serve
from tests.scheduler_svc.harness import make_info, make_request, make_slot

Sent = list[to_worker_pb2.AttachWorkerResponse]


def make_loop(first_term: int = 1) -> StepLoop:
    core = Scheduler(SchedulerConfig(max_inflight_steps=1), first_term, 0.0, instance="ours")
    return StepLoop(core, lambda: 0.0, lambda when, action: None)


def hello_of(term: int, instance: str) -> from_worker_pb2.WorkerHello:
    """A worker that has obeyed another scheduler."""
    snapshot = from_worker_pb2.WorkerSnapshot(
        scheduler_epoch=term, scheduler_instance=instance, last_step_id=term
    )
    return make_hello("w", snapshot=snapshot, scheduler_epoch=term).hello


def snapshot(**fields: Any) -> from_worker_pb2.WorkerSnapshot:
    """Of a worker without requests."""
    return from_worker_pb2.WorkerSnapshot(**{"scheduler_epoch": 1, "last_step_id": 1} | fields)


@pytest.mark.parametrize(
    ("number", "instance", "then"),
    [(4, "theirs", 5), (5, "theirs", 6), (9, "theirs", 10), (9, "", 10), (5, "ours", 5)],
)
def test_a_term_rises_above_those_of_others(number: int, instance: str, then: int) -> None:
    """T1: an equal term of another process is not good enough, and one of our own is no reason."""
    term = Term("ours", 5)
    assert term.meet(number, instance) == (then != 5)
    assert term.number == then


def test_a_scheduler_with_a_low_first_term_is_obeyed_after_one_with_a_high_one() -> None:
    """A1: a predecessor whose number was a clock in milliseconds, ahead of everybody's."""
    loop, sent = make_loop(), Sent()
    loop.attach_worker(hello_of(1_800_000_000_000, "theirs"), sent.append)
    loop.core.submit(make_request("a", 6), 0.0)
    loop.tick()
    assert sent[0].scheduler_epoch == 1_800_000_000_001 and sent[0].scheduler_instance == "ours"
    assert [step.scheduler_epoch for message in sent for step in message.steps] == [1_800_000_000_001]


def test_a_term_that_rises_rises_for_the_links_that_are_there() -> None:
    """T1: what is sent on an older link after that is of the new term, too."""
    loop, sent = make_loop(), Sent()
    loop.attach_worker(make_hello("first").hello, sent.append)
    assert sent[0].scheduler_epoch == 1
    loop.attach_worker(hello_of(7, "theirs"), Sent().append)
    for number in range(2):
        loop.core.submit(make_request(f"r{number}", 6), 0.0)
    loop.tick()
    assert [step.scheduler_epoch for message in sent for step in message.steps] == [8]


def test_a_frontend_tells_of_a_term_that_no_worker_has_met() -> None:
    """T1: and its next hello to the same scheduler changes nothing."""
    loop = make_loop()
    hello = from_frontend_pb2.FrontendHello(frontend_instance="f", scheduler_epoch=3)
    loop.attach_frontend(hello)
    assert loop.core.epoch == 4
    hello.scheduler_epoch = 4
    loop.attach_frontend(hello)
    assert loop.core.epoch == 4
    hello.scheduler_epoch = 5
    loop.attach_frontend(hello)
    assert loop.core.epoch == 6, "it was elsewhere meanwhile"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"scheduler_epoch": (1 << 64) - 1}, "hello.scheduler_epoch"),
        ({"scheduler_epoch": MAX_TERM}, "hello.scheduler_epoch"),
        ({"scheduler_epoch": MAX_TERM + 1, "scheduler_instance": "ours"}, "hello.scheduler_epoch"),
        ({"snapshot": snapshot(scheduler_epoch=(1 << 64) - 2)}, "hello.snapshot"),
        ({"snapshot": snapshot(last_step_id=(1 << 64) - 1)}, "hello.snapshot"),
        ({"snapshot": snapshot(last_scheduled_step_id=(1 << 62) + 1)}, "hello.snapshot"),
    ],
)
async def test_a_number_that_nobody_has_come_to_is_refused_by_name(
    fields: dict[str, Any], named: str
) -> None:
    """T4: and nothing has changed: questions are answered, and the next worker is taken."""
    async with serve() as (loop, address), dial(address) as stub:
        loop.core.term.instance = "ours"
        bad = stub.AttachWorker()
        await bad.write(make_hello("bad", **fields))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            while await bad.read() is not grpc.aio.EOF:
                pass
        error = error_of(refused.value, address)
        assert isinstance(error, InvalidRequestError) and error.field == named
        assert list(loop.core.workers) == [] and loop.core.epoch == 7
        assert (await stub.FindLeader(scheduler_pb2.FindLeaderRequest())).scheduler_epoch == 7
        async with dial_admin(address) as admin:
            assert (await admin.GetStatus(admin_pb2.GetStatusRequest())).scheduler_epoch == 7
        good = stub.AttachWorker()
        await good.write(make_hello("good"))
        assert (await good.read()).scheduler_epoch == 7


async def test_a_frontend_that_names_such_a_term_is_refused_by_name() -> None:
    """T4."""
    async with serve() as (loop, address), dial(address) as stub:
        stream = stub.AttachFrontend()
        hello = from_frontend_pb2.FrontendHello(frontend_instance="f", scheduler_epoch=(1 << 64) - 1)
        await stream.write(from_frontend_pb2.AttachFrontendRequest(hello=hello))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        error = error_of(refused.value, address)
        assert isinstance(error, InvalidRequestError) and error.field == "hello.scheduler_epoch"
        assert (loop.num_frontends, loop.core.epoch) == (0, 7)


def test_the_highest_term_is_for_its_own_workers() -> None:
    """T4: whoever has risen to it goes on with the workers that have obeyed it."""
    term = Term("ours", 5)
    assert term.meet(MAX_TERM - 1, "theirs") and term.number == MAX_TERM
    assert not term.meet(MAX_TERM, "ours")
    with pytest.raises(TermError):
        term.meet(MAX_TERM, "theirs")


@pytest.mark.parametrize(("instance", "then"), [("ours", 3), ("theirs", 4), ("", 4)])
def test_an_idle_worker_says_whose_its_highest_term_is(instance: str, then: int) -> None:
    """T5: each new link of a worker that has never made a step has raised the term by one."""
    loop = make_loop(first_term=3)
    hello = make_hello("w", scheduler_epoch=3, scheduler_instance=instance).hello
    for _ in range(3):
        loop.attach_worker(hello, Sent().append)
    assert loop.core.epoch == then


async def test_both_ends_are_told_who_speaks() -> None:
    async with serve() as (loop, address), dial(address) as stub:
        loop.core.term.instance = "ours"
        stream = stub.AttachFrontend()
        hello = from_frontend_pb2.FrontendHello(frontend_instance="f")
        await stream.write(from_frontend_pb2.AttachFrontendRequest(hello=hello))
        first = await stream.read()
        assert (first.scheduler_epoch, first.scheduler_instance) == (7, "ours")
        worker = stub.AttachWorker()
        await worker.write(make_hello("w"))
        greeting = await worker.read()
        assert (greeting.scheduler_epoch, greeting.scheduler_instance) == (7, "ours")


@pytest.mark.parametrize(("instance", "is_adopted"), [("ours", False), ("theirs", True), ("", True)])
def test_what_this_process_placed_and_does_not_know_has_ended(instance: str, is_adopted: bool) -> None:
    """T3: by the process, not by the number, which two processes may both have had."""
    scheduler = Scheduler(SchedulerConfig(), 1, 0.0, instance="ours")
    snapshot = WorkerSnapshot(1, 5, [make_slot()], scheduler_instance=instance)
    scheduler.attach_worker(make_info(), snapshot, 0.0)
    assert (RequestKey("f", "long") in scheduler.requests) == is_adopted
    scheduler.check_integrity()


@pytest.mark.parametrize("comes_with_hello", [True, False])
async def test_a_worker_that_drains_is_told_that_nothing_new_comes(comes_with_hello: bool) -> None:
    """HO14"""
    async with serve() as (_, address), dial(address) as stub, asyncio.timeout(60):
        worker, first = stub.AttachWorker(), make_hello("w")
        draining = first if comes_with_hello else from_worker_pb2.AttachWorkerRequest()
        draining.events.add().draining.SetInParent()
        await worker.write(first)
        if not comes_with_hello:
            assert not (await worker.read()).drains
            await worker.write(draining)
        while not (await worker.read()).drains:
            pass


async def test_what_a_worker_says_with_its_hello_is_heard() -> None:
    """It puts them into one message when both are ready."""
    async with serve() as (loop, address), dial(address) as stub:
        worker, first = stub.AttachWorker(), make_hello("w")
        first.events.add().draining.SetInParent()
        await worker.write(first)
        await worker.read()
        assert loop.core.workers["w"].draining
