"""What the scheduler says of a request is what its next step does: admission and explanation go through the same
gates."""

from __future__ import annotations

import random

import pytest

from scheduler_svc.core.explain import obstacle
from scheduler_svc.core.explain.explanation import Explanation, explain
from scheduler_svc.core.explain.obstacle import Reason
from scheduler_svc.core.explain.queue_place import Order
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import RequestStatus
from scheduler_svc.core.state.requests.tenants import TenantLimits
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.step import gates
from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import BlockGroupKind, FinishReason
from tests.scheduler_svc.harness import MODEL, WORKER, make_info, make_request, make_scheduler, report_for

GATES = {name: gate for name, gate in vars(gates).items() if isinstance(gate, gates.Gate)}


def is_quiet(step: StepDecision | None) -> bool:
    """Before its starts the step changed nothing: what was said before it holds in it."""
    return step is None or not (step.preempted_slots or step.paused_slots or len(step.grant_slots))


def starts_of(scheduler: Scheduler) -> dict[str, tuple[Explanation, bool]]:
    """What is said of each request that does not run, and whether the next step starts it."""
    worker = scheduler.workers[WORKER]
    before = {}
    for request in scheduler.requests.values():
        explained = explain(scheduler, request, 0.0)
        if request.status is not RequestStatus.RUNNING and explained.reason is not Reason.CLIENT_PAUSED:
            before[request.key.request_id] = (explained, request.status)
    is_toggled = bool(worker.table.rest_changes)
    step = scheduler.schedule(WORKER, 0.0)
    if is_toggled or not is_quiet(step):
        return {}
    return {name: (said, said.request.status is not status) for name, (said, status) in before.items()}


def finish_step(scheduler: Scheduler) -> None:
    """The oldest step went as expected: who has reached its limit has ended."""
    worker = scheduler.workers[WORKER]
    if not worker.records:
        return
    record, table = worker.records[0], worker.table
    slots = [int(s) for s in record.decode_slots if record.advance[s]]
    slots += [chunk.slot for chunk in record.chunks if chunk.is_final]
    ended = [s for s in slots if table.num_prompt[s] + table.num_output[s] + 1 >= table.limit[s]]
    held = [s for s in ended if table.state[s] in (SlotState.PREFILL, SlotState.DECODE)]
    finished = tuple((slot, FinishReason.LENGTH, int(table.num_output[slot]) + 1) for slot in held)
    scheduler.update(WORKER, report_for(scheduler, finished), 0.0)


def make_busy(rng: random.Random, policy: str) -> Scheduler:
    """A scheduler with little of one thing or another. hybrid: its worker has windows and checkpoints, and little of
    these, too."""
    scheduler = Scheduler(settings_for(rng, policy), epoch=1, now=0.0)
    groups = (
        BlockGroup(BlockGroupKind.WINDOW, 6, rng.choice([4, 8, 12])),
        BlockGroup(BlockGroupKind.CHUNK, 8, rng.choice([6, 12])),
    )
    hybrid = {"groups": groups, "state_group": StateGroup(8, rng.choice([1, 3]))}
    info = make_info(num_blocks=rng.choice([24, 64]), num_slots=8, **(hybrid if policy == "hybrid" else {}))
    scheduler.attach_worker(info, None, 0.0)
    scheduler.queues.set_limits(TenantLimits(), {"x": TenantLimits(max_running=1)})
    return scheduler


def settings_for(rng: random.Random, policy: str) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=rng.choice([2, 4]),
        max_num_batched_tokens=rng.choice([8, 24, 64]),
        max_num_partial_prefills=rng.choice([0, 1]),
        lower_class_prefill_tokens=rng.choice([0, 6]) * (policy == "priority"),
        watermark_blocks_per_seq=rng.choice([0, 1]),
        long_prefill_token_threshold=rng.choice([0, 4]) * (policy == "hybrid"),
        enable_chunked_prefill=policy != "whole prompts",
        max_inflight_steps=1,
        policy="priority" if policy == "priority" else "fcfs",
        aging_s=0.0,
    )


def disturb(rng: random.Random, scheduler: Scheduler, turn: int) -> None:
    """A request may come, grammars may be ready, clients may pause or go on."""
    if rng.random() < 0.4:
        fields = {
            "tenant": rng.choice("xyz"),
            "priority": rng.randint(0, 2),
            "has_grammar": rng.random() < 0.2,
        }
        length, num_common = rng.randint(1, 40), rng.choice([0, 3, 6])  # blocks that begin others, too
        names = [(0, at) if at < num_common else (turn + 1, at) for at in range(length // 4)]
        hashes = b"".join(bytes(name).ljust(16) for name in names)
        request = make_request(f"r{turn}", length, rng.randint(1, 30), hashes, **fields)
        scheduler.submit(request, 0.0)
    for request in list(scheduler.requests.values()):
        if request.status is RequestStatus.WAITING_FOR_FSM and rng.random() < 0.5:
            assert request.slot is not None
            scheduler.grammar_ready(WORKER, request.slot, request.key.request_id, 1)
        if rng.random() < 0.02:
            scheduler.set_paused(request.key, 1, not request.client_paused)


@pytest.mark.sampled
@pytest.mark.parametrize("policy", ["fcfs", "priority", "whole prompts", "hybrid"])
@pytest.mark.parametrize("seed", range(8))
def test_the_next_step_starts_who_is_said_to_be_next_and_nobody_who_lacks_something(
    policy: str, seed: int
) -> None:
    """Q6."""
    rng = random.Random(seed)
    scheduler = make_busy(rng, policy)
    num_next, num_lacking = 0, 0
    for turn in range(100):
        disturb(rng, scheduler, turn)
        for name, (said, has_started) in starts_of(scheduler).items():
            is_next = said.reason is Reason.NEXT_STEP and said.place.first is None
            may_start = is_next or said.reason in (Reason.OTHERS_AHEAD, Reason.PREEMPTED)
            assert has_started or not is_next, f"{name}: {said.sentence}"
            assert may_start or not has_started, f"{name}: {said.sentence}"
            num_next, num_lacking = num_next + is_next, num_lacking + (not may_start)
        finish_step(scheduler)
        scheduler.check_integrity()
    assert num_next and num_lacking


def test_every_gate_has_its_words() -> None:
    """Q6."""
    assert set(obstacle.WORDS) == set(GATES.values())
    assert set(GATES.values()) == {*gates.OF_TURN, *gates.OF_STEP, *gates.OF_START, gates.FETCH}


@pytest.mark.parametrize("name", GATES)
def test_a_gate_that_is_planted_shut_stops_admission_and_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q6."""
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.submit(make_request("a", 6), 0.0)
    (request,) = scheduler.requests.values()
    assert explain(scheduler, request, 0.0).reason is Reason.NEXT_STEP
    monkeypatch.setattr(GATES[name], "is_closed", lambda capacity, request: True)
    monkeypatch.setitem(obstacle.WORDS, GATES[name], (Reason.NO_PLACE, lambda dry, request: "planted"))
    explained = explain(scheduler, request, 0.0)
    assert (explained.reason, explained.sentence) == (Reason.NO_PLACE, "planted")
    scheduler.schedule(WORKER, 0.0)
    assert request.status is RequestStatus.WAITING
    monkeypatch.undo()
    assert explain(scheduler, request, 0.0).reason is Reason.NEXT_STEP


def test_a_gate_that_is_planted_open_lets_pass_who_is_said_to_be_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q6."""
    scheduler = make_scheduler(
        max_num_partial_prefills=1, long_prefill_token_threshold=4, max_inflight_steps=1
    )
    for name in "ab":
        scheduler.submit(make_request(name, 40), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    a, b = scheduler.requests.values()
    assert (a.status, b.status) == (RequestStatus.RUNNING, RequestStatus.WAITING)
    assert explain(scheduler, b, 0.0).reason is Reason.TOKEN_BUDGET
    monkeypatch.setattr(gates.PARTIAL_PROMPTS, "is_closed", lambda capacity, request: False)
    assert explain(scheduler, b, 0.0).reason is Reason.NEXT_STEP
    scheduler.schedule(WORKER, 0.0)
    assert b.status is RequestStatus.RUNNING


@pytest.mark.parametrize(
    "policy", ["fcfs", "priority", "fair", "priority+fair", "deadline", "priority+deadline"]
)
@pytest.mark.parametrize("seed", range(3))
def test_the_queue_is_walked_in_the_order_of_the_key_that_is_told(policy: str, seed: int) -> None:
    """Q1, Q6: the walk follows heaps and lists that are kept, the explanation compares keys."""
    rng = random.Random(seed)
    scheduler = make_scheduler(policy=policy, aging_s=10.0, ttft_targets="0:500,1:20000", fair_credit=0.0)
    for number in range(60):
        at = number / 2
        fields = {"tenant": rng.choice("xyz"), "priority": rng.randint(0, 2), "arrival_ms": round(at * 1e3)}
        scheduler.submit(make_request(f"r{number}", rng.randint(1, 40), **fields), at)
    queues, waiting = scheduler.queues, list(scheduler.requests.values())
    order = Order(queues, 10.0 if scheduler.config.has_classes else 0.0, 30.0)
    num_late = 0
    while waiting:
        walk = queues.of(MODEL).walk(order.now)
        first = next(walk)
        if num_late < 7:  # else it is the turn of a late one
            assert first.key == min(waiting, key=order.key).key
        num_late = 0 if first.entry.is_late else num_late + 1
        first.move(RequestStatus.RUNNING)
        queues.charge_input(first, 0)
        queues.placed(first)
        walk.close()
        waiting.remove(first)
