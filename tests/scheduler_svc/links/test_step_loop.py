"""The step loop and links that do not take what is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from scheduler_svc import step_loop
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.evidence import Exit
from scheduler_svc.links.directory import Send, WorkerLink
from scheduler_svc.step_loop import StepLoop
from signalbox.links.outbox import OutboxFullError
from signalbox.protocol.enums import WorkerExit
from signalbox.v1 import from_frontend_pb2, shared_pb2, to_frontend_pb2, to_worker_pb2
from tests.scheduler_svc.attached import make_hello
from tests.scheduler_svc.handoff.pair import A, B, Pair
from tests.scheduler_svc.harness import MODEL, make_request
from tests.scheduler_svc.pulls.test_pulls import NUM_PROMPT, Pulls, names

Sent = list[to_worker_pb2.AttachWorkerResponse]


def refuse(message: to_worker_pb2.AttachWorkerResponse) -> None:
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


def put_off(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, send_b: Send | None = None
) -> tuple[StepLoop, dict[str, Sent], Callable[[], None]]:
    """A loop over a pair of workers whose requests are due: the loop, what it sent, and what makes the steps that it
    has put off."""
    actions: list[Callable[[], None]] = []
    loop = StepLoop(pair.core, lambda: 0.0, lambda when, action: actions.append(action))
    sent: dict[str, Sent] = {A: [], B: []}
    for name, send in ((A, sent[A].append), (B, send_b or sent[B].append)):
        loop._workers[name] = WorkerLink(f"i{name}", shared_pb2.ModelEntry(model=MODEL), send)
    with monkeypatch.context() as patch:
        patch.setattr(step_loop, "MAX_PLACED", 0)
        loop.attach_frontend(from_frontend_pb2.FrontendHello(frontend_instance="another"))
    [go_on] = actions
    return loop, sent, go_on


def test_a_step_that_was_put_off_tells_the_source_of_its_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source learns what it is to show from the same turn, and not from the next message of anybody."""
    pair = Pulls()
    first = pair.compute()
    pair.core.cancel(first.key, first.attempt)
    while pair.step(A):
        pass
    pair.a.draining = True
    pair.core.submit(make_request("again", NUM_PROMPT, hashes=names(), max_tokens=50), 0.0)
    _, sent, go_on = put_off(pair, monkeypatch)
    assert not sent[A] and not sent[B]
    go_on()
    [export] = [export for message in sent[A] for step in message.steps for export in step.pulls.exports]
    assert export.target.worker_id == B


async def test_a_worker_that_is_gone_by_a_step_that_was_put_off_leaves_the_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its process has ended, and its link, which nobody reads, ends with the step."""
    pair = Pair()
    pair.submit("r", 6, at=B)
    pair.core.worker_ended(pair.b.process, Exit(WorkerExit.KILLED, "", 0.0, 0), 0.0)
    loop, _, go_on = put_off(pair, monkeypatch, refuse)
    outbox = loop._frontends["another"].outbox
    assert ids_of(await outbox.take()) == [{A, B}]
    go_on()
    assert B not in pair.core.workers and len(outbox)
    assert ids_of(await outbox.take()) == [{A}]


def ids_of(messages: Sequence[to_frontend_pb2.AttachFrontendResponse]) -> list[set[str]]:
    """The workers of each directory among these."""
    found = [message.workers for message in messages if message.HasField("workers")]
    return [{worker.worker_id for worker in directory.workers} for directory in found]
