"""What was computed before a reset of the prefix cache, or from it, is never hit after it."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.recovery.snapshot import SlotSnapshot, WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from signalbox.protocol.enums import SlotStatus
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, report_for, run_step

HASHES = bytes(range(48))


def cached(scheduler: Scheduler) -> int:
    """Blocks whose content could be hit."""
    return int(np.count_nonzero(scheduler.workers[WORKER].pool.has_content))


def report_seal(scheduler: Scheduler, index: int) -> None:
    """The oldest step in flight, in which slot 0 filled a block."""
    report = report_for(scheduler)
    report.sealed_slots, report.sealed_indexes = np.array([0]), np.array([index])
    report.sealed_hashes = np.frombuffer(bytes([index]) * 16, HASH_DTYPE)
    scheduler.update(WORKER, report, 0.0)


def test_a_chunk_in_flight_is_not_published() -> None:
    """C7."""
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.submit(make_request("a", 12, hashes=HASHES), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None
    scheduler.reset_prefix_cache()
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert cached(scheduler) == 0


def test_nor_is_what_its_request_computes_later() -> None:
    """C7: later positions read the earlier ones."""
    scheduler = make_scheduler(max_inflight_steps=1, max_num_batched_tokens=4, max_num_seqs=4)
    scheduler.submit(make_request("a", 12, hashes=HASHES), 0.0)
    run_step(scheduler)
    assert cached(scheduler) == 1
    assert scheduler.reset_prefix_cache() == 1
    for _ in range(2):
        run_step(scheduler)
    scheduler.schedule(WORKER, 0.0)
    report_seal(scheduler, 3)
    assert cached(scheduler) == 0
    scheduler.check_integrity()


@pytest.mark.parametrize("is_preempted", [True, False])
def test_what_starts_after_it_is_published(is_preempted: bool) -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.submit(make_request("a", 12, hashes=HASHES), 0.0)
    run_step(scheduler)
    scheduler.reset_prefix_cache()
    if is_preempted:
        scheduler.workers[WORKER].table.refuse(0)
    else:
        scheduler.submit(make_request("b", 12, hashes=HASHES), 0.0)
    assert sum(start.chunk.start for start in run_step(scheduler).started) == 0, "nothing is hit"
    run_step(scheduler)
    assert cached(scheduler) == 3


def test_nobody_waits_for_a_leader_that_publishes_nothing() -> None:
    """C7."""
    scheduler = make_scheduler(max_inflight_steps=1, max_num_batched_tokens=8, max_num_seqs=4)
    scheduler.submit(make_request("a", 12, hashes=HASHES), 0.0)
    run_step(scheduler)
    scheduler.reset_prefix_cache()
    scheduler.submit(make_request("b", 12, hashes=HASHES), 0.0)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and [request.key.request_id for request in step.placed] == ["b"]


@pytest.mark.parametrize("is_reset", [True, False])
def test_a_broken_link_does_not_bring_it_back(is_reset: bool) -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    request = make_request("a", 12, hashes=HASHES)
    scheduler.submit(request, 0.0)
    run_step(scheduler)
    worker = scheduler.workers[WORKER]
    if is_reset:
        scheduler.reset_prefix_cache()
    slot = SlotSnapshot(0, request, SlotStatus.DECODE, worker.table.table(0).copy(), b"", 12, 1, 12)
    scheduler.attach_worker(worker.info, WorkerSnapshot(1, 1, [slot]), 0.0)
    assert cached(scheduler) == (0 if is_reset else 3)
    run_step(scheduler)
    scheduler.submit(make_request("b", 12, hashes=HASHES), 0.0)
    run_step(scheduler)
    assert cached(scheduler) == 3, "new requests are published"
    scheduler.check_integrity()
