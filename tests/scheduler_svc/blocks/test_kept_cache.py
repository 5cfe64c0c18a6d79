"""A broken link to the same scheduler does not cost a worker its caches (J8, A5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.fence import Fence, FencedBlocks
from scheduler_svc.core.state.steps.step import StepRecord
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.columns import HOST_BIT
from signalbox.protocol.enums import FinishReason
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_slot,
    report_for,
    run_step,
)

NUM_KEPT = 5
"""Full blocks of the request that ran before."""


def content(number: int) -> bytes:
    return number.to_bytes(16, "little")


def hashes(*numbers: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(map(content, numbers)), HASH_DTYPE)


def make_warm(**fields: Any) -> Scheduler:
    """A scheduler whose worker has run and ended a request of five full blocks, all of whose steps were reported."""
    scheduler = Scheduler(SchedulerConfig(max_inflight_steps=1), 1, 0.0, instance="ours")
    scheduler.attach_worker(make_info(**fields), None, 0.0)
    prompt = b"".join(content(number) for number in range(NUM_KEPT))
    scheduler.submit(make_request("before", 4 * NUM_KEPT + 1, hashes=prompt), 0.0)
    run_step(scheduler)
    assert scheduler.schedule(WORKER, 0.0) is not None
    scheduler.update(WORKER, report_for(scheduler, finished=((0, FinishReason.STOP, 2),)), 0.0)
    run_step(scheduler)
    return scheduler


def hello_again(scheduler: Scheduler, slots: list[Any] | None = None, **fields: Any) -> Worker:
    """The same process says hello."""
    worker = scheduler.workers[WORKER]
    values = {"scheduler_instance": "ours", "last_scheduled_step_id": worker.next_step_id - 1} | fields
    snapshot = WorkerSnapshot(1, worker.next_step_id + 5, slots or [], **values)
    scheduler.detach_worker(WORKER, 1.0)
    again = scheduler.attach_worker(worker.info, snapshot, 1.0)
    scheduler.check_integrity()
    return again


def make_placed(scheduler: Scheduler, **fields: Any) -> Request:
    """A request that the worker has, by the scheduler's books."""
    request = make_request("long", 30, **fields)
    scheduler.register.add(request, 0.0)
    scheduler.queues.placed(request)
    request.worker_id = WORKER
    return request


def num_found(worker: Worker) -> int:
    """Blocks of the request's prompt that can be hit."""
    return len(worker.pool.lookup(hashes(*range(NUM_KEPT))))


def test_what_was_cached_is_hit_after_a_broken_link() -> None:
    """J8."""
    scheduler = make_warm()
    worker = hello_again(scheduler)
    assert num_found(worker) == NUM_KEPT
    prompt = b"".join(content(number) for number in range(NUM_KEPT))
    scheduler.submit(make_request("after", 4 * NUM_KEPT + 1, hashes=prompt), 1.0)
    step = run_step(scheduler)
    assert step.started[0].chunk.start == 4 * NUM_KEPT, "all but the last token"


@pytest.mark.parametrize("instance", ["theirs", ""])
def test_after_another_scheduler_nothing_is_known(instance: str) -> None:
    """Who knows what it did with the blocks."""
    assert num_found(hello_again(make_warm(), scheduler_instance=instance)) == 0


def test_another_process_has_nothing() -> None:
    scheduler = make_warm()
    snapshot = WorkerSnapshot(1, 9, [], "ours", 9)
    scheduler.detach_worker(WORKER, 1.0)
    assert num_found(scheduler.attach_worker(make_info(instance="j"), snapshot, 1.0)) == 0


def test_blocks_that_were_written_alone_are_forgotten_and_held_by_their_slots() -> None:
    """A5: the worker had been lent them, and gave one to its request."""
    scheduler = make_warm()
    lent = scheduler.workers[WORKER].pool.lookup(hashes(*range(NUM_KEPT)))
    blocks = np.concatenate((np.arange(40, 49), lent[2:3])).astype(np.int32)
    slot = make_slot(request=make_placed(scheduler), blocks=blocks)
    worker = hello_again(scheduler, [slot], blocks_written_alone=lent[1:2])
    assert num_found(worker) == 1
    assert len(worker.pool.lookup(hashes(2))) == 0, "its slot holds it, and may write it at any time"
    assert len(worker.pool.lookup(hashes(3, 4))) == 2


def test_a_block_that_was_lent_and_is_full_has_the_content_of_its_slot() -> None:
    scheduler = make_warm()
    lent = scheduler.workers[WORKER].pool.lookup(hashes(0))
    request = make_placed(scheduler, hashes=b"".join(content(100 + number) for number in range(7)))
    slot = make_slot(request=request, blocks=np.concatenate((lent, np.arange(40, 49))).astype(np.int32))
    worker = hello_again(scheduler, [slot])
    assert num_found(worker) == 0
    assert worker.pool.lookup(hashes(100)).tolist() == lent.tolist()


def test_what_copies_of_steps_that_never_came_should_have_made_is_not_there() -> None:
    """J8: a start publishes what it fetches from the host tier, and saves what it evicts, with the step."""
    scheduler = make_warm(num_host_blocks=4)
    worker = scheduler.workers[WORKER]
    device = worker.pool.lookup(hashes(*range(NUM_KEPT))).tolist()
    for number, step_id in ((10, 7), (11, 8)):
        saved = worker.host.store(content(number), frozenset())
        assert saved is not None
        copies = [BlockCopy(3, saved | HOST_BIT), BlockCopy(saved | HOST_BIT, device[number - 7])]
        nothing = (worker.table.advance, np.empty(0, np.int64), 0, False, [], 0, [])
        worker.records.append(StepRecord(step_id, *nothing, copies=copies))  # type: ignore[arg-type]
    again = hello_again(scheduler, last_scheduled_step_id=7)
    assert again.host.holds(content(10)) and not again.host.holds(content(11))
    assert num_found(again) == 4, "the fifth block was to be written by step 8"


def test_open_fences_count_as_failed() -> None:
    """J8: the word of their end was lost with the link, if there was one."""
    scheduler = make_warm(num_host_blocks=4)
    worker = scheduler.workers[WORKER]
    block = worker.pool.fence(1, 0)
    saved = worker.host.store(content(10), frozenset())
    assert saved is not None
    worker.host.pin([saved], are_written=True)
    fenced = FencedBlocks(blocks=block, fetched=block, hashes=hashes(11), saved={content(10): saved})
    worker.fences[9] = Fence(9, groups=[fenced])
    again = hello_again(scheduler)
    assert not again.host.holds(content(10)) and not len(again.pool.lookup(hashes(11)))
    assert not again.fences and num_found(again) == NUM_KEPT
