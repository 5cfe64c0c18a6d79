"""A worker's hello is taken whole or not at all."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.request import RequestKey
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    make_slot,
    run_step,
)


def test_a_request_that_is_longer_than_new_settings_allow_goes_on() -> None:
    """J4: the scheduler was started anew with a smaller max_model_len."""
    scheduler = Scheduler(SchedulerConfig(max_model_len=16, max_inflight_steps=1), epoch=2, now=0.0)
    worker = scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, [make_slot()]), 0.0)
    scheduler.check_integrity()
    granted = 0
    for _ in range(20):
        granted += len(run_step(scheduler).grant_slots)
        scheduler.check_integrity()
    assert worker.table.num_output[0] == 30 and granted == 5, "the worker writes 59 positions"
    scheduler.submit(make_request("new", 16), 0.0)
    assert [notice.field for notice in scheduler.drain_notices()] == ["prompt"], "new ones obey"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"slot": 16}, "slot"),
        ({"blocks": np.array([64], np.int32)}, "block"),
        ({"blocks": np.arange(9, dtype=np.int32)}, "block"),
        ({"blocks": np.zeros(10, np.int32)}, "block"),
        ({"num_output_tokens": 300, "blocks": np.arange(64, dtype=np.int32)}, "tokens"),
        ({"sealed_hashes": bytes(17)}, "hash"),
        ({"sealed_hashes": bytes(16 * 11)}, "hash"),
        ({"request": make_request("long", 30, hashes=bytes(17))}, "block_hashes"),
    ],
)
def test_a_snapshot_that_contradicts_itself_changes_nothing(fields: dict[str, Any], reason: str) -> None:
    """J5: the worker that said hello first stays as it was, and so do its requests."""
    scheduler = make_scheduler(max_inflight_steps=1)
    old = scheduler.workers[WORKER]
    scheduler.submit(make_request("known", 6), 0.0)
    run_step(scheduler)
    good = make_slot(slot=3, request=make_request("good", 30), blocks=np.arange(20, 30, dtype=np.int32))
    snapshot = WorkerSnapshot(0, 5, [good, make_slot(**fields)])
    with pytest.raises(ValueError, match=reason):
        scheduler.attach_worker(make_info(instance="j"), snapshot, 0.0)
    assert scheduler.workers == {WORKER: old} and list(scheduler.requests) == [RequestKey("f", "known")]
    scheduler.check_integrity()
    assert run_step(scheduler).num_decode_rows == 1


def test_one_slot_named_twice_is_refused() -> None:
    scheduler = Scheduler(SchedulerConfig(), epoch=2, now=0.0)
    with pytest.raises(ValueError, match="slot"):
        scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, [make_slot(), make_slot()]), 0.0)
    assert not scheduler.workers and not scheduler.requests
    scheduler.check_integrity()


@pytest.mark.parametrize("count", [128, 512])
def test_adopting_a_slot_costs_the_same_however_many_there_are(count: int) -> None:
    """W3: by calls of functions, those of the interpreter included, and not by the clock."""
    info = make_info(num_slots=count, num_blocks=10 * count)
    blocks = np.arange(10, dtype=np.int32)
    slots = [
        make_slot(slot=number, request=make_request(f"r{number}", 30), blocks=blocks + 10 * number)
        for number in range(count)
    ]
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=count), 1, 0.0)
    live = [(f"r{number}", 1) for number in range(count)]
    holder = Process(WORKER, info.instance)
    scheduler.attach_frontend("f", live, [], 0.0, {name: (holder,) for name, _ in live})
    num_calls = 0

    def count_calls(frame: object, event: str, argument: object) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    sys.setprofile(count_calls)
    try:
        scheduler.attach_worker(info, WorkerSnapshot(1, 5, slots), 0.0)
    finally:
        sys.setprofile(None)
    scheduler.check_integrity()
    assert len(scheduler.requests) == count and num_calls < 120 * count + 2000
