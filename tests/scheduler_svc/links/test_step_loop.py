"""The step loop and links that do not take what is sent."""

from __future__ import annotations

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.step_loop import StepLoop
from signalbox.links.outbox import OutboxFullError
from signalbox.v1 import scheduler_pb2
from tests.scheduler_svc.attached import make_hello
from tests.scheduler_svc.harness import make_request

Sent = list[scheduler_pb2.AttachWorkerResponse]


def refuse(message: scheduler_pb2.AttachWorkerResponse) -> None:
    if message.steps:
        raise OutboxFullError("full")


def test_workers_that_do_not_read_are_dropped_and_the_others_served() -> None:
    """All workers of a relay that stops reading are dropped in one turn."""
    core = Scheduler(SchedulerConfig(max_inflight_steps=1), epoch=1, now=0.0)
    loop = StepLoop(core, lambda: 0.0, lambda when, action: None)
    sent: Sent = []
    for name, send in (("a", refuse), ("b", refuse), ("c", sent.append)):
        loop.attach_worker(make_hello(name).hello, send)
    for number in range(3):
        core.submit(make_request(f"r{number}", 6), 0.0)
    loop.tick()
    assert {name: worker.attached for name, worker in core.workers.items()} == {
        "a": False,
        "b": False,
        "c": True,
    }
    assert [len(message.steps) for message in sent if message.steps] == [1]
    core.check_integrity()
