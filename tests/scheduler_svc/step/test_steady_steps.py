"""What a step costs the scheduler does not grow with the requests that run: K9."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from scheduler_svc.core.scheduler import Scheduler
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, run_step

WARM_UP_STEPS = 8
MEASURED_STEPS = 8


def running(num_requests: int) -> Scheduler:
    """A scheduler with so many decode rows, of which a quarter gets a block in every step."""
    scheduler = make_scheduler(
        num_blocks=16 * num_requests,
        num_slots=num_requests,
        max_num_seqs=num_requests,
        max_num_batched_tokens=16 * num_requests,
    )
    for number in range(num_requests):
        scheduler.submit(make_request(f"r{number}", 5 + number % 4), 0.0)
    for _ in range(WARM_UP_STEPS):
        run_step(scheduler)
    assert len(scheduler.workers[WORKER].table.decode_slots) == num_requests
    return scheduler


def count_lines(work: Callable[[], object]) -> int:
    """Lines of Python that `work` runs, a line of a loop as often as it is run."""
    num_lines = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal num_lines
        if (
            "/site-packages/" in frame.f_code.co_filename
        ):  # what others hang on the garbage collector runs here too
            return None
        num_lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return num_lines


def lines_of_steps(num_requests: int) -> int:
    scheduler = running(num_requests)
    return count_lines(lambda: [run_step(scheduler) for _ in range(MEASURED_STEPS)])


@pytest.mark.parametrize("num_requests", [64, 512])
def test_no_python_loop_runs_over_the_running_requests(num_requests: int) -> None:
    """K9: a step and its report run the same lines of Python for 16 decode rows and for many more."""
    assert lines_of_steps(num_requests) == lines_of_steps(16)


def test_a_loop_over_the_rows_would_be_seen() -> None:
    """The test above can fail."""
    scheduler = running(16)
    worker = scheduler.workers[WORKER]
    few = count_lines(lambda: [worker.request(slot) for slot in worker.table.decode_slots[:4].tolist()])
    assert count_lines(lambda: [worker.request(slot) for slot in worker.table.decode_slots.tolist()]) > few
