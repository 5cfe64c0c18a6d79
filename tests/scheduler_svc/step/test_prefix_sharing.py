"""Who comes second waits for the blocks that are being computed, and shares them."""

from __future__ import annotations

import os

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.state.steps.step import StepDecision
from signalbox.protocol.enums import FinishReason, NotRunReason
from signalbox.protocol.hash_chain import HASH_BYTES
from tests.scheduler_svc.harness import (
    WORKER,
    make_request,
    make_scheduler,
    report_for,
    run_step,
    tokens_by_name,
)

PROMPT = os.urandom(HASH_BYTES * 32)


def submit(scheduler: Scheduler, name: str, num_prompt: int, **fields: object) -> None:
    """A request whose prompt begins as all others do here."""
    hashes = PROMPT[: num_prompt // 4 * HASH_BYTES]
    scheduler.submit(make_request(name, num_prompt, hashes=hashes, **fields), 0.0)


def schedule(scheduler: Scheduler) -> dict[str, int]:
    """Tokens by name of the next step; {} when there is none."""
    step = scheduler.schedule(WORKER, 0.0)
    scheduler.check_integrity()
    return {} if step is None else tokens_by_name(scheduler, step)


def report(scheduler: Scheduler, **fields: object) -> None:
    """The oldest step went as expected, but for `fields`."""
    made = report_for(scheduler)
    for name, value in fields.items():
        setattr(made, name, value)
    scheduler.update(WORKER, made, 0.0)
    scheduler.check_integrity()


@pytest.mark.parametrize("inflight", [1, 2, 4])
@pytest.mark.parametrize("budget", [64, 200, 4096])
def test_a_crowd_with_one_prompt_computes_it_once(inflight: int, budget: int) -> None:
    """C8."""
    scheduler = make_scheduler(
        num_blocks=512, block_size=16, max_num_batched_tokens=budget, max_inflight_steps=inflight
    )
    for number in range(8):
        request = make_request(f"r{number}", 512, hashes=PROMPT, hash_block_size=16)
        scheduler.submit(request, 0.0)
    worker = scheduler.workers[WORKER]
    while worker.stats.num_output_tokens < 16:
        while scheduler.schedule(WORKER, 0.0) is not None:
            scheduler.check_integrity()
        report(scheduler)
    assert worker.table.num_running == 8
    assert worker.stats.num_prefill_tokens == 512 + 7 * 16, "the prompt once, and a block each"
    assert worker.pool.num_blocks - worker.pool.num_available == 31 + 8 * 2


def test_who_waits_for_a_leader_does_not_hold_up_others() -> None:
    """C9."""
    scheduler = make_scheduler(max_inflight_steps=2)
    submit(scheduler, "leader", 13)
    submit(scheduler, "follower", 13)
    scheduler.submit(make_request("other", 5), 0.0)
    assert schedule(scheduler) == {"leader": 13, "other": 5}
    assert schedule(scheduler) == {"leader": 1, "other": 1}, "the leader's chunk has not been reported"
    report(scheduler)
    assert schedule(scheduler) == {"leader": 1, "other": 1, "follower": 1}


def test_a_follower_waits_for_all_that_it_shares_and_no_longer() -> None:
    """C9, C11."""
    scheduler = make_scheduler(max_inflight_steps=1, long_prefill_token_threshold=4)
    submit(scheduler, "leader", 60)
    submit(scheduler, "follower", 9)
    assert schedule(scheduler) == {"leader": 4}
    report(scheduler)
    assert schedule(scheduler) == {"leader": 4}
    report(scheduler)
    assert schedule(scheduler) == {"leader": 4, "follower": 1}, "two blocks of nine tokens are shared"


@pytest.mark.parametrize("case", ["no whole block", "logprobs", "no caching"])
def test_nobody_waits_for_what_cannot_be_shared(case: str) -> None:
    scheduler = make_scheduler(enable_prefix_caching=case != "no caching")
    submit(scheduler, "leader", 13)
    submit(
        scheduler,
        "second",
        4 if case == "no whole block" else 13,
        wants_prompt_logprobs=case == "logprobs",
    )
    assert set(schedule(scheduler)) == {"leader", "second"}


def test_with_one_partial_prefill_at_a_time_the_leader_is_it() -> None:
    scheduler = make_scheduler(
        max_num_partial_prefills=1, long_prefill_token_threshold=8, max_inflight_steps=1
    )
    submit(scheduler, "leader", 20)
    submit(scheduler, "follower", 20)
    seen = []
    for _ in range(3):
        seen.append(schedule(scheduler))
        report(scheduler)
    assert seen == [{"leader": 8}, {"leader": 8}, {"leader": 4, "follower": 4}]


def slot_of(step: StepDecision | None) -> int:
    """The slot of the one request that the step starts."""
    assert step is not None
    return step.started[0].chunk.slot


@pytest.mark.parametrize("end", ["cancelled", "failed", "not run"])
def test_a_leader_that_does_not_arrive_is_followed_by_the_next(end: str) -> None:
    """C11."""
    scheduler = make_scheduler(max_inflight_steps=1, long_prefill_token_threshold=8)
    for name in ("leader", "second", "third"):
        submit(scheduler, name, 20)
    step = scheduler.schedule(WORKER, 0.0)
    slot = slot_of(step)
    if end == "cancelled":
        scheduler.cancel(RequestKey("f", "leader"), 1)
        report(scheduler)
        assert schedule(scheduler) == {"second": 8}, "what the leader had computed is not lost"
        report(scheduler)
        assert schedule(scheduler) == {"second": 4, "third": 4}
    elif end == "failed":
        report(scheduler, not_run=[(slot, NotRunReason.ERROR)], finished=[(slot, FinishReason.ERROR, 0)])
        assert schedule(scheduler) == {"second": 8}
    else:
        report(scheduler, not_run=[(slot, NotRunReason.STALE)])
        assert schedule(scheduler) == {}, "preempted in a step of its own"
        report(scheduler)
        assert schedule(scheduler) == {"leader": 8, "second": 8}, (
            "nobody relies on it again; one leads the rest"
        )


def test_a_paused_leader_is_not_waited_for() -> None:
    """C11."""
    scheduler = make_scheduler(max_inflight_steps=1, long_prefill_token_threshold=8)
    submit(scheduler, "leader", 20)
    submit(scheduler, "follower", 20)
    assert schedule(scheduler) == {"leader": 8}
    scheduler.set_paused(RequestKey("f", "leader"), 1, True)
    report(scheduler)
    assert schedule(scheduler) == {"follower": 8}
    scheduler.set_paused(RequestKey("f", "leader"), 1, False)
    report(scheduler)
    assert schedule(scheduler) == {"leader": 8, "follower": 4}


def test_the_more_urgent_never_waits_for_the_less_urgent() -> None:
    """C10."""
    scheduler = make_scheduler(policy="priority", max_inflight_steps=1, long_prefill_token_threshold=8)
    submit(scheduler, "patient", 20, priority=5)
    assert schedule(scheduler) == {"patient": 8}
    submit(scheduler, "urgent", 20, priority=0)
    submit(scheduler, "later", 20, priority=7)
    report(scheduler)
    assert schedule(scheduler) == {"patient": 8, "urgent": 8}
    report(scheduler)
    assert schedule(scheduler) == {"patient": 4, "urgent": 4, "later": 4}


def test_a_resumed_request_waits_too_and_lets_others_pass() -> None:
    """C12."""
    scheduler = make_scheduler(max_inflight_steps=1, long_prefill_token_threshold=8)
    for name in ("first", "second"):
        submit(scheduler, name, 20)
    scheduler.submit(make_request("other", 5), 0.0)
    for _ in range(4):
        run_step(scheduler)
    worker = scheduler.workers[WORKER]
    slots = {worker.request(slot).key.request_id: slot for slot in range(3)}
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None
    worker.table.refused += slots.values()  # as if none of them had run
    report(scheduler)
    preempting = scheduler.schedule(WORKER, 0.0)
    assert preempting is not None and len(preempting.preempted_slots) == 3
    scheduler.reset_prefix_cache()
    report(scheduler)
    resumed = schedule(scheduler)
    assert set(resumed) == {"first", "other"}
    for _ in range(3):
        report(scheduler)
        last = schedule(scheduler)
    assert last["second"] < 8, "it starts behind what the first computed again"


def test_a_crowd_looks_no_further_than_could_run() -> None:
    """C9."""
    scheduler = make_scheduler(max_num_seqs=3, max_inflight_steps=1, num_blocks=256)
    submit(scheduler, "leader", 20)
    for number in range(4):
        submit(scheduler, f"follower{number}", 20)
    scheduler.submit(make_request("other", 5), 0.0)
    assert schedule(scheduler) == {"leader": 20}, "three wait for it: without it they would run"
