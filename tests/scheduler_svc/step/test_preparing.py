"""Requests that are placed and wait for their grammar."""

from __future__ import annotations

import pytest

from scheduler_svc.core.recovery.snapshot import SlotSnapshot, WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import NO_BLOCKS
from scheduler_svc.core.state.requests.notices import Placed
from scheduler_svc.core.state.requests.request import RequestKey, RequestStatus
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import DivergenceError
from scheduler_svc.step_loop import StepLoop
from signalbox.protocol.enums import SlotStatus
from signalbox.v1 import from_worker_pb2, shared_pb2, to_worker_pb2
from tests.scheduler_svc.harness import (
    MODEL,
    WORKER,
    make_request,
    make_scheduler,
    name_of,
    report_for,
    run_step,
)


def place(scheduler: Scheduler, *names: str) -> dict[str, int]:
    """Submits requests with grammars, which are placed at once; returns their slots."""
    requests = [make_request(name, 6, has_grammar=True) for name in names]
    for request in requests:
        scheduler.submit(request, 0.0)
    run_step(scheduler)
    assert all(request.status is RequestStatus.WAITING_FOR_FSM for request in requests)
    return {request.key.request_id: request.slot for request in requests if request.slot is not None}


def ready(scheduler: Scheduler, name: str, slot: int, attempt: int = 1) -> None:
    """The worker says that a grammar is compiled."""
    scheduler.grammar_ready(WORKER, slot, name, attempt)
    scheduler.check_integrity()


def started(scheduler: Scheduler, step: StepDecision | None) -> list[str]:
    """Names of the requests that a step starts."""
    assert step is not None
    return [name_of(scheduler.workers[WORKER], start.chunk.slot) for start in step.started]


def test_it_is_placed_at_once_and_starts_when_its_grammar_is_ready() -> None:
    """G2."""
    scheduler = make_scheduler(max_inflight_steps=1)
    request = make_request("a", 6, has_grammar=True)
    scheduler.submit(request, 0.0)
    step = run_step(scheduler)
    assert step.placed == [request] and not step.started and not step.num_prefill_tokens
    worker = scheduler.workers[WORKER]
    assert worker.pool.num_available == worker.pool.num_blocks, "it holds a slot and no block"
    assert scheduler.schedule(WORKER, 0.0) is None
    assert request.slot is not None
    ready(scheduler, "a", request.slot)
    ready(scheduler, "a", request.slot)
    step = run_step(scheduler)
    assert started(scheduler, step) == ["a"] and not step.placed
    assert request.status is RequestStatus.RUNNING
    assert len([notice for notice in scheduler.drain_notices() if isinstance(notice, Placed)]) == 2
    assert scheduler.schedule(WORKER, 0.0).num_decode_rows == 1  # type: ignore[union-attr]


def test_the_cached_tokens_are_told_when_it_starts() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    hashes = bytes(range(48))
    scheduler.submit(make_request("first", 13, hashes=hashes), 0.0)
    scheduler.submit(make_request("a", 13, hashes=hashes, has_grammar=True), 0.0)
    run_step(scheduler)
    ready(scheduler, "a", 1)
    run_step(scheduler)
    told = [n.num_cached_tokens for n in scheduler.drain_notices() if isinstance(n, Placed)]
    assert told == [0, 0, 12]


def test_others_run_meanwhile_and_it_goes_before_whoever_is_not_placed() -> None:
    """G2, Q2."""
    scheduler = make_scheduler(max_inflight_steps=1, max_num_seqs=2)
    slots = place(scheduler, "a", "b")
    for name in ("c", "d", "e"):
        scheduler.submit(make_request(name, 6), 0.0)
    step = scheduler.schedule(WORKER, 0.0)
    assert started(scheduler, step) == ["c", "d"]
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    ready(scheduler, "b", slots["b"])
    ready(scheduler, "a", slots["a"])
    run_step(scheduler)
    for name in ("c", "d"):
        scheduler.cancel(RequestKey("f", name), 1)
    step = scheduler.schedule(WORKER, 0.0)
    assert started(scheduler, step) == ["a", "b"], "in the order of arrival, and ahead of e"


def test_they_leave_half_of_the_slots_to_others() -> None:
    """G3."""
    scheduler = make_scheduler(num_slots=6, max_inflight_steps=1)
    for number in range(5):
        scheduler.submit(make_request(f"g{number}", 6, has_grammar=True), 0.0)
    scheduler.submit(make_request("plain", 6), 0.0)
    step = run_step(scheduler)
    assert [request.key.request_id for request in step.placed] == ["g0", "g1", "g2", "plain"]
    assert started(scheduler, step) == ["plain"]
    g0 = step.placed[0]
    assert g0.slot is not None
    ready(scheduler, "g0", g0.slot)
    step = run_step(scheduler)
    assert [request.key.request_id for request in step.placed] == ["g3"], "and the next takes its turn"


def test_a_grammar_that_fails_releases_the_slot() -> None:
    """G4."""
    scheduler = make_scheduler(max_inflight_steps=1)
    slots = place(scheduler, "a")
    scheduler.grammar_failed(WORKER, slots["a"], "a", 1)
    scheduler.check_integrity()
    assert not scheduler.requests
    step = run_step(scheduler)
    assert step.finished_slots == [slots["a"]]
    assert scheduler.workers[WORKER].table.num_free_slots == 16


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_cancel_while_it_waits(is_ready: bool) -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    slots = place(scheduler, "a")
    if is_ready:
        ready(scheduler, "a", slots["a"])
    scheduler.cancel(RequestKey("f", "a"), 1)
    scheduler.check_integrity()
    ready(scheduler, "a", slots["a"])
    assert run_step(scheduler).finished_slots == [slots["a"]]
    assert scheduler.schedule(WORKER, 0.0) is None


@pytest.mark.parametrize("what", ["grammar_ready", "grammar_failed"])
def test_late_news_of_a_slot_that_is_another_attempts_by_now(what: str) -> None:
    """G4."""
    scheduler = make_scheduler(max_inflight_steps=1, num_slots=2)
    slot = place(scheduler, "a")["a"]
    scheduler.cancel(RequestKey("f", "a"), 1)
    run_step(scheduler)
    scheduler.submit(make_request("a", 6, has_grammar=True, attempt=2), 0.0)
    step = run_step(scheduler)
    assert step.placed[0].slot == slot
    getattr(scheduler, what)(WORKER, slot, "a", 1)
    scheduler.check_integrity()
    assert scheduler.schedule(WORKER, 0.0) is None and len(scheduler.requests) == 1
    ready(scheduler, "a", slot, attempt=2)
    assert started(scheduler, scheduler.schedule(WORKER, 0.0)) == ["a"]


def test_news_of_a_slot_that_does_not_exist_is_a_divergence() -> None:
    with pytest.raises(DivergenceError, match="slot 16"):
        make_scheduler().grammar_ready(WORKER, 16, "a", 1)


def test_after_a_hello_it_waits_until_the_worker_says_so_again() -> None:
    """J7."""
    scheduler = make_scheduler(max_inflight_steps=1)
    slots = place(scheduler, "a")
    ready(scheduler, "a", slots["a"])
    scheduler.detach_worker(WORKER, 1.0)
    request = scheduler.requests[RequestKey("f", "a")]
    held = SlotSnapshot(
        slots["a"], make_request("a", 6, has_grammar=True), SlotStatus.PREPARING, NO_BLOCKS, b"", 0, 0, 6
    )
    scheduler.attach_worker(scheduler.workers[WORKER].info, WorkerSnapshot(1, 1, [held]), 2.0)
    scheduler.check_integrity()
    assert request.status is RequestStatus.WAITING_FOR_FSM
    assert scheduler.schedule(WORKER, 2.0) is None
    ready(scheduler, "a", slots["a"])
    assert started(scheduler, scheduler.schedule(WORKER, 2.0)) == ["a"]


def test_a_paused_client_holds_up_nobody() -> None:
    """P2: neither one whose grammar is ready, nor one whose blocks were taken."""
    scheduler = make_scheduler(max_inflight_steps=1)
    slots = place(scheduler, "a")
    scheduler.set_paused(RequestKey("f", "a"), 1, True)
    ready(scheduler, "a", slots["a"])
    scheduler.submit(make_request("taken", 6), 0.0)
    run_step(scheduler)
    worker = scheduler.workers[WORKER]
    worker.table.refuse(next(slot for slot in range(16) if worker.table.state[slot] and slot != slots["a"]))
    scheduler.set_paused(RequestKey("f", "taken"), 1, True)
    run_step(scheduler)
    scheduler.submit(make_request("other", 6), 0.0)
    assert started(scheduler, scheduler.schedule(WORKER, 0.0)) == ["other"]
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    for name in ("a", "taken"):
        scheduler.set_paused(RequestKey("f", name), 1, False)
    step = scheduler.schedule(WORKER, 0.0)
    assert started(scheduler, step) == ["a"] and step is not None and len(step.resumed) == 1


def test_the_step_loop_takes_the_events_of_a_worker() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    loop = StepLoop(scheduler, clock=lambda: 0.0, call_at=lambda when, action: None)
    sent: list[to_worker_pb2.AttachWorkerResponse] = []
    entry = shared_pb2.ModelEntry(model=MODEL, block_size=4, max_model_len=100)
    hello = from_worker_pb2.WorkerHello(
        worker_id=WORKER, model=entry, num_slots=4, num_blocks=64, max_num_batched_tokens=64
    )
    loop.attach_worker(hello, sent.append)
    for name in ("good", "bad"):
        scheduler.submit(make_request(name, 6, has_grammar=True), 0.0)
    loop.tick()
    assert [new.ref.request_id for new in sent[1].new_requests] == ["good", "bad"]
    assert len(sent[1].steps) == 1, "a request travels with a step, so that a snapshot tells of it"
    loop.on_worker(
        WORKER,
        from_worker_pb2.AttachWorkerRequest(
            outputs=[from_worker_pb2.ModelRunnerOutput(step_id=1)], events=[event("grammar_ready", 0, "good")]
        ),
    )
    assert sent[2].steps[0].scheduled_new_reqs.slots == b"\0\0"
    loop.on_worker(
        WORKER,
        from_worker_pb2.AttachWorkerRequest(
            outputs=[from_worker_pb2.ModelRunnerOutput(step_id=2, num_prefill_tokens=6)],
            events=[event("grammar_failed", 1, "bad")],
        ),
    )
    assert sent[3].steps[0].finished_slots == b"\1\0"


def event(kind: str, slot: int, name: str) -> from_worker_pb2.WorkerEvent:
    """What a worker says of a grammar."""
    made = from_worker_pb2.WorkerEvent()
    body = getattr(made, kind)
    body.slot, body.ref.request_id, body.ref.attempt = slot, name, 1
    return made


def test_how_many_prepare_is_counted_once_for_those_that_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = make_scheduler(max_inflight_steps=1, num_slots=16)
    place(scheduler, *(f"placed{number}" for number in range(8)))
    for number in range(8):
        scheduler.submit(make_request(f"waits{number}", 6, has_grammar=True), 0.0)
    num_asked = 0
    worker, count = scheduler.workers[WORKER], Worker.num_preparing.fget
    assert count is not None

    def ask(worker: Worker) -> int:
        nonlocal num_asked
        num_asked += 1
        return count(worker)

    monkeypatch.setattr(Worker, "num_preparing", property(ask))
    scheduler.schedule(WORKER, 0.0)
    assert worker.num_preparing == 8 and num_asked <= 4
