"""Checkpoints of recurrent states: which are made, who goes on from them, who waits, and which are given away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.recovery.kept_cache import is_same_cache, keep_cache
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.checkpoints import NO_CHECKPOINT, Checkpoints, Kind
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.state.steps.step import CheckpointOrder, StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import DivergenceError
from signalbox.protocol.block_groups import StateGroup
from signalbox.protocol.enums import FinishReason, LossCause
from tests.scheduler_svc.blocks.test_withdrawal import fail, lost
from tests.scheduler_svc.harness import WORKER, make_info, make_request, report_for, run_step

BOUNDARY = 8
"""Two blocks of 4."""


def content(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(16, "little") for number in numbers)


def hashes(*numbers: int) -> Any:
    return np.frombuffer(content(*numbers), HASH_DTYPE)


def make_ring(
    num_checkpoints: int = 8, num_blocks: int = 64, prompts_only: bool = False, **settings: Any
) -> tuple[Scheduler, Worker]:
    """A scheduler and its one worker, in blocks of 4."""
    values = {"max_inflight_steps": 1, "max_num_seqs": 4} | settings
    scheduler = Scheduler(SchedulerConfig(**values), epoch=1, now=0.0)
    states = StateGroup(BOUNDARY, num_checkpoints, prompts_only=prompts_only)
    info = make_info(num_blocks=num_blocks, state_group=states)
    scheduler.attach_worker(info, None, 0.0)
    return scheduler, scheduler.workers[WORKER]


def states_of(worker: Worker) -> Checkpoints:
    assert worker.checkpoints is not None
    return worker.checkpoints


def counts_of(worker: Worker) -> tuple[int, int, int]:
    """How many checkpoints were made, used and evicted."""
    counts = states_of(worker).counts
    return counts.num_made, counts.num_used, counts.num_evicted


def submit(scheduler: Scheduler, name: str, num_tokens: int, *numbers: int, **fields: Any) -> None:
    scheduler.submit(make_request(name, num_tokens, hashes=content(*numbers), **fields), 0.0)


def step(scheduler: Scheduler) -> StepDecision:
    made = run_step(scheduler)
    scheduler.check_integrity()
    return made


def end(scheduler: Scheduler, slot: int, reason: FinishReason = FinishReason.STOP) -> StepDecision:
    """The request of a slot ends in the next step; the step behind it, which is not reported yet."""
    assert scheduler.schedule(WORKER, 0.0) is not None
    scheduler.update(WORKER, report_for(scheduler, finished=((slot, reason, 3),)), 0.0)
    behind = scheduler.schedule(WORKER, 0.0)
    assert behind is not None
    return behind


def cache(worker: Worker, *numbers: int) -> None:
    """Blocks of the spine have this content."""
    blocks = worker.pool.take(len(numbers))
    worker.pool.publish(blocks, hashes(*numbers))
    worker.pool.release(blocks)


def say(worker: Worker, num_output: int, *numbers: int) -> None:
    """Slot 0 has made so many tokens, which filled blocks of this content."""
    worker.table.extend_hashes(0, hashes(*numbers))
    worker.table.num_output[0] = worker.table.bound[0] = num_output


def positions(made: StepDecision) -> list[int]:
    return [order.position for order in made.checkpoints]


def starts(made: StepDecision) -> list[int]:
    return [start.chunk.start for start in (*made.resumed, *made.started)]


def test_a_prompt_keeps_its_end_and_others_go_on_from_there() -> None:
    """CK2, CK5, CK8. At least one token is computed, so of 17 tokens 16 are kept, and of 16 eight."""
    scheduler, worker = make_ring()
    submit(scheduler, "first", 17, 1, 2, 3, 4)
    made = step(scheduler)
    assert positions(made) == [16] and made.started[0].checkpoint == NO_CHECKPOINT
    submit(scheduler, "second", 17, 1, 2, 3, 4)
    submit(scheduler, "shorter", 16, 1, 2, 3, 4)
    made = step(scheduler)
    assert starts(made) == [16, 0] and made.started[0].checkpoint != NO_CHECKPOINT
    assert positions(made) == [8], "the second's is there already"
    assert worker.stats.num_prefix_hit_tokens == 16


def test_what_becomes_of_checkpoints_is_counted() -> None:
    """CK8: made when the report is in, used by a start, evicted for another."""
    scheduler, worker = make_ring(num_checkpoints=1)
    submit(scheduler, "first", 9, 1, 2)
    assert scheduler.schedule(WORKER, 0.0) is not None and counts_of(worker) == (0, 0, 0)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert counts_of(worker) == (1, 0, 0)
    submit(scheduler, "second", 9, 1, 2)
    step(scheduler)
    assert counts_of(worker) == (1, 1, 0)
    submit(scheduler, "other", 9, 7, 8)
    step(scheduler)
    assert counts_of(worker) == (2, 1, 1)
    submit(scheduler, "unkept", 9, 70, 80)
    assert scheduler.schedule(WORKER, 0.0) is not None
    report = report_for(scheduler)
    report.checkpoint_positions = [0]
    scheduler.update(WORKER, report, 0.0)
    assert counts_of(worker) == (2, 1, 2)


def test_a_checkpoint_that_is_gone_on_from_is_held_until_the_report() -> None:
    """CK7."""
    scheduler, worker = make_ring(num_checkpoints=1)
    pool = states_of(worker).pool
    submit(scheduler, "first", 9, 1, 2)
    step(scheduler)
    submit(scheduler, "second", 17, 1, 2, 3, 4)
    made = scheduler.schedule(WORKER, 0.0)
    assert made is not None and starts(made) == [8] and positions(made) == [], "the only one is being read"
    assert not pool.num_available
    scheduler.check_integrity()
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert pool.num_cached == 1


def test_who_waits_goes_on_where_the_prompts_part() -> None:
    """CK4. Both come at once: the leader's chunk, of the same step, keeps the state; the order comes once."""
    scheduler, worker = make_ring()
    submit(scheduler, "leader", 30, 1, 2, 3, 4, 5, 6, 7)
    submit(scheduler, "second", 30, 1, 2, 3, 4, 5, 60, 70)
    submit(scheduler, "third", 30, 1, 2, 3, 4, 5, 61, 71)
    made = step(scheduler)
    assert len(made.started) == 1 and sorted(positions(made)) == [16, 24]
    made = step(scheduler)
    assert starts(made) == [16, 16] and sorted(positions(made)) == [24, 24]
    assert states_of(worker).pool.num_cached == 4


def test_a_leader_in_chunks_keeps_it_with_the_chunk_that_passes_there() -> None:
    """CK4, CK9."""
    scheduler, _ = make_ring(max_num_batched_tokens=11)
    submit(scheduler, "leader", 30, 1, 2, 3, 4, 5, 6, 7)
    submit(scheduler, "second", 30, 1, 2, 3, 4, 5, 60, 70)
    made = step(scheduler)
    assert [start.chunk.length for start in made.started] == [8], "up to a boundary"
    assert positions(made) == []
    made = step(scheduler)
    assert [chunk.length for chunk in made.chunks] == [8] and positions(made) == [16]
    made = step(scheduler)
    assert [chunk.length for chunk in made.chunks] == [8] and starts(made) == [16], "beside the leader"


def test_nobody_waits_for_a_leader_that_has_passed() -> None:
    """CK4, CK5. It computes the beginning again, and keeps the state where its prompt parts, for the next."""
    scheduler, _ = make_ring(max_inflight_steps=2, just_in_time_steps=False)
    submit(scheduler, "leader", 30, 1, 2, 3, 4, 5, 6, 7)
    first = scheduler.schedule(WORKER, 0.0)
    assert first is not None and positions(first) == [24]
    submit(scheduler, "second", 30, 1, 2, 3, 4, 5, 60, 70)
    made = scheduler.schedule(WORKER, 0.0)
    assert made is not None and starts(made) == [0] and positions(made) == [24]
    for _ in range(2):
        scheduler.update(WORKER, report_for(scheduler), 0.0)
    submit(scheduler, "third", 30, 1, 2, 3, 4, 5, 61, 71)
    made = step(scheduler)
    assert starts(made) == [0] and positions(made) == [16, 24], "the spine had five blocks, and no state"
    submit(scheduler, "fourth", 30, 1, 2, 3, 4, 5, 62, 72)
    assert starts(step(scheduler)) == [16]


def test_a_conversation_goes_on_from_the_end_of_its_last_turn() -> None:
    """CK2, CK3, CK8. Only the worker knows where its last boundary is."""
    scheduler, worker = make_ring()
    submit(scheduler, "turn", 9, 1, 2)
    step(scheduler)
    say(worker, 8, 3, 4)
    made = end(scheduler, 0)
    assert made.finished_slots == [0] and made.checkpoints == [CheckpointOrder(0, 1, 0)]
    report = report_for(scheduler)
    report.checkpoint_positions = [16]
    cache(worker, 3, 4)  # as reports had said by now
    scheduler.update(WORKER, report, 0.0)
    submit(scheduler, "next", 22, 1, 2, 3, 4, 50)
    assert starts(step(scheduler)) == [16]


@pytest.mark.parametrize("reason", [FinishReason.ERROR, FinishReason.STOP])
def test_nothing_is_kept_of_what_has_failed_or_is_kept_already(reason: FinishReason) -> None:
    """CK8."""
    scheduler, worker = make_ring()
    submit(scheduler, "r", 9, 1, 2)
    step(scheduler)
    worker.table.num_output[0] = worker.table.bound[0] = 8 if reason is FinishReason.ERROR else 3
    assert end(scheduler, 0, reason).checkpoints == []


def test_a_preempted_request_goes_on_from_its_last_boundary() -> None:
    """CK2, CK8: the order comes with the preemption."""
    scheduler, worker = make_ring()
    submit(scheduler, "r", 9, 1, 2)
    step(scheduler)
    say(worker, 10, 3, 4)
    worker.table.refused.append(0)
    made = scheduler.schedule(WORKER, 0.0)
    assert made is not None and made.preempted_slots == [0] and positions(made) == [0]
    report = report_for(scheduler)
    report.checkpoint_positions = [16]
    cache(worker, 3, 4)  # as reports had said by now
    scheduler.update(WORKER, report, 0.0)
    made = scheduler.schedule(WORKER, 0.0)
    assert made is not None and starts(made) == [16]


@pytest.mark.parametrize("told", [[], [8, 8]])
def test_another_number_of_answers_is_a_divergence(told: list[int]) -> None:
    """CK2."""
    scheduler, _ = make_ring()
    submit(scheduler, "r", 9, 1, 2)
    assert scheduler.schedule(WORKER, 0.0) is not None
    report = report_for(scheduler)
    report.checkpoint_positions = told
    with pytest.raises(DivergenceError, match=f"tells of {len(told)} checkpoints, and 1 were ordered"):
        scheduler.update(WORKER, report, 0.0)


@pytest.mark.parametrize("position", [0, 4, 800])
def test_what_was_not_kept_where_a_name_is_known_cannot_be_found(position: int) -> None:
    """CK1, CK2."""
    scheduler, worker = make_ring()
    submit(scheduler, "r", 9, 1, 2)
    assert scheduler.schedule(WORKER, 0.0) is not None
    report = report_for(scheduler)
    report.checkpoint_positions = [position]
    scheduler.update(WORKER, report, 0.0)
    scheduler.check_integrity()
    assert states_of(worker).pool.num_free == 8


def test_a_reset_holds_for_what_is_being_made() -> None:
    """CK10, C7."""
    scheduler, worker = make_ring()
    submit(scheduler, "first", 9, 1, 2)
    step(scheduler)
    submit(scheduler, "second", 9, 10, 20)
    assert scheduler.schedule(WORKER, 0.0) is not None
    scheduler.reset_prefix_cache()
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.check_integrity()
    assert states_of(worker).pool.num_free == 8


def test_whoever_has_gone_on_from_a_bad_state_starts_anew() -> None:
    """CK10, N2. The blocks ahead of it were good, and another's."""
    scheduler, worker = make_ring(max_num_batched_tokens=16)
    submit(scheduler, "good", 9, 1, 2)
    step(scheduler)
    states_of(worker).pool.reset_cache()
    submit(scheduler, "bad", 9, 1, 2)
    made = step(scheduler)
    assert starts(made) == [0] and positions(made) == [8]
    submit(scheduler, "heir", 13, 1, 2, 3)
    assert starts(step(scheduler)) == [8]
    fail(scheduler, made.started[0].chunk.slot)
    assert lost(scheduler) == {"heir": LossCause.BAD_BLOCKS}
    assert not states_of(worker).pool.has_content.any()


def test_where_prompts_alone_count_decoding_keeps_nothing() -> None:
    """CK11: no place is given to what the worker would not keep; a prompt that is cut off is a prompt."""
    scheduler, worker = make_ring(prompts_only=True, max_num_batched_tokens=16)
    submit(scheduler, "first", 13, 1, 2, 3)
    assert positions(step(scheduler)) == [8]
    say(worker, 12, 4, 5, 6)
    assert positions(end(scheduler, 0)) == []
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    submit(scheduler, "long", 40, *range(11, 21))
    step(scheduler)
    made = StepDecision(9, 1)
    slot = scheduler.requests[RequestKey("f", "long")].slot
    assert slot is not None
    worker.preempt(slot, made)
    assert [order.position for order in states_of(worker).name_leaving()] == [0]


def test_where_prompts_alone_count_their_ends_outlive_others() -> None:
    """CK8, CK11."""
    states = Checkpoints(StateGroup(BOUNDARY, 4, prompts_only=True), 4, 4)
    states.start(0, 0, NO_CHECKPOINT, is_kept=True)
    (made,) = states.order(0, 8)
    states.take_report(made, 8, hashes(2))
    assert not states.pool._is_passed[made.checkpoint]


def test_a_process_that_says_hello_again_has_its_checkpoints_yet() -> None:
    """CK10, A5. What was being written when the link was lost has no name."""
    scheduler, old = make_ring()
    submit(scheduler, "first", 9, 1, 2)
    step(scheduler)
    submit(scheduler, "second", 17, 1, 2, 5, 6)
    assert scheduler.schedule(WORKER, 0.0) is not None
    new = Worker(old.info, old.limits)
    assert is_same_cache(new, old)
    keep_cache(new, old, 1, [np.empty(0, np.int32)])
    assert states_of(new).longest(hashes(1, 2)) == (2, 0)
    pool = states_of(new).pool
    pool.check_integrity([])
    assert (pool.num_cached, pool.num_free) == (1, 7)
    assert states_of(new)._kinds[0] == Kind.PROMPT, "it is known where it was made"


def kept(states: Checkpoints, slot: int, position: int, number: int, *, is_shared: bool = False) -> int:
    """A slot that runs has a state kept; returns where."""
    (order,) = states.order(slot, position, is_shared=is_shared)
    states.take_report(order, position or 16, hashes(number))
    return order.checkpoint


def test_what_is_worth_least_is_given_away_first() -> None:
    """CK8. The end of a turn outlives its prompt's end, and where prompts part outlives both."""
    states = Checkpoints(StateGroup(BOUNDARY, 4), 4, 4)
    states.start(0, 0, NO_CHECKPOINT, is_kept=True)
    parting = kept(states, 0, 4, 1, is_shared=True)
    prompt = kept(states, 0, 8, 2)
    last = kept(states, 0, 0, 3)
    states.start(1, 0, NO_CHECKPOINT, is_kept=True)
    other = kept(states, 1, 16, 4)
    assert [int(states.pool.take(1)[0]) for _ in range(4)] == [prompt, other, parting, last]


def test_a_place_that_was_given_to_another_state_is_no_slot_s_any_more() -> None:
    """C3: neither is the new state given away early, nor forgotten with what the slot went on from."""
    states = Checkpoints(StateGroup(BOUNDARY, 1), 4, 4)
    states.start(0, 0, NO_CHECKPOINT, is_kept=True)
    (first,) = states.order(0, 8)
    states.take_report(first, 8, hashes(1))
    states.start(1, 8, first.checkpoint, is_kept=True)
    states.release(first.checkpoint)
    assert states.origin_of(1) == first.checkpoint
    states.start(2, 0, NO_CHECKPOINT, is_kept=True)
    (second,) = states.order(2, 8, is_shared=True)
    states.take_report(second, 8, hashes(2))
    assert second.checkpoint == first.checkpoint and states.origin_of(1) == NO_CHECKPOINT
    assert not states._is_valid(states._last[0])


@pytest.mark.parametrize("prompts_only", [False, True])
def test_a_prompt_s_end_goes_first_unless_prompts_alone_count(prompts_only: bool) -> None:
    """CK8, CK11: whatever callers have gone on from before."""
    states = Checkpoints(StateGroup(BOUNDARY, 4, prompts_only=prompts_only), 4, 4)
    states.start(0, 0, NO_CHECKPOINT, is_kept=True)
    prompt, last = kept(states, 0, 8, 2), kept(states, 0, 0, 3)
    states.start(1, 8, prompt, is_kept=True)
    states.release(prompt)
    states.start(2, 0, NO_CHECKPOINT, is_kept=True)
    prompt, last = kept(states, 2, 8, 5), kept(states, 2, 0, 6)
    order = states.pool.next_blocks(4).tolist()
    assert (order.index(last) < order.index(prompt)) is prompts_only
