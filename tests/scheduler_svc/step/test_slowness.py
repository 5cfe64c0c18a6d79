"""Workers that hang or are slow (docs/liveness.md, E7, E8, E10), by their own history and that of the others."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.evidence import Exit, Process
from scheduler_svc.core.state.steps.step import StepReport
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.protocol.enums import LossCause, WorkerExit, WorkerHealth
from tests.scheduler_svc.liveness.test_liveness import (
    A,
    B,
    attach,
    losses,
    make_scheduler,
    run_on_a,
    submit,
)

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


def look(scheduler: Scheduler, now: float) -> None:
    """All workers were heard, and are looked at."""
    for worker in scheduler.workers.values():
        worker.vitals.heard_at = now
    scheduler.tick(now)


def hang(scheduler: Scheduler, since: float, now: float) -> WorkerHealth:
    """A tick while the step of worker a has run since then."""
    scheduler.workers["a"].vitals.oldest_step_s = now - since
    look(scheduler, now)
    return scheduler.workers["a"].health


def make_hanging(takes_s: float = 0.01, count: int = 30, **settings: object) -> Scheduler:
    """Worker a has made so many steps, and the next one hangs."""
    scheduler = make_scheduler(A, B, max_inflight_steps=1, just_in_time_steps=False, **settings)
    run_on_a(scheduler, "x")
    decode(scheduler, "a", count, takes_s)
    look(scheduler, 1.0)
    assert scheduler.schedule("a", 0.0) is not None
    return scheduler


def limit_s(scheduler: Scheduler) -> float:
    """Of the step that worker a runs."""
    return scheduler.workers["a"].records[0].limit_s


def until_hung(scheduler: Scheduler) -> float:
    """How long the step of worker a has run when that is found out."""
    now = 10.0
    while hang(scheduler, 10.0, now) is WorkerHealth.GOOD:
        now += HEARTBEAT_S
        assert now < 200.0
    return now - 10.0


def test_rows_of_a_step_that_hangs_move_as_after_a_crash() -> None:
    """E7, U9: where no guardian ends the process. With the end of the step it is as good as ever (E10)."""
    scheduler = make_hanging()
    submit(scheduler, "waits", has_grammar=True)
    scheduler.workers["b"].draining = True
    scheduler.schedule("a", 0.0)
    assert scheduler.requests[next(iter(scheduler.requests))].worker_id == "a"
    scheduler.workers["b"].draining = False
    scheduler.drain_notices()
    assert 5.0 < until_hung(scheduler) < 7.0
    assert losses(scheduler)["x"] is LossCause.CRASH
    decode(scheduler, "a", 1, 7.0)
    assert hang(scheduler, 20.0, 20.0) is WorkerHealth.GOOD
    scheduler.check_integrity()


def test_who_has_no_row_in_a_step_that_hangs_is_no_suspect() -> None:
    """S1: `y` starts with the step behind."""
    scheduler = make_scheduler(A, B, max_inflight_steps=2, just_in_time_steps=False, decode_burst_ms=0)
    run_on_a(scheduler, "x")
    decode(scheduler, "a", 30, 0.01)
    look(scheduler, 1.0)
    assert scheduler.schedule("a", 0.0) is not None
    scheduler.workers["b"].draining = True
    submit(scheduler, "y")
    while (step := scheduler.schedule("a", 0.0)) is not None and not step.placed:
        pass
    scheduler.workers["b"].draining = False
    assert {request.worker_id for request in scheduler.requests.values()} == {"a"}
    scheduler.drain_notices()
    until_hung(scheduler)
    assert losses(scheduler) == {"x": LossCause.CRASH, "y": LossCause.MOVED}


def test_a_suspect_that_hangs_again_ends_without_room_elsewhere() -> None:
    """S4, E7: who stays with a worker that hangs would wait for ever."""
    scheduler = make_hanging()
    scheduler.workers["b"].draining = True
    until_hung(scheduler)
    assert losses(scheduler) == {}, "nobody else could take it"
    for request in scheduler.requests.values():
        request.num_crashes = 1
        scheduler.register.suspects[request.key] = request
    assert hang(scheduler, 0.0, 20.0) is WorkerHealth.HUNG
    assert losses(scheduler) == {"x": LossCause.CRASH}


@pytest.mark.parametrize(
    ("takes_s", "expected_s"), [(0.01, 5.0), (1.2, 5.0), (2.0, 8.0), (20.0, 80.0), (100.0, 120.0)]
)
def test_a_step_may_take_four_times_as_long_as_it_should(takes_s: float, expected_s: float) -> None:
    """U6: and five seconds, and no longer than its worker says."""
    scheduler = make_hanging(takes_s)
    assert limit_s(scheduler) == pytest.approx(expected_s, rel=0.01)
    assert expected_s < until_hung(scheduler) < 1.02 * expected_s + 4 * HEARTBEAT_S


def test_one_long_step_among_the_last_is_no_measure() -> None:
    """U6: it may be the one that hung before."""
    scheduler = make_scheduler(A, B, max_inflight_steps=1, just_in_time_steps=False)
    run_on_a(scheduler, "x")
    decode(scheduler, "a", 200, 0.02)
    decode(scheduler, "a", 1, 9.0)
    look(scheduler, 1.0)
    scheduler.schedule("a", 0.0)
    assert limit_s(scheduler) == 5.0


def test_the_load_of_the_last_seconds_counts() -> None:
    """U6: at five times the load a step may take five times as long, whatever it was for minutes."""
    floor = make_floor()
    of_prompts: Cost = lambda rows, prompt_tokens: 1.5  # noqa: E731
    floor.run(400.0, of_prompts)
    before_s = floor.scheduler.workers["a"].step_limit.decode_s
    for name in floor.slowed:
        floor.slowed[name] = 5.0
    floor.run(60.0, of_prompts)
    assert before_s == pytest.approx(6.0, rel=0.05)
    assert floor.scheduler.workers["a"].step_limit.decode_s > 4.0 * before_s


def test_a_step_that_compiles_may_take_two_minutes() -> None:
    """U7."""
    scheduler = make_hanging()
    scheduler.workers["a"].vitals.compiles = True
    assert 120.0 < until_hung(scheduler) < 122.0


def test_another_step_than_the_oldest_says_nothing() -> None:
    """E7: the word is about a step that has been reported since."""
    scheduler = make_hanging()
    scheduler.workers["a"].vitals.oldest_step_id = scheduler.workers["a"].records[0].step_id - 1
    assert {hang(scheduler, 0.0, 30.0 + tick) for tick in (0.25, 0.5, 0.75, 1.0)} == {WorkerHealth.GOOD}


def test_a_process_that_was_stopped_and_goes_on_has_not_hung() -> None:
    """E7, H3: its step looks old once."""
    scheduler = make_hanging()
    assert hang(scheduler, 0.0, 10.0) is WorkerHealth.GOOD
    decode(scheduler, "a", 1, 0.01)
    assert {hang(scheduler, now, now) for now in (10.25, 10.5, 10.75)} == {WorkerHealth.GOOD}


def test_the_first_steps_of_a_worker_may_take_long() -> None:
    """U6: caches and clocks warm up."""
    scheduler = make_hanging(count=3)
    assert limit_s(scheduler) == 120.0


@pytest.mark.parametrize(
    ("instance", "takes_s", "expected_s"), [("a-2", 0.02, 5.0), ("a-2", 0.5, 10.0), ("c-1", 0.02, 120.0)]
)
def test_a_process_begins_with_the_speed_of_its_predecessor(
    instance: str, takes_s: float, expected_s: float
) -> None:
    """U6: twenty times that, and of the same id only."""
    scheduler = make_scheduler(A, max_inflight_steps=1, just_in_time_steps=False)
    run_on_a(scheduler, "x")
    decode(scheduler, "a", 30, takes_s)
    look(scheduler, 1.0)
    scheduler.detach_worker("a", 1.0)
    scheduler.worker_ended(A, Exit(WorkerExit.CRASHED, "its step hung", 1.0), 1.0)
    name = instance[0]
    attach(scheduler, Process(name, instance), 2.0)
    submit(scheduler, "z", now=2.0)
    assert scheduler.schedule(name, 2.0) is not None
    decode_one = scheduler.workers[name].records[0]
    assert decode_one.num_prefill_tokens == 6
    look(scheduler, 2.0)
    assert scheduler.workers[name].step_limit.decode_s == pytest.approx(expected_s, rel=0.01)


def test_a_limit_is_told_when_it_changes() -> None:
    """U7."""
    scheduler = make_scheduler(A, max_inflight_steps=1, just_in_time_steps=False)
    submit(scheduler, "x")
    told = []
    for number in range(60):
        step = scheduler.schedule("a", 0.0)
        assert step is not None
        told.append(step.limit_s)
        decode(scheduler, "a", 1, 0.02)
        look(scheduler, 0.1 * number)
    assert told[0] == 120.0 and [each for each in told[1:] if each] == [5.0]
