"""Prompts of lower classes leave steps short while a higher class is expected (`lower_class_prefill_tokens`)."""

from __future__ import annotations

import pytest

from scheduler_svc.config import SchedulerSettings
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.recent_classes import LATELY_S, RecentClasses
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from signalbox.benchmarks.qos import bench
from signalbox.errors import StartupError
from signalbox.runtime.config import load
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    report_for,
    tokens_by_name,
)


def make(**settings: object) -> Scheduler:
    values: dict[str, object] = {
        "policy": "priority",
        "aging_s": 0.0,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 100,
        "max_inflight_steps": 1,
        "num_blocks": 1024,
        "lower_class_prefill_tokens": 20,
    }
    return make_scheduler(**values | settings)  # type: ignore[arg-type]


def submit(scheduler: Scheduler, name: str, num_prompt: int, priority: int, now: float = 0.0) -> Request:
    request = make_request(name, num_prompt, priority=priority)
    scheduler.submit(request, now)
    return request


def run_step(scheduler: Scheduler, now: float = 0.0) -> dict[str, int]:
    """Tokens of one step by request."""
    step: StepDecision | None = scheduler.schedule(WORKER, now)
    assert step is not None
    tokens = tokens_by_name(scheduler, step)
    scheduler.update(WORKER, report_for(scheduler), now)
    return tokens


def test_a_lower_class_fills_a_step_up_to_the_limit_once_a_higher_one_has_come() -> None:
    scheduler = make()
    submit(scheduler, "high", 10, 0)
    submit(scheduler, "low", 500, 2)
    assert run_step(scheduler) == {"high": 10, "low": 10}
    assert run_step(scheduler) == {"high": 1, "low": 20}


def test_a_class_alone_fills_the_step() -> None:
    scheduler = make()
    submit(scheduler, "low", 500, 2)
    assert run_step(scheduler) == {"low": 100}


def test_the_limit_ends_when_the_higher_class_has_not_come_for_a_while() -> None:
    scheduler = make()
    high = submit(scheduler, "high", 10, 0)
    submit(scheduler, "low", 500, 2)
    run_step(scheduler)
    scheduler.cancel(high.key, 1)
    assert run_step(scheduler, now=LATELY_S) == {"low": 20}
    assert run_step(scheduler, now=LATELY_S + 0.1) == {"low": 100}


def test_a_quarter_is_left_to_the_lower_class_however_much_the_higher_one_computes() -> None:
    scheduler = make()
    submit(scheduler, "high", 60, 0)
    submit(scheduler, "low", 500, 2)
    assert run_step(scheduler) == {"high": 60, "low": 5}


def test_the_highest_class_is_never_cut() -> None:
    scheduler = make()
    submit(scheduler, "high", 500, 0)
    submit(scheduler, "low", 500, 2)
    assert run_step(scheduler) == {"high": 100}


def test_a_request_that_has_risen_is_not_cut_and_cuts_nobody() -> None:
    scheduler = make(aging_s=1.0)
    submit(scheduler, "high", 10, 0)
    run_step(scheduler)
    submit(scheduler, "risen", 50, 2)
    assert run_step(scheduler, now=2.5) == {"high": 1, "risen": 50}
    scheduler = make(aging_s=1.0)
    submit(scheduler, "risen", 10, 2)
    assert run_step(scheduler, now=2.5) == {"risen": 10}
    submit(scheduler, "low", 50, 2, now=2.5)
    assert run_step(scheduler, now=2.5) == {"risen": 1, "low": 50}


@pytest.mark.slow
def test_short_prompts_of_the_high_class_start_as_soon_as_on_an_idle_system_at_three_times_the_capacity() -> (
    None
):
    figures = bench.run_priority((20, 100), duration_s=30.0, lower_class_prefill_tokens=112)
    assert float(figures["ratio"]) <= 1.5
    without = bench.run_priority((20, 100), duration_s=30.0)
    assert float(without["ratio"]) > 2
    assert float(figures["batch_done_per_s"]) > 0.9 * float(without["batch_done_per_s"])


@pytest.mark.parametrize(
    "arguments",
    [["--policy", "fcfs"], ["--policy", "priority", "--no-enable-chunked-prefill"]],
)
def test_a_limit_that_could_not_be_kept_is_refused_by_name(arguments: list[str]) -> None:
    with pytest.raises(StartupError, match="--lower-class-prefill-tokens"):
        load(SchedulerSettings, [*arguments, "--lower-class-prefill-tokens", "112"])


def test_a_displaced_row_goes_on_though_the_limit_is_less_than_its_drafts() -> None:
    scheduler = make(num_speculative_tokens=4, lower_class_prefill_tokens=4, max_num_seqs=2)
    scheduler.attach_worker(make_info(num_blocks=400, max_draft_tokens=4), None, 0.0)
    low = submit(scheduler, "low", 3, 1)
    run_step(scheduler)
    run_step(scheduler)
    high = [submit(scheduler, name, 3, 0, now=1.0) for name in ("a", "b")]
    run_step(scheduler, 1.0)
    worker = scheduler.workers[WORKER]
    assert worker.table.displaced == [low.slot]
    scheduler.cancel(high[1].key, 1)
    run_step(scheduler, 1.1)
    assert worker.table.displaced == []


def test_classes_that_have_not_started_lately_are_forgotten_by_the_next_start() -> None:
    recent = RecentClasses()
    for priority in range(100):
        recent.started(priority, float(priority))
    assert len(recent._started_at) <= LATELY_S + 1
    assert recent.highest(99.0) == 99 - LATELY_S
