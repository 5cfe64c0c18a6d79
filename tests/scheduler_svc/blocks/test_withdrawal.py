"""What a request has published whose numbers were not finite is forgotten, and nobody goes on from it (N2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler_svc.core.recovery.snapshot import SlotSnapshot, WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.requests.notices import Lost
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.links.codec.delta import parse_report
from signalbox.protocol.enums import FinishReason, LossCause, SlotStatus
from signalbox.v1 import from_worker_pb2
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    make_slot,
    report_for,
    run_step,
)

ERROR = FinishReason.ERROR


def content(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(16, "little") for number in numbers)


def is_cached(worker: Worker, number: int) -> bool:
    return bool(len(worker.pool.lookup(np.frombuffer(content(number), HASH_DTYPE))))


def submit(scheduler: Scheduler, name: str, *numbers: int) -> int:
    """A request with full blocks of this content and a token more starts; returns its slot."""
    scheduler.submit(make_request(name, 4 * len(numbers) + 1, hashes=content(*numbers)), 0.0)
    return run_step(scheduler).started[0].chunk.slot


def fail(scheduler: Scheduler, slot: int) -> None:
    """The next step finds that the numbers of a slot are not finite."""
    assert scheduler.schedule(WORKER, 0.0) is not None or scheduler.workers[WORKER].records
    report = report_for(scheduler, finished=((slot, ERROR, 1),))
    report.not_run, report.withdrawn = [(slot, 2)], [slot]
    report.exception_slots, report.exception_counts = np.array([slot]), np.array([0])
    scheduler.update(WORKER, report, 0.0)
    scheduler.check_integrity()


def lost(scheduler: Scheduler) -> dict[str, LossCause]:
    return {n.key.request_id: n.cause for n in scheduler.drain_notices() if isinstance(n, Lost)}


def test_a_request_that_shares_a_withdrawn_block_starts_anew_and_no_other() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    worker = scheduler.workers[WORKER]
    bad = submit(scheduler, "bad", 1, 2, 3)
    sharer = submit(scheduler, "sharer", 1, 2, 30)
    submit(scheduler, "stranger", 7, 8)
    assert worker.table.num_found[sharer] == 2
    fail(scheduler, bad)
    assert lost(scheduler) == {"sharer": LossCause.BAD_BLOCKS}
    assert [key.request_id for key in scheduler.requests] == ["stranger"]
    assert not any(is_cached(worker, number) for number in (1, 2, 3, 30)), "what the sharer made of them, too"
    assert is_cached(worker, 7) and is_cached(worker, 8)
    assert set(run_step(scheduler).finished_slots) == {bad, sharer}


def test_what_it_found_in_the_cache_is_not_its_doing() -> None:
    """It is withdrawn from the first block on that it has computed since it started."""
    scheduler = make_scheduler(max_inflight_steps=1)
    worker = scheduler.workers[WORKER]
    submit(scheduler, "good", 1, 2)
    fail(scheduler, submit(scheduler, "bad", 1, 2, 3))
    assert is_cached(worker, 1) and is_cached(worker, 2) and not is_cached(worker, 3)
    assert not lost(scheduler) and len(scheduler.requests) == 1


def test_what_one_that_has_ended_made_of_it_goes_too() -> None:
    """J10: whoever computes the withdrawn block again would lead to it: contents are chained."""
    scheduler = make_scheduler(max_inflight_steps=1)
    worker = scheduler.workers[WORKER]
    bad, reader = submit(scheduler, "bad", 1), submit(scheduler, "reader", 1, 20)
    assert scheduler.schedule(WORKER, 0.0) is not None
    scheduler.update(WORKER, report_for(scheduler, finished=((reader, FinishReason.STOP, 2),)), 0.0)
    run_step(scheduler)
    assert is_cached(worker, 20)
    fail(scheduler, bad)
    assert not is_cached(worker, 1) and not is_cached(worker, 20) and not lost(scheduler)


def test_steps_in_flight_of_those_that_start_anew_publish_nothing() -> None:
    scheduler = make_scheduler(max_inflight_steps=2, just_in_time_steps=False, max_num_batched_tokens=16)
    worker = scheduler.workers[WORKER]
    bad = submit(scheduler, "bad", 1)
    scheduler.submit(make_request("sharer", 29, hashes=content(1, 10, 11, 12, 13, 14, 15)), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None and scheduler.schedule(WORKER, 0.0) is not None
    fail(scheduler, bad)
    assert lost(scheduler) == {"sharer": LossCause.BAD_BLOCKS}
    while worker.records:
        scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert not worker.pool.has_content.any()
    scheduler.check_integrity()


def test_copies_in_the_host_tier_are_forgotten_and_those_that_came_back_from_there() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.attach_worker(make_info(num_host_blocks=8), None, 0.0)
    worker = scheduler.workers[WORKER]
    bad = submit(scheduler, "bad", 1, 2)
    for number in (1, 2, 9):
        assert worker.host.store(content(number), frozenset()) is not None
    fail(scheduler, bad)
    assert [worker.host.holds(content(number)) for number in (1, 2, 9)] == [False, False, True]


def test_a_request_that_was_adopted_takes_all_that_it_has_with_it() -> None:
    """Nobody knows what it found when it started."""
    scheduler = make_scheduler(max_inflight_steps=1)
    slots: list[Any] = [
        make_slot(slot=slot, request=make_request(name, 30, hashes=content(*range(7))))
        for slot, name in ((0, "bad"), (1, "sharer"))
    ]
    scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, slots), 0.0)
    fail(scheduler, 0)
    assert lost(scheduler) == {"sharer": LossCause.BAD_BLOCKS}
    assert not scheduler.workers[WORKER].pool.has_content.any()


def test_a_report_names_withdrawn_slots() -> None:
    message = from_worker_pb2.ModelRunnerOutput(step_id=3, withdrawn_slots=b"\2\0\1\1")
    assert parse_report(message).withdrawn == [2, 257]


def ended_without_report(scheduler: Scheduler, slot: int, *numbers: int) -> SlotSnapshot:
    """How a worker names a slot whose numbers were not finite, and whose report nobody has read."""
    worker = scheduler.workers[WORKER]
    request = worker.request(slot)
    return make_slot(
        slot=slot,
        request=make_request(request.key.request_id, request.num_prompt_tokens, hashes=request.block_hashes),
        status=SlotStatus.ENDED,
        blocks=worker.table.table(slot).copy(),
        num_output_tokens=0,
        withdrawn=True,
    )


def running(scheduler: Scheduler, slot: int) -> SlotSnapshot:
    """How a worker names a slot that decodes."""
    worker = scheduler.workers[WORKER]
    request, num_tokens = worker.request(slot), int(worker.table.num_prompt[slot])
    return make_slot(
        slot=slot,
        request=make_request(request.key.request_id, num_tokens, hashes=request.block_hashes),
        blocks=worker.table.table(slot).copy(),
        num_computed_tokens=num_tokens,
        num_output_tokens=1,
        prefill_target=num_tokens,
    )


def test_what_turned_out_to_be_wrong_while_the_worker_was_alone_is_withdrawn_at_its_hello() -> None:
    """N2, A5: it was published before; the same scheduler has kept its cache."""
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.term.instance = "ours"
    worker = scheduler.workers[WORKER]
    submit(scheduler, "good", 1)
    bad, sharer = submit(scheduler, "bad", 1, 2, 3), submit(scheduler, "sharer", 1, 2, 30)
    good, stranger = 0, submit(scheduler, "stranger", 7, 8)
    ended, others = (
        ended_without_report(scheduler, bad),
        [running(scheduler, slot) for slot in (good, sharer, stranger)],
    )
    scheduler.detach_worker(WORKER, 0.0)
    snapshot = WorkerSnapshot(
        1, worker.next_step_id - 1, [ended, *others], "ours", last_scheduled_step_id=worker.next_step_id - 1
    )
    worker = scheduler.attach_worker(make_info(), snapshot, 0.0)
    scheduler.check_integrity()
    assert lost(scheduler) == {"sharer": LossCause.BAD_BLOCKS}
    assert [key.request_id for key in scheduler.requests] == ["good", "stranger"]
    assert not any(is_cached(worker, number) for number in (2, 3, 30))
    assert all(is_cached(worker, number) for number in (1, 7, 8))
    assert set(run_step(scheduler).finished_slots) == {bad, sharer}
    scheduler.check_integrity()


def test_another_scheduler_takes_nothing_over_that_was_made_of_it() -> None:
    """N2: it does not know who found what, and starts anew whoever shares a block."""
    first = make_scheduler(max_inflight_steps=1)
    bad, sharer = submit(first, "bad", 1, 2), submit(first, "sharer", 1, 20)
    stranger = submit(first, "stranger", 7)
    slots = [ended_without_report(first, bad), *(running(first, slot) for slot in (sharer, stranger))]
    second = Scheduler(first.config, 2, 0.0, instance="another")
    worker = second.attach_worker(make_info(), WorkerSnapshot(1, 5, slots, "first"), 0.0)
    second.check_integrity()
    assert lost(second) == {"sharer": LossCause.BAD_BLOCKS}
    assert not is_cached(worker, 1) and not is_cached(worker, 20) and is_cached(worker, 7)
    assert set(run_step(second).finished_slots) == {bad, sharer}
    second.check_integrity()
