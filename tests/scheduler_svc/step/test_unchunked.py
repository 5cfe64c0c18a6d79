"""Without chunked prefill a prompt runs in one step; what a request has put out since may be computed in chunks."""

from __future__ import annotations

from scheduler_svc.core.scheduler import Scheduler
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, report_for, tokens_by_name


def tokens_of_step(scheduler: Scheduler) -> dict[str, int]:
    """Schedules one step and reports it; how many tokens it ran for each request."""
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None
    tokens = tokens_by_name(scheduler, step)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    return tokens


def test_a_prompt_waits_until_it_fits_into_one_step() -> None:
    """L16."""
    scheduler = make_scheduler(
        max_inflight_steps=1, enable_chunked_prefill=False, max_num_batched_tokens=8, max_num_seqs=4
    )
    for name in ("a", "b"):
        scheduler.submit(make_request(name, 6), 0.0)
    assert tokens_of_step(scheduler) == {"a": 6}
    assert tokens_of_step(scheduler) == {"a": 1, "b": 6}
    scheduler.submit(make_request("long", 9), 0.0)
    assert [n.field for n in scheduler.drain_notices() if hasattr(n, "field")] == ["prompt"]


def test_a_preempted_request_that_has_outgrown_the_budget_resumes_in_chunks() -> None:
    """L16."""
    scheduler = make_scheduler(
        max_inflight_steps=1, enable_chunked_prefill=False, max_num_batched_tokens=8, max_num_seqs=4
    )
    scheduler.submit(make_request("a", 8), 0.0)
    for _ in range(6):
        tokens_of_step(scheduler)
    scheduler.workers[WORKER].table.refuse(0)
    lengths = [tokens_of_step(scheduler).get("a", 0) for _ in range(4)]
    assert lengths == [0, 8, 6, 1], "8 + 6 tokens again, and on"
    scheduler.submit(make_request("b", 6), 0.0)
    assert tokens_of_step(scheduler) == {"a": 1, "b": 6}
    scheduler.check_integrity()


def test_an_attempt_after_a_loss_runs_in_chunks() -> None:
    scheduler = make_scheduler(
        max_inflight_steps=1, enable_chunked_prefill=False, max_num_batched_tokens=8, max_num_seqs=4
    )
    scheduler.submit(make_request("a", 8, attempt=2, num_prior_output_tokens=5), 0.0)
    assert [tokens_of_step(scheduler) for _ in range(3)] == [{"a": 8}, {"a": 5}, {"a": 1}]
