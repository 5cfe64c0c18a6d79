"""Terms are numbers that rise with what is heard, and never a clock (T1, T3, A1 of the review)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.recovery import WorkerSnapshot
from scheduler_svc.core.request import RequestKey
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.term import Term
from scheduler_svc.step_loop import StepLoop
from signalbox.v1 import scheduler_pb2
from tests.scheduler_svc.attached import dial, make_hello, serve
from tests.scheduler_svc.harness import make_info, make_request, make_slot

Sent = list[scheduler_pb2.AttachWorkerResponse]


def make_loop(first_term: int = 1) -> StepLoop:
    core = Scheduler(SchedulerConfig(max_inflight_steps=1), first_term, 0.0, instance="ours")
    return StepLoop(core, lambda: 0.0, lambda when, action: None)


def hello_of(term: int, instance: str) -> scheduler_pb2.WorkerHello:
    """A worker that has obeyed another scheduler."""
    snapshot = scheduler_pb2.WorkerSnapshot(
        scheduler_epoch=term, scheduler_instance=instance, last_step_id=term
    )
    return make_hello("w", snapshot=snapshot, scheduler_epoch=term).hello


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
    hello = scheduler_pb2.FrontendHello(frontend_instance="f", scheduler_epoch=3)
    loop.attach_frontend(hello)
    assert loop.core.epoch == 4
    hello.scheduler_epoch = 4
    loop.attach_frontend(hello)
    assert loop.core.epoch == 4
    hello.scheduler_epoch = 5
    loop.attach_frontend(hello)
    assert loop.core.epoch == 6, "it was elsewhere meanwhile"


async def test_both_ends_are_told_who_speaks() -> None:
    async with serve() as (loop, address), dial(address) as stub:
        loop.core.term.instance = "ours"
        stream = stub.AttachFrontend()
        hello = scheduler_pb2.FrontendHello(frontend_instance="f")
        await stream.write(scheduler_pb2.AttachFrontendRequest(hello=hello))
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


async def test_what_a_worker_says_with_its_hello_is_heard() -> None:
    """It puts them into one message when both are ready."""
    async with serve() as (loop, address), dial(address) as stub:
        worker, first = stub.AttachWorker(), make_hello("w")
        first.events.add().draining.SetInParent()
        await worker.write(first)
        await worker.read()
        assert loop.core.workers["w"].draining
