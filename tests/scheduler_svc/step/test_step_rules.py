"""Rules of a step and its report, one by one: K4, K7, L13, V5, X8."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker_info import WorkerInfo
from signalbox.protocol.columns import HOST_BIT
from signalbox.protocol.enums import FinishReason
from tests.scheduler_svc.harness import (
    MODEL,
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    name_of,
    report_for,
    run_step,
    tokens_by_name,
)

HASHES = bytes(range(64))


def schedule(scheduler: Scheduler, worker_id: str = WORKER) -> StepDecision:
    step = scheduler.schedule(worker_id, 0.0)
    scheduler.check_integrity()
    assert step is not None
    return step


def started(scheduler: Scheduler, step: StepDecision) -> list[str]:
    """Names of those that start in `step`."""
    return [name_of(scheduler.workers[WORKER], start.chunk.slot) for start in step.started]


def assert_the_beginning_is_kept_longest(scheduler: Scheduler) -> None:
    """Of two cached blocks of a request that has ended, the second is given away first."""
    pool = scheduler.workers[WORKER].pool
    assert len(pool.lookup(np.frombuffer(HASHES[:32], HASH_DTYPE))) == 2
    pool.take(pool.num_free + 1)
    assert len(pool.lookup(np.frombuffer(HASHES[:32], HASH_DTYPE))) == 1


def test_the_prompt_of_a_request_that_ends_with_its_chunk_is_cached() -> None:
    """K4: chunks are read ahead of finishes."""
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.submit(make_request("a", 9, max_tokens=1, hashes=HASHES[:32]), 0.0)
    slot = schedule(scheduler).started[0].chunk.slot
    scheduler.update(WORKER, report_for(scheduler, ((slot, FinishReason.LENGTH, 1),)), 0.0)
    assert_the_beginning_is_kept_longest(scheduler)


def test_a_block_that_is_sealed_with_the_end_of_its_request_is_cached() -> None:
    """K4: seals are read ahead of finishes."""
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.submit(make_request("a", 7, hashes=HASHES[:16]), 0.0)
    slot = schedule(scheduler).started[0].chunk.slot
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    schedule(scheduler)
    report = report_for(scheduler, ((slot, FinishReason.STOP, 2),))
    report.sealed_slots, report.sealed_indexes = np.array([slot]), np.array([1])
    report.sealed_hashes = np.frombuffer(HASHES[16:32], HASH_DTYPE)
    scheduler.update(WORKER, report, 0.0)
    assert_the_beginning_is_kept_longest(scheduler)


@pytest.mark.parametrize("kind", ["preempted", "paused", "preparing"])
def test_who_has_no_row_keeps_a_slot_and_takes_no_place(kind: str) -> None:
    """K7: there are more slots than places."""
    scheduler = make_scheduler(num_slots=3, max_num_seqs=1, max_inflight_steps=1)
    scheduler.submit(make_request("a", 6, has_grammar=kind == "preparing"), 0.0)
    run_step(scheduler)
    worker = scheduler.workers[WORKER]
    if kind == "paused":
        scheduler.set_paused(RequestKey("f", "a"), 1, True)
    elif kind == "preempted":
        worker.preempt(0, StepDecision(worker.next_step_id))
        scheduler.set_paused(RequestKey("f", "a"), 1, True)  # or it would go on at once
    scheduler.submit(make_request("b", 6), 0.0)
    step = run_step(scheduler)
    assert started(scheduler, step) == ["b"]
    assert worker.table.num_free_slots == 1
    assert name_of(worker, 0) == "a"


def test_a_preempted_request_goes_on_where_it_was() -> None:
    """K7: it is tied to its worker, though another one has nothing to do."""
    scheduler = make_scheduler(
        num_blocks=6, watermark_blocks_per_seq=0, max_inflight_steps=1, max_model_len=20
    )
    for name in ("old", "young"):
        scheduler.submit(make_request(name, 8), 0.0)
    while not (step := run_step(scheduler)).preempted_slots:
        pass
    (slot,) = step.preempted_slots
    scheduler.attach_worker(WorkerInfo("idle", "i", "a:2", MODEL, 16, 64, 4, 1 << 20, 1 << 20), None, 0.0)
    assert scheduler.schedule("idle", 0.0) is None
    scheduler.cancel(RequestKey("f", "old"), 1)
    assert [start.chunk.slot for start in run_step(scheduler).resumed] == [slot]


def test_an_end_that_is_not_known_yet_costs_the_steps_in_flight_and_no_more() -> None:
    """L13."""
    scheduler = make_scheduler(num_blocks=256, max_inflight_steps=2, max_num_batched_tokens=16)
    scheduler.submit(make_request("a", 4), 0.0)
    slot = schedule(scheduler).started[0].chunk.slot
    scheduler.submit(make_request("b", 400), 0.0)
    assert tokens_by_name(scheduler, schedule(scheduler)) == {"a": 1, "b": 15}
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert tokens_by_name(scheduler, schedule(scheduler)) == {"a": 1, "b": 15}
    # It ended in the step before the one that was just sent, which therefore has a row for nobody.
    scheduler.update(WORKER, report_for(scheduler, ((slot, FinishReason.STOP, 2),)), 0.0)
    assert tokens_by_name(scheduler, schedule(scheduler)) == {"b": 16}


def first_preemption(policy: str, **fields: object) -> tuple[Scheduler, StepDecision]:
    """The step in which one of two requests loses its blocks to the other, while a third one, made of `fields`, waits
    and would go before it."""
    scheduler = make_scheduler(
        num_blocks=6, watermark_blocks_per_seq=0, max_inflight_steps=1, max_model_len=20, policy=policy
    )
    for name in ("old", "young"):
        scheduler.submit(make_request(name, 8, tenant="busy"), 0.0)
    worker = scheduler.workers[WORKER]
    run_step(scheduler)
    while worker.pool.num_available or worker.table.bound[0] < worker.table.trigger[0]:
        run_step(scheduler)
    scheduler.submit(make_request("new", 2, max_tokens=1, **fields), 0.0)
    step = run_step(scheduler)
    assert step.preempted_slots and worker.pool.num_available > 0, "there is a block for the new one"
    return scheduler, step


def test_nobody_starts_in_a_step_that_takes_blocks_from_a_request() -> None:
    """V5: what a preemption has freed is for those that run."""
    scheduler, step = first_preemption("fair", tenant="new")
    assert not step.started and not step.resumed
    assert started(scheduler, run_step(scheduler)) == ["new"]


def test_who_may_displace_others_starts_in_such_a_step() -> None:
    """V5: it could take a place and blocks anyway."""
    scheduler, step = first_preemption("priority", priority=-1)
    assert started(scheduler, step) == ["new"]


def test_the_one_block_of_a_row_is_copied_within_the_step() -> None:
    """X8: what its block had goes to the host tier ahead of the step's work, however few copies a fence needs."""
    scheduler = make_scheduler(watermark_blocks_per_seq=0, side_copy_blocks=1, max_inflight_steps=1)
    worker = scheduler.attach_worker(make_info(num_blocks=4, num_host_blocks=8), None, 0.0)
    scheduler.submit(make_request("gone", 9, max_tokens=1, hashes=HASHES[:32]), 0.0)
    slot = schedule(scheduler).started[0].chunk.slot
    scheduler.update(WORKER, report_for(scheduler, ((slot, FinishReason.LENGTH, 1),)), 0.0)
    scheduler.submit(make_request("row", 7), 0.0)
    copies = []
    for _ in range(8):
        step = run_step(scheduler)
        assert step.fence is None
        assert not (step.copies and not len(step.grant_slots)), "the row's block alone costs a copy"
        copies += step.copies
    assert [copy.target & HOST_BIT for copy in copies] == [HOST_BIT] * 2
    assert worker.table.num_blocks[worker.table.decode_slots].tolist() == [4]
