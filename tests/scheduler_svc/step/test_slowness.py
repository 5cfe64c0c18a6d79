"""Workers that hang or are slow (docs/liveness.md, E7, E8, E10), by their own history and that of the others."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.step.step import StepReport
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.protocol.enums import LossCause, WorkerHealth
from tests.scheduler_svc.liveness.test_liveness import A, B, losses, make_scheduler, run_on_a, submit

Cost = Callable[[int, int], float]
"""Seconds of a step with so many rows and prompt tokens."""


def usual(rows: int, prompt_tokens: int) -> float:
    """A step of a small model."""
    return 0.008 + 0.0002 * rows + 0.0003 * prompt_tokens


class Floor:
    """Workers that make one step behind the other, as counters tell; each takes `slowed` times as long."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.now = scheduler, 0.0
        self.slowed = dict.fromkeys(scheduler.workers, 1.0)
        self.rows = dict.fromkeys(scheduler.workers, 16)
        self.prompt_tokens = dict.fromkeys(scheduler.workers, 0)
        self._behind = dict.fromkeys(scheduler.workers, 0.0)

    def run(self, seconds: float, cost: Cost = usual) -> list[WorkerHealth]:
        """Runs that long; the healths of worker a at all ticks."""
        healths, end = [], self.now + seconds
        while self.now < end:
            self.now += HEARTBEAT_S
            for name, worker in self.scheduler.workers.items():
                self._make_steps(name, cost)
                worker.vitals.heard_at = self.now
            self.scheduler.tick(self.now)
            self.scheduler.check_integrity()
            healths.append(self.scheduler.workers["a"].health)
        return healths

    def _make_steps(self, name: str, cost: Cost) -> None:
        stats, rows, prompt = self.scheduler.workers[name].stats, self.rows[name], self.prompt_tokens[name]
        if not rows and not prompt:
            return
        takes = self.slowed[name] * cost(rows, prompt)
        while self._behind[name] + takes <= self.now:
            self._behind[name] = max(self._behind[name], self.now - HEARTBEAT_S - takes) + takes
            stats.num_reported += 1
            stats.step_us += int(takes * 1e6)
            stats.num_output_tokens += rows
            stats.num_prefill_tokens += prompt


def make_floor() -> Floor:
    scheduler = make_scheduler(A, B)
    run_on_a(scheduler, "x")
    floor = Floor(scheduler)
    assert set(floor.run(20.0)) == {WorkerHealth.GOOD}
    return floor


def test_a_worker_that_is_slow_while_others_are_not_gets_nothing_and_its_requests_move() -> None:
    """E8: at ten times its long run, after some seconds, and not at once."""
    floor = make_floor()
    floor.slowed["a"] = 10.0
    assert set(floor.run(4.0)) == {WorkerHealth.GOOD}
    floor.run(8.0)
    assert floor.scheduler.workers["a"].health is WorkerHealth.SLOW
    assert losses(floor.scheduler) == {"x": LossCause.MOVED}
    assert floor.scheduler.workers["a"].attached and floor.scheduler.liveness.closing == []
    submit(floor.scheduler, "z", now=floor.now)
    step = floor.scheduler.schedule("a", floor.now)
    assert step is None or not step.placed
    floor.slowed["a"] = 1.0
    floor.run(8.0)
    assert floor.scheduler.workers["a"].health is WorkerHealth.GOOD, "E10"


@pytest.mark.parametrize("factor", [3.0, 5.0, 20.0])
def test_workers_that_are_slow_together_are_not_judged(factor: float) -> None:
    """E8: five times the load, or a machine that swaps: nobody is better off elsewhere."""
    floor = make_floor()
    for name in floor.slowed:
        floor.slowed[name] = factor
    assert set(floor.run(60.0)) == {WorkerHealth.GOOD}
    assert losses(floor.scheduler) == {}


def test_other_work_is_no_slowness() -> None:
    """E8: few rows, many rows, prompts of all sizes, in any order; the other worker does as before."""
    floor, dice = make_floor(), random.Random(7)
    for _ in range(40):
        floor.rows["a"], floor.prompt_tokens["a"] = (
            dice.choice((1, 4, 64, 256)),
            dice.choice((0, 0, 100, 2048)),
        )
        assert set(floor.run(dice.choice((1.0, 5.0, 15.0)))) == {WorkerHealth.GOOD}
    assert losses(floor.scheduler) == {}


def test_a_spike_is_no_slowness() -> None:
    """E8: for five seconds."""
    floor = make_floor()
    for _ in range(10):
        floor.slowed["a"] = 12.0
        healths = floor.run(2.0)
        floor.slowed["a"] = 1.0
        assert set(healths + floor.run(10.0)) == {WorkerHealth.GOOD}


def test_slow_from_the_start_is_its_pace() -> None:
    """E8: a worker is compared with itself; caches, compilers and clocks warm up."""
    scheduler = make_scheduler(A, B)
    floor = Floor(scheduler)
    floor.slowed["a"] = 30.0
    assert set(floor.run(30.0)) == {WorkerHealth.GOOD}


def test_a_slow_worker_that_is_idle_is_tried_again() -> None:
    """E10: it makes no steps that could be quick."""
    floor = make_floor()
    floor.slowed["a"] = 10.0
    floor.run(12.0)
    assert floor.scheduler.workers["a"].health is WorkerHealth.SLOW
    floor.rows["a"] = 0
    floor.run(25.0)
    assert floor.scheduler.workers["a"].health is WorkerHealth.SLOW
    floor.run(10.0)
    assert floor.scheduler.workers["a"].health is WorkerHealth.GOOD


# -- E7: hung --


def decode(scheduler: Scheduler, name: str, count: int, takes_s: float) -> None:
    """A worker makes so many steps."""
    for _ in range(count):
        if not scheduler.workers[name].records:
            assert scheduler.schedule(name, 0.0) is not None
        record = scheduler.workers[name].records[0]
        report = StepReport(
            record.step_id,
            record.num_decode_rows,
            record.num_prefill_tokens,
            execute_us=int(takes_s * 1e6),
            duration_us=int(takes_s * 1e6),
        )
        scheduler.update(name, report, 0.0)


def hang(scheduler: Scheduler, since: float, now: float) -> WorkerHealth:
    """A tick while the step of worker a has run since then."""
    for worker in scheduler.workers.values():
        worker.vitals.heard_at = now
    scheduler.workers["a"].vitals.oldest_step_s = now - since
    scheduler.tick(now)
    return scheduler.workers["a"].health


def make_hanging(takes_s: float = 0.01) -> Scheduler:
    scheduler = make_scheduler(A, B, max_inflight_steps=1, just_in_time_steps=False)
    run_on_a(scheduler, "x")
    decode(scheduler, "a", 30, takes_s)
    assert scheduler.schedule("a", 0.0) is not None
    return scheduler


def test_requests_of_a_worker_that_hangs_move() -> None:
    """E7: with the end of the step it is as good as ever (E10)."""
    scheduler, now = make_hanging(), 10.0
    while hang(scheduler, 10.0, now) is WorkerHealth.GOOD:
        now += HEARTBEAT_S
        assert now < 17.0
    assert now > 15.0 and scheduler.workers["a"].health is WorkerHealth.HUNG
    assert losses(scheduler) == {"x": LossCause.MOVED}
    decode(scheduler, "a", 1, 7.0)
    assert hang(scheduler, now, now) is WorkerHealth.GOOD
    scheduler.check_integrity()


def test_long_steps_are_no_hang() -> None:
    """E7: a step may take twenty times as long as the longest of the last ones, and as what it has to do."""
    scheduler = make_hanging(takes_s=0.5)
    assert {hang(scheduler, 10.0, 10.0 + tick * HEARTBEAT_S) for tick in range(38)} == {WorkerHealth.GOOD}
    assert hang(scheduler, 10.0, 22.0) is WorkerHealth.GOOD
    assert [hang(scheduler, 10.0, 22.0 + tick) for tick in (0.25, 0.5)][-1] is WorkerHealth.HUNG


def test_a_process_that_was_stopped_and_goes_on_has_not_hung() -> None:
    """E7, H3: its step looks old once."""
    scheduler = make_hanging()
    assert hang(scheduler, 0.0, 10.0) is WorkerHealth.GOOD
    decode(scheduler, "a", 1, 0.01)
    assert {hang(scheduler, now, now) for now in (10.25, 10.5, 10.75)} == {WorkerHealth.GOOD}


def test_the_first_steps_of_a_worker_may_take_long() -> None:
    """E7: kernels are compiled."""
    scheduler = make_scheduler(A, B, max_inflight_steps=1)
    run_on_a(scheduler, "x")
    assert {hang(scheduler, 0.0, 60.0 + tick * HEARTBEAT_S) for tick in range(8)} == {WorkerHealth.GOOD}
