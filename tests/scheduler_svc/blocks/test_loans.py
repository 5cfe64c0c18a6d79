"""Blocks lent for the time without a scheduler, and what is charged for it (docs/liveness.md, A3, A7)."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.requests.tenants import TenantLimits
from scheduler_svc.core.state.worker_check import check_state
from scheduler_svc.step_loop import StepLoop
from signalbox.protocol.enums import SlotStatus
from signalbox.v1 import to_worker_pb2
from tests.scheduler_svc.attached import make_hello
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    make_slot,
    report_for,
    run_step,
)

LINK_TICK_S = 0.25


def decode(scheduler: Scheduler, names: int, prompt: int = 6) -> None:
    """Has requests decode on the one worker."""
    for number in range(names):
        scheduler.submit(make_request(f"r{number}", prompt, max_tokens=1000), 0.0)
    run_step(scheduler)


def test_a_loan_is_what_the_pool_would_give_next_and_no_allocation() -> None:
    """A3: in the order in which it would be given away."""
    scheduler = make_scheduler(max_inflight_steps=1, num_blocks=64)
    decode(scheduler, 2)
    worker = scheduler.workers[WORKER]
    (blocks,) = worker.renew_loan(1.0) or []
    assert len(blocks) == 2, "one per row, as long as no speed is known"
    available = worker.pool.num_available
    assert worker.pool.take(2).tolist() == blocks.tolist()
    assert worker.pool.num_available == available - 2


def test_a_loan_lasts_for_twelve_seconds_at_least_at_the_measured_speed() -> None:
    """A3: 2 rows at 4 steps a second, in blocks of 4 tokens. Whenever the scheduler dies, so much is left."""
    scheduler = make_scheduler(max_inflight_steps=1, num_blocks=256)
    decode(scheduler, 2)
    worker, now = scheduler.workers[WORKER], 0.0
    lent = []
    for _ in range(80):
        now += LINK_TICK_S
        run_step(scheduler)
        blocks = worker.renew_loan(now)
        if blocks is not None:
            lent.append(len(blocks[0]))
        if len(lent) > 1:  # the speed is known
            assert worker.loan.num_left(worker.pool) >= 2 * 4 * 12 // 4
    assert lent == [2, 2 * 4 * 24 // 4 + 2, 2 * 4 * 24 // 4 + 2], (
        "renewed when half of it has been given away"
    )
    check_state(worker)


def test_held_and_fenced_blocks_are_not_lent() -> None:
    """A3: free ones first, then the cached ones that were unused for longest; fewer when there are no more."""
    scheduler = make_scheduler(max_inflight_steps=1, num_blocks=8)
    decode(scheduler, 1, prompt=9)
    worker = scheduler.workers[WORKER]
    pool = worker.pool
    cached = pool.take(2)
    pool.publish(cached, np.frombuffer(bytes(range(32)), HASH_DTYPE))
    pool.release(cached)
    fenced = pool.fence(1, 0)
    worker.loan.rate = 100.0
    (blocks,) = worker.renew_loan(1.0) or []
    held = set(worker.table.table(0).tolist())
    assert len(blocks) == pool.num_available == 8 - len(held) - 1
    assert not held & set(blocks.tolist()) and not set(fenced.tolist()) & set(blocks.tolist())
    assert blocks[-2:].tolist() == cached[::-1].tolist()
    pool.unfence(fenced)


def test_an_idle_worker_is_lent_nothing() -> None:
    scheduler = make_scheduler()
    assert scheduler.workers[WORKER].renew_loan(1.0) is None


def test_loans_travel_with_ticks() -> None:
    """A3: not in the path of steps."""
    scheduler = make_scheduler(max_inflight_steps=1)
    now = 0.0
    loop = StepLoop(scheduler, lambda: now, lambda when, action: None)
    sent: list[to_worker_pb2.AttachWorkerResponse] = []
    loop.attach_worker(make_hello("a").hello, sent.append)
    scheduler.submit(make_request("x", 6), now)
    loop.tick()
    loans = [message for message in sent if message.HasField("loan")]
    assert [len(message.loan.block_ids) for message in loans] == [4]
    now += LINK_TICK_S
    loop.tick()
    assert len([message for message in sent if message.HasField("loan")]) == 1


def test_what_was_made_alone_is_charged_at_the_hello() -> None:
    """A7: by the difference of counts, for requests that go on and for those that have ended. What reports have told
    of is charged once."""
    scheduler = make_scheduler(policy="fair", max_inflight_steps=1, just_in_time_steps=False)
    scheduler.queues.set_limits(TenantLimits(tokens_per_s=1000.0), {})
    requests = [make_request(name, 6, max_tokens=100, tenant="t") for name in ("on", "ended")]
    for request in requests:
        scheduler.submit(request, 0.0)
    for _ in range(5):
        assert scheduler.schedule(WORKER, 0.0) is not None
        scheduler.update(WORKER, report_for(scheduler), 0.0)
    before = scheduler.queues.service_received(requests[0])
    account = requests[0].entry.account
    assert account is not None
    bucket = account.tenant.bucket
    assert bucket is not None
    level = bucket.level
    worker = scheduler.workers[WORKER]
    outputs = [int(worker.table.num_output[request.slot]) for request in requests]
    slots = [
        make_slot(
            slot=request.slot,
            request=make_request(request.key.request_id, 6, max_tokens=100, tenant="t"),
            status=status,
            blocks=np.arange(first, first + 8, dtype=np.int32),
            num_computed_tokens=6 + made - 1,
            num_output_tokens=made,
            prefill_target=6,
        )
        for request, status, first, made in zip(
            requests,
            (SlotStatus.DECODE, SlotStatus.ENDED),
            (0, 8),
            (outputs[0] + 7, outputs[1] + 3),
            strict=True,
        )
    ]
    scheduler.detach_worker(WORKER, 1.0)
    scheduler.attach_worker(make_info(), WorkerSnapshot(1, 20, slots), 1.5)
    assert scheduler.queues.service_received(requests[0]) - before == 10 * scheduler.config.fair_output_weight
    assert bucket.level == level - 10
    scheduler.check_integrity()
