"""What safe mode does to queues and workers."""

from __future__ import annotations

import pytest

from scheduler_svc.config import SchedulerSettings
from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.requests.tenants import TenantLimits
from scheduler_svc.core.state.steps.step import StepDecision, StepReport
from scheduler_svc.core.state.worker import Worker
from signalbox.errors import StartupError
from signalbox.runtime import config
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    make_slot,
    report_for,
    run_step,
    tokens_by_name,
)


def make_core(**settings: object) -> Scheduler:
    values = {"policy": "priority", "aging_s": 0.0, "max_inflight_steps": 1, "max_num_seqs": 4}
    return make_scheduler(**values | settings)


def submit(core: Scheduler, *requests: tuple[str, int], now: float = 0.0) -> None:
    """(name, priority)"""
    for name, priority in requests:
        core.submit(make_request(name, 3, priority=priority), now)


def placed(step: StepDecision | None) -> set[str]:
    return set() if step is None else {request.key.request_id for request in step.placed}


def run_tokens(core: Scheduler) -> dict[str, int]:
    """How many tokens the next step runs for each request."""
    step = core.schedule(WORKER, 0.0)
    assert step is not None
    tokens = tokens_by_name(core, step)
    core.update(WORKER, report_for(core), 0.0)
    return tokens


def report_of(worker: Worker) -> StepReport:
    record = worker.records[0]
    return StepReport(record.step_id, record.num_decode_rows, record.num_prefill_tokens)


def run_step_at(core: Scheduler, now: float) -> StepDecision:
    step = core.schedule(WORKER, now)
    assert step is not None
    core.update(WORKER, report_for(core), now)
    return step


def find(core: Scheduler, name: str) -> Request:
    return next(r for r in core.requests.values() if r.key.request_id == name)


def test_suspended_classes_wait_and_the_others_start() -> None:
    """P3."""
    core = make_core()
    core.set_safe_mode(1, 0.0)
    submit(core, ("low", 2), ("middle", 1), ("top", 0))
    assert placed(run_step(core)) == {"top", "middle"}
    assert placed(run_step(core)) == set()
    core.lift_safe_mode(0.0)
    assert placed(run_step(core)) == {"low"}
    core.check_integrity()


def test_running_ones_are_paused_with_their_blocks_and_go_on_when_it_is_lifted() -> None:
    """P3."""
    core = make_core()
    submit(core, ("low", 2), ("top", 0))
    run_step(core)
    core.set_safe_mode(0, 0.0)
    assert core.workers[WORKER].num_suspended == 1
    assert run_tokens(core) == {"top": 1}
    assert core.workers[WORKER].num_suspended == 1
    assert core.workers[WORKER].stats.num_preemptions == 0
    core.lift_safe_mode(0.0)
    assert run_tokens(core) == {"top": 1, "low": 1}
    core.check_integrity()


def test_without_pauses_running_ones_go_on() -> None:
    core = make_core(safe_mode_pauses=False)
    submit(core, ("runs", 2))
    run_step(core)
    core.set_safe_mode(0, 0.0)
    submit(core, ("waits", 2))
    step = core.schedule(WORKER, 0.0)
    assert step is not None and tokens_by_name(core, step) == {"runs": 1}
    assert not step.placed


def test_paused_ones_give_their_places_and_their_blocks_to_others() -> None:
    core = make_core(num_blocks=8, max_num_seqs=2, watermark_blocks_per_seq=0)
    core.submit(make_request("low a", 15, priority=2), 0.0)
    core.submit(make_request("low b", 15, priority=2), 0.0)
    run_step(core)
    core.set_safe_mode(0, 0.0)
    core.submit(make_request("top", 15), 0.0)
    assert placed(run_step(core)) == {"top"}
    assert core.workers[WORKER].stats.num_preemptions == 1
    core.check_integrity()


def test_aging_does_not_lift_a_suspended_class_over_the_level() -> None:
    """P4."""
    core = make_core(aging_s=1.0, max_num_seqs=1)
    core.set_safe_mode(0, 0.0)
    submit(core, ("low", 2))
    submit(core, ("top", 0), now=100.0)
    step = core.schedule(WORKER, 200.0)
    assert placed(step) == {"top"}


def test_who_was_suspended_has_not_aged_when_it_is_lifted() -> None:
    """P4."""
    core = make_core(aging_s=10.0, max_num_seqs=1)
    submit(core, ("old", 2))
    core.set_safe_mode(0, 9.0)
    submit(core, ("young", 2), now=50.0)
    core.lift_safe_mode(100.0)
    assert find(core, "old").entry.waits_since == pytest.approx(91.0)
    assert find(core, "young").entry.waits_since == pytest.approx(100.0)
    submit(core, ("middle", 1), now=100.5)
    assert placed(core.schedule(WORKER, 100.5)) == {"middle"}, "after 9.5 s nobody has risen"


def test_a_suspended_request_can_be_cancelled_wherever_it_stands() -> None:
    core = make_core()
    submit(core, ("runs", 2))
    run_step(core)
    core.set_safe_mode(0, 0.0)
    submit(core, ("waits", 2))
    run_step(core)
    for name in ("runs", "waits"):
        core.cancel(make_request(name, 1).key, 1)
    run_step(core)
    assert not core.requests
    core.check_integrity()


def test_ten_thousand_suspended_requests_are_not_looked_at() -> None:
    """P3."""
    core = make_core(max_waiting=20_000)
    core.set_safe_mode(0, 0.0)
    submit(core, *((str(number), 2) for number in range(10_000)))
    assert not core.has_work(core.workers[WORKER])
    submit(core, ("top", 0))
    offered = list(core.queues.of("m").walk(1e6))
    assert [request.key.request_id for request in offered] == ["top"]


def test_suspended_requests_take_no_room_in_the_queue_from_others() -> None:
    core = make_core(max_waiting=2)
    core.set_safe_mode(0, 0.0)
    submit(core, ("a", 2), ("b", 2), ("c", 2), ("top", 0))
    refused = [n.key.request_id for n in core.drain_notices() if isinstance(n, Rejected)]
    assert refused == ["c"]


def test_paused_requests_leave_slots_for_a_full_batch_of_others() -> None:
    """P5: otherwise nobody could ever start, and safe mode would keep itself alive."""
    core = make_core(num_slots=4, max_num_seqs=3)
    submit(core, ("a", 2), ("b", 2), ("c", 2))
    run_step(core)
    core.set_safe_mode(0, 0.0)
    assert [find(core, name).suspended for name in "abc"] == [False, False, True], "the oldest go on"


def test_what_runs_on_a_draining_worker_goes_on_to_its_end() -> None:
    """P5."""
    core = make_core()
    submit(core, ("low", 2))
    run_step(core)
    core.set_safe_mode(0, 0.0)
    assert find(core, "low").suspended
    core.drain_worker(WORKER, True, 0.0)
    assert not find(core, "low").suspended
    core.drain_worker(WORKER, False, 0.0)
    assert find(core, "low").suspended


def test_late_first_tokens_suspend_the_lower_classes() -> None:
    core = make_core(safe_mode_ttft_ms=100.0, max_num_seqs=1)
    submit(core, *((f"top {number}", 0) for number in range(20)), ("low", 2))
    core.tick(0.05)
    assert not find(core, "low").suspended
    core.tick(1.0)
    assert find(core, "low").suspended
    assert core.safe_mode.level == 0


def test_first_tokens_in_time_suspend_nobody() -> None:
    core = make_core(safe_mode_ttft_ms=100.0, num_slots=40, max_num_seqs=30, num_blocks=100)
    submit(core, *((f"top {number}", 0) for number in range(20)), ("low", 2))
    run_step(core)
    core.tick(1.0)
    assert core.safe_mode.level is None


def test_a_tenant_at_its_own_limit_burns_no_budget() -> None:
    core = make_core(safe_mode_ttft_ms=100.0)
    core.queues.set_limits(TenantLimits(max_running=1), {})
    for number in range(20):
        core.submit(make_request(str(number), 3, tenant="greedy"), 0.0)
    run_step(core)
    core.tick(1.0)
    assert core.safe_mode.burn(1.0) == 0.0


def test_requests_that_were_cancelled_in_time_burn_no_budget() -> None:
    core = make_core(safe_mode_ttft_ms=100.0)
    submit(core, *((str(number), 0) for number in range(20)))
    for number in range(20):
        core.cancel(make_request(str(number), 1).key, 1)
    core.tick(1.0)
    assert core.safe_mode.burn(1.0) == 0.0


def test_a_worker_with_paused_requests_only_has_nothing_to_do() -> None:
    core = make_core()
    submit(core, ("low", 2))
    run_step(core)
    core.set_safe_mode(0, 0.0)
    run_step(core)
    assert not core.has_work(core.workers[WORKER])


def test_paused_requests_that_had_risen_make_room_all_the_same() -> None:
    """They came first and have risen to the best class; while they rest, that counts for nothing."""
    core = make_core(aging_s=1.0, num_blocks=8, max_num_seqs=2, watermark_blocks_per_seq=0)
    for name in "ab":
        core.submit(make_request(name, 13, priority=2), 0.0)
    run_step_at(core, 100.0)
    core.set_safe_mode(0, 100.0)
    core.submit(make_request("top", 13, priority=0), 100.0)
    assert placed(run_step_at(core, 100.0)) == {"top"}
    core.check_integrity()


def test_suspended_requests_keep_nobody_from_having_a_grammar_compiled() -> None:
    """Half of the slots may wait for grammars at most; those that will not start for now do not count."""
    core = make_core(num_slots=8)
    for number in range(5):
        core.submit(make_request(f"low {number}", 3, priority=2, has_grammar=True), 0.0)
    assert len(run_step(core).placed) == 4
    core.set_safe_mode(0, 0.0)
    core.submit(make_request("top", 3, has_grammar=True), 0.0)
    assert placed(run_step(core)) == {"top"}


def test_paused_requests_do_not_make_a_worker_look_busy() -> None:
    core = make_core(num_slots=16)
    submit(core, *((f"low {number}", 2) for number in range(4)))
    run_step(core)
    core.set_safe_mode(0, 0.0)
    run_step(core)
    core.attach_worker(make_info(worker_id="other"), None, 0.0)
    submit(core, ("first", 0))
    assert placed(core.schedule("other", 0.0)) == {"first"}
    core.update("other", report_of(core.workers["other"]), 0.0)
    submit(core, ("second", 0))
    assert placed(core.schedule(WORKER, 0.0)) == {"second"}, "nothing runs there"


def test_without_pauses_requests_of_an_earlier_scheduler_go_on() -> None:
    core = make_core(safe_mode_pauses=False)
    core.set_safe_mode(0, 0.0)
    low = make_slot(request=make_request("low", 30, priority=2))
    worker = core.attach_worker(make_info(), WorkerSnapshot(0, 5, [low]), 0.0)
    assert not find(core, "low").suspended
    assert not worker.num_suspended
    core.check_integrity()


def test_a_policy_without_classes_has_no_safe_mode() -> None:
    core = make_scheduler(policy="fair")
    with pytest.raises(ValueError, match="'fair' has none"):
        core.set_safe_mode(0, 0.0)


def test_settings_that_suspend_nobody_are_refused() -> None:
    with pytest.raises(StartupError, match=r"--safe-mode-ttft-ms .* add priority"):
        config.load(SchedulerSettings, ["--safe-mode-ttft-ms", "500"])
    assert config.load(SchedulerSettings, ["--policy=priority", "--safe-mode-ttft-ms=500"]).safe_mode_ttft_ms


@pytest.mark.parametrize(
    ("name", "value"), [("level", "3"), ("budget", "0.05"), ("window-s", "5"), ("lift-s", "5")]
)
def test_a_setting_of_the_error_budget_without_a_promise_is_refused(name: str, value: str) -> None:
    arguments = ["--policy", "priority", f"--safe-mode-{name}", value]
    with pytest.raises(StartupError, match=f"--safe-mode-{name}"):
        config.load(SchedulerSettings, arguments)
    config.load(SchedulerSettings, [*arguments, "--safe-mode-ttft-ms", "500"])
    config.load(SchedulerSettings, [])


def test_a_level_that_no_priority_has_is_refused() -> None:
    with pytest.raises(StartupError, match="--safe-mode-level"):
        config.load(
            SchedulerSettings,
            ["--policy", "priority", "--safe-mode-ttft-ms", "5", "--safe-mode-level", "3000000000"],
        )
