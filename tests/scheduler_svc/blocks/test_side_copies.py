"""Starts whose copies between device and host tier run beside the steps."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.parts.fetch import host
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.host_cache import HostCache
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_info import WorkerInfo
from signalbox.protocol.columns import HOST_BIT
from tests.scheduler_svc.harness import (
    MODEL,
    WORKER,
    make_request,
    make_scheduler,
    report_for,
    tokens_by_name,
)

BLOCK_SIZE = 4


def hashes(first: int, count: int) -> bytes:
    """Of so many blocks of a prompt that begins with block `first`."""
    return b"".join((first * 100 + number).to_bytes(16, "little") for number in range(count))


def with_host_tier(
    num_blocks: int, num_host_blocks: int = 16, **settings: object
) -> tuple[Scheduler, Worker]:
    """A scheduler with one worker, whose host tier has the first six blocks of prompt 1."""
    scheduler = make_scheduler(**{"watermark_blocks_per_seq": 0, "side_copy_blocks": 4} | settings)  # type: ignore[arg-type]
    info = WorkerInfo(
        WORKER,
        "i",
        "a:1",
        MODEL,
        16,
        num_blocks,
        BLOCK_SIZE,
        1 << 20,
        1 << 20,
        num_host_blocks=num_host_blocks,
    )
    worker = scheduler.attach_worker(info, None, 0.0)
    contents = hashes(1, 6)
    for number in range(6):
        worker.host.store(contents[16 * number :][:16], frozenset())
    return scheduler, worker


def schedule(scheduler: Scheduler) -> StepDecision:
    step = scheduler.schedule(WORKER, 0.0)
    scheduler.check_integrity()
    assert step is not None
    return step


def end_fence(scheduler: Scheduler, step: StepDecision, *, failed: bool = False) -> None:
    assert step.fence is not None
    scheduler.standings.refresh()
    scheduler.fence_ended(WORKER, step.fence.fence_id, failed=failed)
    scheduler.standings.refresh()
    assert scheduler.standings.is_true(WORKER), "placement knows the room that the copies have left"
    scheduler.check_integrity()


def test_a_start_with_many_copies_waits_for_them_and_finds_the_blocks() -> None:
    """X4."""
    scheduler, worker = with_host_tier(num_blocks=20)
    scheduler.submit(make_request("r", 26, hashes=hashes(1, 6)), 0.0)
    step = schedule(scheduler)
    assert step.fence is not None and not step.started and not step.placed
    assert [copy.source & HOST_BIT for copy in step.fence.copies] == [HOST_BIT] * 6
    assert worker.pool.num_fenced == 6 and worker.pool.num_available == 14
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is None, "it waits"
    end_fence(scheduler, step)
    assert schedule(scheduler).started[0].chunk[1:3] == (24, 2)


def test_a_start_with_few_copies_makes_them_in_its_step() -> None:
    """X4."""
    scheduler, _ = with_host_tier(num_blocks=20, side_copy_blocks=7)
    scheduler.submit(make_request("r", 26, hashes=hashes(1, 6)), 0.0)
    step = schedule(scheduler)
    assert step.fence is None and len(step.copies) == 6 and len(step.started) == 1


def test_without_the_setting_nobody_waits() -> None:
    scheduler, _ = with_host_tier(num_blocks=20, side_copy_blocks=0)
    scheduler.submit(make_request("r", 26, hashes=hashes(1, 6)), 0.0)
    assert schedule(scheduler).fence is None


def test_what_is_saved_beside_the_steps_is_free_afterwards() -> None:
    """X6."""
    scheduler, worker = with_host_tier(num_blocks=8)
    cached = worker.pool.take(8)
    worker.pool.publish(cached, np.frombuffer(hashes(2, 8), "V16"))
    worker.pool.release(cached)
    scheduler.submit(make_request("r", 22, hashes=hashes(3, 5)), 0.0)
    step = schedule(scheduler)
    assert step.fence is not None and len(step.fence.copies) == 6 and not step.copies
    assert worker.host.lookup([hashes(2, 8)[-16:]]) == [], "it is still on its way"
    end_fence(scheduler, step)
    assert worker.pool.num_free == 6 and worker.pool.num_cached == 2
    assert len(worker.host.lookup([hashes(2, 8)[-16:]])) == 1
    step = schedule(scheduler)
    assert len(step.started) == 1 and not step.copies


@pytest.mark.parametrize("failed", [False, True])
def test_what_was_fetched_before_a_reset_or_in_vain_is_not_published(failed: bool) -> None:
    """X9, C7."""
    scheduler, worker = with_host_tier(num_blocks=20)
    scheduler.submit(make_request("r", 26, hashes=hashes(1, 6)), 0.0)
    step = schedule(scheduler)
    if not failed:
        scheduler.reset_prefix_cache()
        scheduler.check_integrity()
    end_fence(scheduler, step, failed=failed)
    assert worker.pool.num_free == 20 and not worker.pool.num_fenced
    step = schedule(scheduler)
    # After a failure the host tier still has the content: it is copied within the step.
    assert (step.started[0].chunk.start, len(step.copies)) == ((24, 6) if failed else (0, 0))


def test_a_request_waits_for_copies_once_only() -> None:
    """X6."""
    scheduler, worker = with_host_tier(num_blocks=20)
    scheduler.submit(make_request("r", 26, hashes=hashes(1, 6)), 0.0)
    end_fence(scheduler, schedule(scheduler))
    worker.pool.reset_cache()  # as if somebody had been given the blocks meanwhile
    step = schedule(scheduler)
    assert step.fence is None and len(step.copies) == 6 and len(step.started) == 1


def test_those_behind_it_leave_it_its_place_and_its_blocks() -> None:
    """X7: it lacks six blocks besides the fenced ones, of nine that are free."""
    scheduler, _ = with_host_tier(num_blocks=15, max_num_seqs=2)
    scheduler.submit(make_request("first", 46, hashes=hashes(1, 11)), 0.0)
    scheduler.submit(make_request("large", 16, hashes=hashes(4, 4)), 0.0)
    step = schedule(scheduler)
    assert step.fence is not None and not step.started, "four blocks are not to be had"
    scheduler.cancel(RequestKey("f", "large"), 1)
    scheduler.submit(make_request("small", 7, hashes=hashes(5, 1)), 0.0)
    scheduler.submit(make_request("third", 1), 0.0)
    small = schedule(scheduler)
    assert tokens_by_name(scheduler, small) == {"small": 7}, "two places are taken"
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    end_fence(scheduler, step)
    assert tokens_by_name(scheduler, schedule(scheduler)) == {"small": 1, "first": 22}


def test_an_unknown_fence_is_of_an_older_link() -> None:
    """X10."""
    scheduler, worker = with_host_tier(num_blocks=20)
    scheduler.fence_ended(WORKER, 7, failed=False)
    assert worker.pool.num_free == 20


def test_host_blocks_that_are_copied_are_given_to_nobody() -> None:
    """X5."""
    cache = HostCache(2)
    read, written = cache.store(b"a", frozenset()), cache.store(b"b", frozenset())
    assert read is not None and written is not None
    cache.pin([read])
    cache.pin([written], are_written=True)
    assert cache.lookup([b"b"]) == [] and cache.store(b"c", frozenset()) is None
    cache.clear()
    assert cache.store(b"c", frozenset()) is None
    cache.unpin([read, written])
    cache.check_integrity()
    assert {cache.store(b"c", frozenset()), cache.store(b"d", frozenset())} == {read, written}


def test_a_place_that_is_kept_for_one_that_waits_for_copies_costs_a_lower_class_its_own() -> None:
    scheduler, worker = with_host_tier(
        60, policy="priority", max_num_seqs=2, aging_s=0.0, max_inflight_steps=1
    )
    scheduler.submit(make_request("low", 8, priority=2), 0.0)
    schedule(scheduler)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.submit(make_request("copies", 26, hashes=hashes(1, 6)), 0.0)
    scheduler.submit(make_request("middle", 8, priority=1), 0.0)
    step = schedule(scheduler)
    assert step.fence is not None
    assert [request.key.request_id for request in step.placed] == ["middle"]
    assert worker.num_active == 1 and len(worker.table.displaced) == 1


def test_copies_are_not_counted_for_a_start_that_lacks_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, worker = with_host_tier(num_blocks=20)
    worker.pool.take(18)
    scheduler.submit(make_request("d", 4), 0.0)
    scheduler.submit(make_request("r", 26, hashes=hashes(1, 6)), 0.0)
    counted: list[list[int]] = []
    count = host.count_copies
    monkeypatch.setattr(host, "count_copies", lambda *args: counted.append(args[2]) or count(*args))
    assert [
        request.key.request_id for request in (scheduler.schedule(WORKER, 0.0) or StepDecision(0)).placed
    ] == ["d"]
    assert counted == [[1]]
