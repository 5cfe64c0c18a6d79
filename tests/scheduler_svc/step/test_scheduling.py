"""What goes into a step."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.recovery.frontend_desk import Question
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.requests.request import RequestKey, RequestStatus
from scheduler_svc.core.state.steps.step import StepReport
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.core.step.shortage import certain_to_end
from signalbox.protocol.enums import FinishReason
from tests.scheduler_svc.harness import (
    MODEL,
    WORKER,
    make_request,
    make_scheduler,
    report_for,
    run_step,
    tokens_by_name,
)


def test_the_worked_example_of_the_design() -> None:
    """L12."""
    scheduler = make_scheduler(max_num_batched_tokens=10, max_inflight_steps=1)
    for name, length in (("R1", 3), ("R2", 5), ("R3", 12)):
        scheduler.submit(make_request(name, length), 0.0)
    seen = []
    for _ in range(5):
        step = scheduler.schedule(WORKER, 0.0)
        assert step is not None
        seen.append(tokens_by_name(scheduler, step))
        scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert seen[0] == {"R1": 3, "R2": 5, "R3": 2}
    assert seen[1] == {"R1": 1, "R2": 1, "R3": 8}
    assert seen[2] == {"R1": 1, "R2": 1, "R3": 2}
    assert seen[3] == seen[4] == {"R1": 1, "R2": 1, "R3": 1}


def test_steps_are_sent_ahead_and_no_further() -> None:
    """L17."""
    scheduler = make_scheduler(max_inflight_steps=2)
    scheduler.submit(make_request("a", 3), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None
    assert scheduler.schedule(WORKER, 0.0) is not None
    assert scheduler.schedule(WORKER, 0.0) is None
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None


def test_a_steady_step_names_only_who_gets_a_block() -> None:
    """M4."""
    scheduler = make_scheduler(num_blocks=256, block_size=4)
    for number in range(8):
        scheduler.submit(make_request(f"r{number}", 5 + number % 4), 0.0)
    run_step(scheduler)
    granted = set()
    for _ in range(8):
        step = run_step(scheduler)
        assert not step.names_slots
        assert step.num_decode_rows == 8
        assert len(step.grant_slots) == 2, "one in four at block size 4"
        granted |= set(step.grant_slots.tolist())
    assert len(granted) == 8


def test_a_long_prompt_is_cut_by_the_threshold() -> None:
    scheduler = make_scheduler(long_prefill_token_threshold=6)
    scheduler.submit(make_request("a", 14), 0.0)
    lengths = [
        [c.length for c in (*s.chunks, *(x.chunk for x in s.started))]
        for s in (run_step(scheduler) for _ in range(4))
    ]
    assert lengths == [[6], [6], [2], []]


def test_without_chunked_prefill_a_prompt_runs_whole_or_waits() -> None:
    """L16."""
    scheduler = make_scheduler(enable_chunked_prefill=False, max_num_batched_tokens=20, max_num_seqs=4)
    scheduler.submit(make_request("a", 12), 0.0)
    scheduler.submit(make_request("b", 12), 0.0)
    assert tokens_by_name(scheduler, run_and_keep(scheduler)) == {"a": 12}
    assert tokens_by_name(scheduler, run_and_keep(scheduler)) == {"a": 1, "b": 12}
    scheduler.submit(make_request("c", 21), 0.0)
    assert rejections(scheduler)[0].field == "prompt"


def run_and_keep(scheduler):  # type: ignore[no-untyped-def]
    return scheduler.schedule(WORKER, 0.0)


def rejections(scheduler) -> list[Rejected]:  # type: ignore[no-untyped-def]
    return [notice for notice in scheduler.drain_notices() if isinstance(notice, Rejected)]


def test_partial_prefills_are_limited() -> None:
    scheduler = make_scheduler(
        max_num_partial_prefills=1, max_num_batched_tokens=100, long_prefill_token_threshold=4
    )
    for name in "abc":
        scheduler.submit(make_request(name, 10), 0.0)
    assert set(tokens_by_name(scheduler, run_and_keep(scheduler))) == {"a"}


def test_a_cancel_frees_its_blocks_in_the_next_delta() -> None:
    """K2, Z3."""
    scheduler = make_scheduler(max_inflight_steps=2)
    scheduler.submit(make_request("a", 9), 0.0)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None
    slot = step.started[0].chunk.slot
    worker = scheduler.workers[WORKER]
    assert worker.pool.num_available < worker.pool.num_blocks
    scheduler.cancel(RequestKey("f", "a"), 1)
    following = scheduler.schedule(WORKER, 0.0)
    assert following is not None
    assert following.finished_slots == [slot]
    assert worker.pool.num_available == worker.pool.num_blocks
    assert worker.table.num_free_slots == worker.table.num_slots - 1, "the slot waits for the report"
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert worker.table.num_free_slots == worker.table.num_slots


def test_an_ended_slot_is_acknowledged_once_and_returns() -> None:
    """K6, M7."""
    scheduler = make_scheduler(max_inflight_steps=1)
    request = make_request("a", 3, max_tokens=1)
    scheduler.submit(request, 0.0)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None
    slot = step.started[0].chunk.slot
    scheduler.update(WORKER, report_for(scheduler, ((slot, FinishReason.LENGTH, 1),)), 0.0)
    assert request.status is RequestStatus.FINISHED_LENGTH_CAPPED
    empty = run_step(scheduler)
    assert empty.finished_slots == [slot]
    assert empty.num_decode_rows == 0
    assert scheduler.schedule(WORKER, 0.0) is None


def test_the_same_id_again_while_the_old_step_is_in_flight() -> None:
    """I1."""
    scheduler = make_scheduler(max_inflight_steps=2)
    scheduler.submit(make_request("a", 6), 0.0)
    first = scheduler.schedule(WORKER, 0.0)
    scheduler.cancel(RequestKey("f", "a"), 1)
    scheduler.submit(make_request("a", 6, attempt=2), 0.0)
    second = scheduler.schedule(WORKER, 0.0)
    assert first is not None and second is not None
    assert first.started[0].chunk.slot != second.started[0].chunk.slot
    scheduler.check_integrity()


def test_a_block_shortage_preempts_the_younger_and_resumes_it() -> None:
    """V2, L15."""
    scheduler = make_scheduler(
        num_blocks=6, watermark_blocks_per_seq=0, max_inflight_steps=1, max_model_len=20
    )
    scheduler.submit(make_request("old", 8), 0.0)
    scheduler.submit(make_request("young", 8), 0.0)
    preempted = []
    for _ in range(8):
        step = run_step(scheduler)
        preempted += step.preempted_slots
        scheduler.check_integrity()
    worker = scheduler.workers[WORKER]
    assert [worker.request(slot).key.request_id for slot in preempted] == ["young"]
    scheduler.cancel(RequestKey("f", "old"), 1)
    step = run_step(scheduler)
    assert [worker.request(start.chunk.slot).key.request_id for start in step.resumed] == ["young"]


def test_no_victim_falls_while_blocks_are_certain_to_come() -> None:
    """V1: the younger reaches its limit within the steps in flight: the older waits for its blocks."""
    scheduler = make_scheduler(num_blocks=4, watermark_blocks_per_seq=0, max_inflight_steps=2)
    scheduler.submit(make_request("old", 8), 0.0)
    scheduler.submit(make_request("young", 7, max_tokens=1), 0.0)
    first, second = scheduler.schedule(WORKER, 0.0), scheduler.schedule(WORKER, 0.0)
    assert first is not None and second is not None
    old, young = (start.chunk.slot for start in first.started)
    assert (second.paused_slots, second.preempted_slots) == ([old], [])
    scheduler.update(WORKER, report_for(scheduler, ((young, FinishReason.LENGTH, 1),)), 0.0)
    third = scheduler.schedule(WORKER, 0.0)
    assert third is not None
    assert (third.finished_slots, third.unpaused_slots) == ([young], [old])
    assert third.grant_slots.tolist() == [old]
    scheduler.check_integrity()


def test_a_prefix_is_hit_once_its_chunk_has_been_reported() -> None:
    """C4, C5."""
    scheduler = make_scheduler(max_inflight_steps=1)
    hashes = bytes(range(48))
    scheduler.submit(make_request("a", 13, hashes=hashes), 0.0)
    run_step(scheduler)
    scheduler.submit(make_request("b", 13, hashes=hashes), 0.0)
    scheduler.submit(make_request("c", 12, hashes=hashes), 0.0)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None
    starts = {s.chunk.slot: s.chunk.start for s in step.started}
    assert sorted(starts.values()) == [8, 12], (
        "of 12 tokens at least one is computed, so only two blocks are hit"
    )


def test_a_prompt_that_can_never_fit_is_refused() -> None:
    """V7."""
    scheduler = make_scheduler(num_blocks=4, block_size=4)
    scheduler.submit(make_request("a", 17), 0.0)
    assert "17 tokens" in rejections(scheduler)[0].message
    scheduler.submit(make_request("b", 16, max_tokens=5), 0.0)
    assert rejections(scheduler) == []
    assert scheduler.schedule(WORKER, 0.0) is not None


def test_an_unknown_model_is_refused() -> None:
    scheduler = make_scheduler()
    scheduler.submit(make_request("a", 3, model="other"), 100.0)
    assert rejections(scheduler)[0].field == "model"


def test_a_request_waits_a_while_for_the_first_worker_of_its_model() -> None:
    scheduler = make_scheduler(no_worker_grace_s=30.0)
    scheduler.submit(make_request("a", 3, model="other"), 1.0)
    scheduler.tick(29.0)
    assert not rejections(scheduler)
    scheduler.tick(31.0)
    assert rejections(scheduler)[0].code == "UnavailableError"
    scheduler.check_integrity()


def test_who_waited_for_a_worker_that_is_too_small_is_refused_when_it_comes() -> None:
    scheduler = make_scheduler()
    scheduler.submit(make_request("a", 100, model="other"), 1.0)
    scheduler.attach_worker(WorkerInfo("w2", "i", "a:2", "other", 16, 8, 4, 1 << 20, 1 << 20), None, 2.0)
    assert rejections(scheduler)[0].field == "prompt"


def test_contradicting_settings_are_refused_when_a_worker_attaches() -> None:
    """L12."""
    with pytest.raises(ValueError, match="max_num_seqs is 8"):
        make_scheduler(max_num_seqs=8, max_num_batched_tokens=4)


def test_a_cached_prefix_is_worth_a_short_wait() -> None:
    """Q4."""
    scheduler = make_scheduler(max_inflight_steps=1, affinity_min_tokens=8, affinity_wait_ms=50)
    scheduler.attach_worker(WorkerInfo("w2", "i", "a:2", MODEL, 16, 64, 4, 1 << 20, 1 << 20), None, 0.0)
    hashes = bytes(range(64))
    scheduler.submit(make_request("a", 17, hashes=hashes), 0.0)
    run_step(scheduler)
    scheduler.submit(make_request("b", 17, hashes=hashes), 1.0)
    assert scheduler.schedule("w2", 1.0) is None, "left for the worker that has the prefix"
    step = scheduler.schedule(WORKER, 1.01)
    assert step is not None and step.started[0].chunk.start == 16
    scheduler.submit(make_request("c", 17, hashes=hashes), 2.0)
    assert scheduler.schedule("w2", 2.0) is None
    late = scheduler.schedule("w2", 2.06)
    assert late is not None and late.placed[0].key.request_id == "c", "but not for long"


def test_without_a_cached_prefix_the_emptier_worker_takes_it() -> None:
    """Q4."""
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.attach_worker(WorkerInfo("w2", "i", "a:2", MODEL, 16, 64, 4, 1 << 20, 1 << 20), None, 0.0)
    scheduler.submit(make_request("a", 5), 0.0)
    run_step(scheduler)
    scheduler.submit(make_request("b", 5), 0.0)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and not step.placed
    other = scheduler.schedule("w2", 0.0)
    assert other is not None and other.placed[0].key.request_id == "b"


def test_priority_goes_before_arrival() -> None:
    """Q1."""
    scheduler = make_scheduler(policy="priority", max_num_seqs=1, max_inflight_steps=1)
    for name, priority in (("first", 5), ("urgent", -1), ("second", 5)):
        scheduler.submit(make_request(name, 3, max_tokens=1, priority=priority), 0.0)
    order = []
    while (step := scheduler.schedule(WORKER, 0.0)) is not None:
        finished = tuple((s.chunk.slot, FinishReason.LENGTH, 1) for s in step.started)
        order += [request.key.request_id for request in step.placed]
        scheduler.update(WORKER, report_for(scheduler, finished), 0.0)
    assert order == ["urgent", "first", "second"]


def make_pooling_scheduler(**settings: object):  # type: ignore[no-untyped-def]
    """One worker that pools, and one of another model that does not."""
    scheduler = make_scheduler(**settings)  # type: ignore[arg-type]
    info = WorkerInfo("p", "i", "a:3", "pools", 16, 8, 4, 1 << 20, 1 << 20, serves_pooling=True)
    scheduler.attach_worker(info, None, 0.0)
    return scheduler


def test_a_pooling_request_goes_where_it_is_served_or_is_refused() -> None:
    scheduler = make_pooling_scheduler()
    scheduler.submit(make_request("a", 5, max_tokens=0, is_pooling=True), 0.0)
    refused = rejections(scheduler)
    assert (refused[0].code, refused[0].field) == ("UnsupportedError", "kind")
    scheduler.submit(make_request("b", 5, max_tokens=0, is_pooling=True, model="pools"), 0.0)
    assert not rejections(scheduler)
    assert scheduler.schedule("p", 0.0) is not None


def test_a_pooling_prompt_may_fill_the_cache_and_no_more() -> None:
    """L8."""
    scheduler = make_pooling_scheduler()
    scheduler.submit(make_request("over", 33, is_pooling=True, model="pools"), 0.0)
    assert rejections(scheduler)[0].field == "prompt"
    scheduler.submit(make_request("prior", 9, is_pooling=True, model="pools", num_prior_output_tokens=1), 0.0)
    assert "output" in rejections(scheduler)[0].message
    scheduler.submit(make_request("whole", 32, is_pooling=True, model="pools"), 0.0)
    assert scheduler.schedule("p", 0.0) is not None


@pytest.mark.parametrize("inflight", [1, 2, 4])
def test_a_pooling_request_ends_with_its_final_chunk_and_makes_no_row(inflight: int) -> None:
    """L8."""
    scheduler = make_pooling_scheduler(max_inflight_steps=inflight, max_num_batched_tokens=8)
    request = make_request("a", 12, max_tokens=0, is_pooling=True, model="pools")
    scheduler.submit(request, 0.0)
    worker, records = scheduler.workers["p"], 0
    while not request.status.is_finished:
        while scheduler.schedule("p", 0.0) is not None:
            scheduler.check_integrity()
        record = worker.records[0]
        report = StepReport(record.step_id, 0, record.num_prefill_tokens)
        if record.chunks[-1].is_final:
            assert certain_to_end(worker).tolist() == [record.chunks[-1].slot]
            report.exception_slots, report.exception_counts = (
                np.array([record.chunks[-1].slot]),
                np.array([0]),
            )
            report.finished = [(record.chunks[-1].slot, FinishReason.STOP, 0)]
        scheduler.update("p", report, 0.0)
        scheduler.check_integrity()
        records += 1
    assert records == 2 and not worker.records, "nothing was sent behind the final chunk"
    assert request.status is RequestStatus.FINISHED_STOPPED
    assert worker.stats.num_output_tokens == 0
    assert worker.pool.num_available == worker.pool.num_blocks


def test_a_pooling_request_computes_every_position() -> None:
    """C5."""
    scheduler = make_pooling_scheduler(max_inflight_steps=1, watermark_blocks_per_seq=0)
    hashes = bytes(range(48))
    scheduler.submit(make_request("a", 13, hashes=hashes, model="pools"), 0.0)
    step = scheduler.schedule("p", 0.0)
    assert step is not None
    scheduler.update("p", StepReport(step.step_id, 0, 13), 0.0)
    scheduler.submit(make_request("b", 13, hashes=hashes, model="pools", is_pooling=True), 0.0)
    step = scheduler.schedule("p", 0.0)
    assert step is not None and step.started[0].chunk.start == 0


def test_hashes_of_blocks_of_another_size_name_nothing() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    for name in ("a", "b"):
        scheduler.submit(make_request(name, 13, hashes=bytes(range(48)), hash_block_size=2), 0.0)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and [s.chunk.length for s in step.started] == [13, 13]
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert not scheduler.workers[WORKER].pool._block_of


def test_only_the_worker_that_has_a_request_puts_it_in_doubt() -> None:
    """J2."""
    scheduler = make_scheduler()
    request = make_request("a", 4)
    scheduler.submit(request, 0.0)
    scheduler.schedule(WORKER, 0.0)
    scheduler.check(Question(request.key, 1, "another", "its new process"), 0.0)
    assert not request.in_doubt
    scheduler.check(Question(request.key, 1, WORKER, "a new process"), 0.0)
    assert request.in_doubt


def test_a_full_queue_refuses_with_its_limit_and_a_time() -> None:
    scheduler = make_scheduler(max_waiting=1)
    for name in ("waits", "refused"):
        scheduler.submit(make_request(name, 3), 0.0)
    (refused,) = scheduler.drain_notices()
    assert isinstance(refused, Rejected)
    assert refused.message == "max_waiting: 1 of 1 requests for 'm' wait already; try again in 1 s"
    assert (refused.code, refused.retry_after_s) == ("ResourceExhaustedError", 1.0)


def test_a_better_class_is_looked_at_again_when_a_slot_is_free_again() -> None:
    """With every place taken and no slot, nothing comes or goes when the slot of a request that ended is free."""
    scheduler = make_scheduler(
        num_slots=2, max_num_seqs=1, max_inflight_steps=1, policy="priority", aging_s=0.0
    )
    for name, priority in (("low", 5), ("middle", 3), ("urgent", 0)):
        scheduler.submit(make_request(name, 3, priority=priority), 0.0)
        run_step(scheduler)
        run_step(scheduler)
    scheduler.cancel(make_request("low", 1).key, 1)
    assert run_step(scheduler).placed == [], "the slot is free when the report is back"
    assert [request.key.request_id for request in run_step(scheduler).placed] == ["urgent"]
