"""The policy `deadline`: earliest first among those that can be met, and what is counted of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from scheduler_svc.config import SchedulerSettings
from scheduler_svc.core.queue.class_queue import ClassQueue
from scheduler_svc.core.queue.deadline_queue import STARTS_PER_LATE, DeadlineQueue, LateQuota
from scheduler_svc.core.queue.ledger import Ledger
from scheduler_svc.core.queue.sorted_queue import ArrivalQueue
from scheduler_svc.core.queue.ttft_estimator import MEMORY_S, TtftEstimator
from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import Request, RequestStatus
from scheduler_svc.core.state.requests.tenants import TenantLimits
from scheduler_svc.core.state.ttft_targets import parse_ttft_targets
from scheduler_svc.metrics import read
from scheduler_svc.step_loop import StepLoop
from signalbox.benchmarks.qos import bench
from signalbox.errors import StartupError
from signalbox.runtime.config import load
from signalbox.telemetry.attributes import METRIC_TTFT_DEADLINES
from signalbox.telemetry.spans import SpanCounts
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    make_slot,
    report_for,
)

TARGETS = "0:100,1:1000,2:10000"


def make(policy: str = "deadline", targets: str = TARGETS, **settings: object) -> Scheduler:
    """A scheduler with one place on its worker."""
    values: dict[str, object] = {"max_num_seqs": 1, "max_inflight_steps": 1, "num_blocks": 1024}
    return make_scheduler(policy=policy, ttft_targets=targets, **values | settings)  # type: ignore[arg-type]


def submit(scheduler: Scheduler, name: str, priority: int, now: float = 0.0, **fields: object) -> Request:
    request = make_request(name, int(fields.pop("num_prompt", 4)), priority=priority, **fields)  # type: ignore[call-overload]
    scheduler.submit(request, now)
    return request


def start_one(scheduler: Scheduler, now: float = 0.0) -> str:
    """Lets the next request start and end; returns its name."""
    while (step := scheduler.schedule(WORKER, now)) is None or not step.placed:
        assert step is not None, "nobody starts"
        scheduler.update(WORKER, report_for(scheduler), now)
    (request,) = step.placed
    assert request.slot is not None
    scheduler.update(WORKER, report_for(scheduler, ((request.slot, 1, 1),)), now)
    return request.key.request_id


def order_of(scheduler: Scheduler, count: int, now: float = 0.0) -> list[str]:
    return [start_one(scheduler, now) for _ in range(count)]


def make_punctual(name: str) -> Request:
    request = make_request(name, 4)
    request.entry.deadline = 1.0
    return request


def observe(scheduler: Scheduler, tokens_per_s: float) -> None:
    """Steps of a millisecond have computed prompts at that rate."""
    ttft_estimator = scheduler.queues.of("m").ttft_estimator
    for _ in range(32):
        ttft_estimator.observe(int(tokens_per_s / 1000), 1, 0.001)


# -- order --


def test_the_earliest_deadline_goes_first_whatever_came_first() -> None:
    """Q1."""
    scheduler = make()
    for name, priority in (("patient", 2), ("medium", 1), ("urgent", 0), ("without", 7)):
        submit(scheduler, name, priority)
    assert order_of(scheduler, 4) == ["urgent", "medium", "patient", "without"]


def test_a_patient_request_goes_first_once_its_deadline_is_the_earliest() -> None:
    scheduler = make()
    submit(scheduler, "patient", 1, now=0.0)
    submit(scheduler, "urgent", 0, now=0.95)
    assert order_of(scheduler, 2, now=0.96) == ["patient", "urgent"]


def test_what_is_late_goes_behind_in_order_of_arrival() -> None:
    scheduler = make()
    submit(scheduler, "late medium", 1, now=0.0)
    submit(scheduler, "late urgent", 0, now=0.5)
    submit(scheduler, "urgent", 0, now=2.0)
    submit(scheduler, "patient", 2, now=2.0)
    assert order_of(scheduler, 4, now=2.01) == ["urgent", "patient", "late medium", "late urgent"]


def test_a_prompt_that_is_too_long_for_its_deadline_goes_behind() -> None:
    scheduler = make()
    observe(scheduler, 1000.0)
    submit(scheduler, "hopeless", 0, num_prompt=200)
    submit(scheduler, "urgent", 0, now=0.01, num_prompt=80)
    assert order_of(scheduler, 2, now=0.01) == ["urgent", "hopeless"]


def test_what_is_cached_of_a_prompt_needs_no_time() -> None:
    hashes = b"".join(bytes([number]) * 16 for number in range(50))
    scheduler = make()
    submit(scheduler, "before", 0, num_prompt=200, hashes=hashes)
    assert start_one(scheduler) == "before"
    observe(scheduler, 1000.0)
    submit(scheduler, "cached", 0, num_prompt=200, hashes=hashes)
    submit(scheduler, "urgent", 0, now=0.01, num_prompt=80)
    assert order_of(scheduler, 2, now=0.01) == ["cached", "urgent"]


def test_small_steps_say_nothing_of_how_fast_prompts_are_computed() -> None:
    ttft_estimator = TtftEstimator(lambda request: 0)
    ttft_estimator.observe(10, 100, 1.0)
    request = make_request("r", 1000)
    request.entry.deadline = 0.5
    assert ttft_estimator.can_be_met(request)


def test_one_slow_step_among_many_makes_nobody_late() -> None:
    ttft_estimator = TtftEstimator(lambda request: 0)
    for duration_s in (20.0, *3 * [0.05]):
        ttft_estimator.observe(100, 100, duration_s)
    request = make_request("r", 200)
    request.entry.deadline = 0.5
    assert ttft_estimator.can_be_met(request)


def test_steps_of_long_ago_say_nothing() -> None:
    ttft_estimator = TtftEstimator(lambda request: 0)
    ttft_estimator.observe(100, 100, 20.0)
    request = make_request("r", 100)
    request.entry.deadline = MEMORY_S + 1.5
    ttft_estimator.now = 59.0
    assert not ttft_estimator.can_be_met(request)
    ttft_estimator.now = MEMORY_S + 1.0
    assert ttft_estimator.can_be_met(request)


# -- nobody starves --


@pytest.mark.parametrize("policy", ["deadline", "fair+deadline", "priority+deadline"])
def test_one_of_eight_starts_belongs_to_the_late(policy: str) -> None:
    """Q1."""
    scheduler = make(policy, "0:100")
    for number in range(3):
        submit(scheduler, f"late{number}", 0)
    names = []
    for number in range(4 * STARTS_PER_LATE):
        submit(scheduler, f"urgent{number}", 0, now=1.0)
        names.append(start_one(scheduler, now=1.0))
    late = [index for index, name in enumerate(names) if name.startswith("late")]
    assert [names[index] for index in late] == ["late0", "late1", "late2"]
    assert late == [STARTS_PER_LATE - 1, 2 * STARTS_PER_LATE - 1, 3 * STARTS_PER_LATE - 1]


def start_a_turn_of_urgent(scheduler: Scheduler, tenant: str) -> list[str]:
    """Who started while a turn's number of urgent requests came."""
    names = []
    for number in range(STARTS_PER_LATE):
        submit(scheduler, f"urgent{number}", 0, now=1.0, tenant=tenant)
        names.append(start_one(scheduler, now=1.0))
    return names


def test_the_late_of_one_tenant_have_their_turn_beside_the_punctual_of_another() -> None:
    scheduler = make(targets="0:100")
    scheduler.queues.set_limits(TenantLimits(max_running=100), {})
    submit(scheduler, "late", 0, tenant="a")
    names = start_a_turn_of_urgent(scheduler, tenant="b")
    assert names[-1] == "late"
    assert "late" not in names[:-1]


def test_a_tenant_at_its_limit_does_not_keep_the_turn_of_the_late() -> None:
    scheduler = make(targets="0:100", max_num_seqs=2)
    scheduler.queues.set_limits(TenantLimits(), {"a": TenantLimits(max_running=1)})
    submit(scheduler, "runs", 0, tenant="a")
    scheduler.schedule(WORKER, 0.0)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    submit(scheduler, "may not", 0, tenant="a")
    submit(scheduler, "late", 0, tenant="b")
    names = start_a_turn_of_urgent(scheduler, tenant="b")
    assert names[-1] == "late"
    assert "late" not in names[:-1]


def test_where_tenants_share_the_late_take_turns_with_their_own_tenants_requests() -> None:
    members = ClassQueue(Ledger(1.0, 1.0, 0.0), True, TtftEstimator(lambda request: 0))
    a, b = members.new_queue(), members.new_queue()
    for number, queue in enumerate((a, *STARTS_PER_LATE * [b])):
        request = make_request(str(number), 4, arrival_ms=number)
        request.entry.deadline = None if number < 2 else 1.0
        queue.push(request)
    for _ in range(STARTS_PER_LATE - 1):
        request = next(b.walk())
        assert not request.entry.is_late
        request.move(RequestStatus.RUNNING)
        b.remove(request)
    assert [request.key.request_id for request in b.walk()] == ["1"]
    b.push(make_punctual("next"))
    assert [request.key.request_id for request in b.walk()] == ["1", "next"]


def test_whose_turn_it_is_stands_in_the_order_once() -> None:
    queue = DeadlineQueue(TtftEstimator(lambda request: 0), LateQuota())
    for number in range(STARTS_PER_LATE + 2):
        request = make_request(str(number), 4, arrival_ms=number)
        request.entry.deadline = None if number < 2 else 1.0
        queue.push(request)
    for request in list(queue.walk())[: STARTS_PER_LATE - 1]:
        request.move(RequestStatus.RUNNING)
        queue.remove(request)
    names = [request.key.request_id for request in queue.walk()]
    assert names == ["0", str(STARTS_PER_LATE + 1), "1"]


def test_a_late_request_that_is_cancelled_takes_no_turn() -> None:
    scheduler = make(targets="0:100")
    late = [submit(scheduler, f"late{number}", 0) for number in range(2)]
    names = []
    for number in range(STARTS_PER_LATE):
        submit(scheduler, f"urgent{number}", 0, now=1.0)
        names.append(start_one(scheduler, now=1.0))
        if number == 3:
            scheduler.cancel(late[0].key, 1)
    assert names[-1] == "late1"


def test_the_oldest_rises_first_though_it_is_late() -> None:
    scheduler = make("priority+deadline", "0:100,1:100", aging_s=5.0)
    submit(scheduler, "old", 1)
    submit(scheduler, "high", 0, now=5.1)
    submit(scheduler, "young", 1, now=5.1)
    assert order_of(scheduler, 3, now=5.1) == ["old", "high", "young"]


# -- composed --


def test_deadlines_count_across_tenants_that_do_not_share() -> None:
    scheduler = make()
    scheduler.queues.set_limits(TenantLimits(max_running=100), {})
    for name, tenant, priority in (("a2", "a", 2), ("b1", "b", 1), ("a0", "a", 0), ("b2", "b", 2)):
        submit(scheduler, name, priority, tenant=tenant)
    assert order_of(scheduler, 4) == ["a0", "b1", "a2", "b2"]


def test_tenants_share_outside_of_deadlines() -> None:
    scheduler = make("fair+deadline")
    for number in range(3):
        submit(scheduler, f"a{number}", 0, tenant="a", num_prompt=400)
    submit(scheduler, "b-patient", 2, tenant="b")
    submit(scheduler, "b-urgent", 1, tenant="b")
    assert order_of(scheduler, 3)[1:] == ["b-urgent", "b-patient"]


def test_classes_stand_outside_of_deadlines() -> None:
    scheduler = make("priority+deadline", "0:10000,1:100")
    submit(scheduler, "urgent and low", 1)
    submit(scheduler, "patient and high", 0)
    assert order_of(scheduler, 2) == ["patient and high", "urgent and low"]


# -- the queue alone --


def test_any_order_of_comings_and_goings_is_that_of_a_sorted_list() -> None:
    rng = random.Random(0)
    ttft_estimator = TtftEstimator(lambda request: 0)
    queue, waiting, now = DeadlineQueue(ttft_estimator, LateQuota()), [], 0.0
    for number in range(3000):
        now += rng.random() * 0.01
        ttft_estimator.now = now
        if rng.random() < 0.6:
            request = make_request(str(number), 4, arrival_ms=number)
            request.entry.deadline = now + rng.choice((0.05, 0.5, 5.0)) if rng.random() < 0.9 else None
            queue.push(request)
            waiting.append(request)
        elif waiting:
            request = rng.choice(waiting)
            queue.remove(request)
            waiting.remove(request)
        if number % 10 == 0:
            on_time = [r for r in waiting if r.entry.deadline is not None and r.entry.deadline >= now]
            late = [r for r in waiting if r.entry.deadline is None or r.entry.deadline < now]
            expected = [*sorted(on_time, key=lambda r: (r.entry.deadline, r.arrival)), *late]
            assert [r.key for r in queue.walk()] == [r.key for r in expected]
            assert [r.key for r in queue] == [r.key for r in waiting]
            assert len(queue) == len(waiting)


def test_what_has_gone_past_one_that_stays_is_forgotten() -> None:
    queue = ArrivalQueue()
    queue.push(make_request("stays", 4))
    for number in range(1, 1000):
        request = make_request(str(number), 4, arrival_ms=number)
        queue.push(request)
        if number > 10:
            queue.remove(request)
    assert len(queue) == len(list(queue)) == 11
    assert len(queue._requests) < 200


def test_a_start_looks_at_few_of_ten_thousand() -> None:
    class Counting(TtftEstimator):
        num_asked = 0

        def can_be_met(self, request: Request) -> bool:
            self.num_asked += 1
            return super().can_be_met(request)

    ttft_estimator = Counting(lambda request: 0)
    queue = DeadlineQueue(ttft_estimator, LateQuota())
    for number in range(10_000):
        request = make_request(str(number), 4, arrival_ms=number)
        request.entry.deadline = 1.0 + number % 100
        queue.push(request)
    ttft_estimator.num_asked = 0
    for _ in range(1000):
        walk = queue.walk()
        request = next(walk)
        request.move(RequestStatus.RUNNING)
        queue.remove(request)
    assert ttft_estimator.num_asked <= 3000


# -- counts --


def test_first_tokens_in_time_and_too_late_are_counted_by_priority() -> None:
    scheduler = make("fcfs")
    for name, priority in (("in time", 0), ("too late", 0), ("patient", 1), ("without", 7)):
        submit(scheduler, name, priority)
    start_one(scheduler, now=0.05)
    order_of(scheduler, 3, now=0.2)
    deadlines = scheduler.queues.deadlines
    assert deadlines.met == {0: 1, 1: 1}
    assert deadlines.missed == {0: 1}


def test_a_late_request_that_is_given_up_counts_as_missed_and_a_hasty_one_not() -> None:
    scheduler = make()
    late, hasty = submit(scheduler, "late", 0), submit(scheduler, "hasty", 2)
    submit(scheduler, "next", 0, now=0.2)
    assert start_one(scheduler, now=0.2) == "next"
    scheduler.cancel(late.key, 1)
    scheduler.cancel(hasty.key, 1)
    assert scheduler.queues.deadlines.met == {0: 1}
    assert scheduler.queues.deadlines.missed == {0: 1}


@pytest.mark.parametrize("policy", ["fcfs", "deadline"])
def test_what_is_cancelled_past_its_deadline_counts_as_missed_under_any_policy(policy: str) -> None:
    scheduler = make(policy, "0:100,1:1000")
    late, hasty = submit(scheduler, "late", 0), submit(scheduler, "hasty", 1)
    scheduler.tick(0.5)
    scheduler.cancel(late.key, 1)
    scheduler.cancel(hasty.key, 1)
    assert scheduler.queues.deadlines.missed == {0: 1}


def test_a_first_token_whose_report_was_lost_with_the_link_came_in_time() -> None:
    scheduler = make_scheduler(
        policy="priority", ttft_targets="0:1000", safe_mode_ttft_ms=1000.0, max_inflight_steps=1
    )
    for number in range(6):
        submit(scheduler, str(number), 0, num_prompt=30)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and len(step.placed) == 6
    slots = [
        make_slot(
            slot=request.slot,
            request=make_request(request.key.request_id, 30),
            blocks=np.arange(10 * number, 10 * number + 10, dtype=np.int32),
            num_output_tokens=1,
        )
        for number, request in enumerate(step.placed)
    ]
    scheduler.detach_worker(WORKER, 0.1)
    scheduler.attach_worker(make_info(), WorkerSnapshot(scheduler.epoch, 1, slots), 0.2)
    scheduler.tick(1.5)
    assert scheduler.queues.deadlines.met == {0: 6}
    assert scheduler.safe_mode.level is None


def test_a_first_token_is_counted_once_though_the_worker_says_hello_again() -> None:
    scheduler = make_scheduler(ttft_targets="0:1000", max_inflight_steps=1)
    submit(scheduler, "r", 0, num_prompt=30)
    scheduler.schedule(WORKER, 0.0)
    scheduler.update(WORKER, report_for(scheduler), 0.1)
    slot = make_slot(request=make_request("r", 30), num_output_tokens=1)
    scheduler.attach_worker(make_info(), WorkerSnapshot(scheduler.epoch, 1, [slot]), 5.0)
    assert scheduler.queues.deadlines.met == {0: 1}
    assert not scheduler.queues.deadlines.missed


def test_a_request_that_had_tokens_before_its_loss_is_not_counted_again() -> None:
    scheduler = make()
    request = submit(scheduler, "again", 0, num_prior_output_tokens=2)
    assert start_one(scheduler, now=0.5) == "again"
    assert request.entry.is_late
    assert not scheduler.queues.deadlines.met
    assert not scheduler.queues.deadlines.missed


def test_the_metrics_show_them_for_every_priority_with_a_target() -> None:
    scheduler = make(targets="0:100,1:1000")
    submit(scheduler, "too late", 0)
    submit(scheduler, "in time", 1)
    order_of(scheduler, 2, now=0.2)
    loop = StepLoop(scheduler, lambda: 0.2, lambda when, action: None)
    (metric,) = (metric for metric in read(loop, SpanCounts()) if metric.name == METRIC_TTFT_DEADLINES)
    counts = {(s.labels["priority"], s.labels["result"]): s.value for s in metric.samples}
    assert counts == {("0", "met"): 0, ("0", "missed"): 1, ("1", "met"): 1, ("1", "missed"): 0}


@pytest.mark.slow
def test_many_more_come_in_time_than_by_arrival_at_an_overload() -> None:
    by_arrival = bench.run_deadline(1.5, "fcfs", duration_s=15.0)
    by_deadline = bench.run_deadline(1.5, "deadline", duration_s=15.0)
    assert float(by_deadline["in_time"]) > 0.5 > 2 * float(by_arrival["in_time"])
    assert float(by_deadline["done_per_s"]) >= 0.97 * float(by_arrival["done_per_s"])


# -- settings --


@pytest.mark.parametrize("text", ["0", "0:", ":5", "x:5", "0:0", "0:-1", "0:nan", "0:inf", "0:5,", "0:5,0:6"])
def test_targets_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ttft_targets"):
        parse_ttft_targets(text)


def test_targets_are_milliseconds_by_priority() -> None:
    assert parse_ttft_targets("0:500,-1:62.5") == {0: 0.5, -1: 0.0625}
    assert parse_ttft_targets("") == {}


@pytest.mark.parametrize("arguments", [["--policy", "deadline"], ["--ttft-targets", "0:soon"]])
def test_settings_that_lack_targets_name_them(arguments: list[str]) -> None:
    with pytest.raises(StartupError, match="--ttft-targets"):
        load(SchedulerSettings, arguments)
