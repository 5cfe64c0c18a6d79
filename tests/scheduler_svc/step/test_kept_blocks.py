"""Blocks that displaced requests keep."""

from __future__ import annotations

from scheduler_svc.core.state.steps.step import StepDecision
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, run_step, tokens_by_name


def test_a_displaced_request_gives_up_the_blocks_that_the_first_lacks_when_nobody_runs() -> None:
    """V4: the tenant that had nothing goes first, and its request does not fit beside the blocks that the other's
    keeps."""
    scheduler = make_scheduler(num_blocks=8, policy="fair", watermark_blocks_per_seq=0)
    scheduler.submit(make_request("keeps", 10, tenant="a"), 0.0)
    run_step(scheduler)
    worker = scheduler.workers[WORKER]
    worker.table.decode_settled()
    worker.displace(0, StepDecision(worker.next_step_id))
    scheduler.submit(make_request("first", 28, tenant="b"), 0.0)
    step = run_step(scheduler)
    assert step.preempted_slots == [0] and not step.started
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and tokens_by_name(scheduler, step) == {"first": 28}
    scheduler.check_integrity()
