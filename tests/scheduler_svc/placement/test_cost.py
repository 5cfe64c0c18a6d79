"""Q9: a start among many workers runs as many lines of Python as one among few."""

from __future__ import annotations

import pytest

from scheduler_svc.core.placement.choice import LOOKAHEAD, Choice
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.steps.step import StepReport
from tests.scheduler_svc.harness import make_info, make_request
from tests.scheduler_svc.step.test_steady_steps import count_lines

NUM_STARTS = 5
MAX_LINES_OF_LOOK = 30
"""A comparison with what was found for the first one. To look for other workers again takes some 60."""


def report(core: Scheduler, name: str) -> None:
    record = core.workers[name].records[0]
    core.update(name, StepReport(record.step_id, record.num_decode_rows, record.num_prefill_tokens), 1.0)


def make_ring(num_workers: int) -> Scheduler:
    """All decode, with two steps in flight, and five more requests wait than there are turns for."""
    core = Scheduler(SchedulerConfig(balance_wait_ms=0, just_in_time_steps=False, decode_burst_ms=0), 1, 0.0)
    names = [f"w{number}" for number in range(num_workers)]
    for name in names:
        core.attach_worker(make_info(worker_id=name, instance=name, num_blocks=400), None, 0.0)
        core.submit(make_request(name, 8), 0.0)
        core.schedule(name, 0.0)
    for name in names:
        report(core, name)
        while core.schedule(name, 1.0) is not None:
            pass
    for number in range(NUM_STARTS):
        core.submit(make_request(f"late{number}", 8), 1.0)
    core.standings.refresh()
    return core


def lines_of_starts(num_workers: int) -> int:
    core = make_ring(num_workers)

    def start() -> None:
        for name in ("w0", "w1", "w2", "w3"):
            report(core, name)
            core.schedule(name, 2.0)

    lines = count_lines(start)
    assert core.num_waiting == 0
    return lines


@pytest.mark.parametrize("num_workers", [16, 64])
def test_a_start_runs_the_same_lines_however_many_workers_there_are(num_workers: int) -> None:
    assert lines_of_starts(num_workers) == lines_of_starts(5)


def lines_of_looks(num_looks: int) -> int:
    """Lines of looking at so many requests that a worker leaves to one with fewer, and that were looked at before."""
    core = make_ring(16)
    worker = core.workers["w0"]
    worker.table.num_running += 2
    report(core, "w1")
    core.standings.forget()
    waiting = list(core.queues.of(worker.info.model))[:1] * num_looks

    def look() -> None:
        choice = Choice(worker, core.config, core.standings, core.admission.continuation, 1.0)
        assert not list(choice.candidates(waiting))

    look()
    return count_lines(look)


def test_a_request_that_is_left_like_those_before_it_costs_few_lines() -> None:
    assert lines_of_looks(LOOKAHEAD) - lines_of_looks(1) <= MAX_LINES_OF_LOOK * (LOOKAHEAD - 1)


def test_a_look_at_every_worker_would_be_seen() -> None:
    """The test above can fail."""

    def lines(num_workers: int) -> int:
        core = make_ring(num_workers)
        return count_lines(lambda: [worker.load for worker in core.workers.values()])

    assert lines(16) > lines(5)
