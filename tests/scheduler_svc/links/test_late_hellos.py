"""A hello that the network brings late, behind a newer one of the same process (J12)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.links import hello_numbers
from scheduler_svc.links.hello_numbers import HelloNumbers
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import UnavailableError
from signalbox.v1 import from_frontend_pb2, to_worker_pb2
from tests.scheduler_svc.attached import make_hello
from tests.scheduler_svc.harness import make_request

KEY = RequestKey("f", "a")


def make_loop() -> StepLoop:
    core = Scheduler(SchedulerConfig(), 1, 0.0, instance="ours")
    return StepLoop(core, lambda: 0.0, lambda when, action: None)


def attach(loop: StepLoop, number: int, instance: str = "w-1") -> list[to_worker_pb2.AttachWorkerResponse]:
    sent: list[to_worker_pb2.AttachWorkerResponse] = []
    loop.attach_worker(make_hello("w", worker_instance=instance, hello_number=number).hello, sent.append)
    return sent


def test_a_late_hello_of_a_worker_loses_nothing() -> None:
    """J12: a request that was placed behind the newer hello stays, and so does its link."""
    loop = make_loop()
    attach(loop, 2)
    loop.core.submit(make_request("a", 6), 0.0)
    loop.tick()
    placed = loop.core.requests[KEY]
    assert placed.worker_id == "w"
    with pytest.raises(UnavailableError, match=r"hello 1 .* comes late: it has said 2"):
        attach(loop, 1)
    assert loop.core.requests[KEY] is placed and placed.worker_id == "w"
    assert loop.core.workers["w"].attached


def test_a_newer_hello_and_those_of_other_processes_are_taken() -> None:
    """J12: numbers are those of one process, and one that does not number its hellos is taken as ever."""
    loop = make_loop()
    for number in (1, 2, 7, 0):
        assert attach(loop, number)
    loop.detach_worker("w", loop._workers["w"])
    loop.core.worker_leaves("w", "test", has_crashed=False)
    assert attach(loop, 1, instance="w-2")


def test_a_late_hello_of_a_frontend_ends_no_request() -> None:
    """J12: what it does not name came behind it."""
    loop = make_loop()
    loop.attach_frontend(from_frontend_pb2.FrontendHello(frontend_instance="f", hello_number=3))
    loop.core.submit(make_request("a", 6), 0.0)
    with pytest.raises(UnavailableError, match="comes late"):
        loop.attach_frontend(from_frontend_pb2.FrontendHello(frontend_instance="f", hello_number=2))
    assert KEY in loop.core.requests
    loop.attach_frontend(from_frontend_pb2.FrontendHello(frontend_instance="f", hello_number=4))
    assert KEY not in loop.core.requests, "a newer one says what is waited for"


def test_numbers_of_few_processes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """W1: names of processes that nobody has cost nothing for long."""
    monkeypatch.setattr(hello_numbers, "MAX_PROCESSES", 2)
    numbers = HelloNumbers()
    for instance in ("a", "b", "a", "c"):
        numbers.meet(instance, 5)
    numbers.meet("b", 1)
    with pytest.raises(UnavailableError):
        numbers.meet("c", 1)
