"""When late first tokens set safe mode, and when it is lifted."""

from __future__ import annotations

import pytest

from scheduler_svc.core.queue.error_budget import ErrorBudget
from scheduler_svc.core.queue.safe_mode import MIN_LATE, SafeMode
from scheduler_svc.core.state.requests.entry import QueueEntry
from tests.scheduler_svc.harness import make_request, make_scheduler

SETTINGS = {
    "policy": "priority",
    "safe_mode_ttft_ms": 100.0,
    "safe_mode_window_s": 10.0,
    "safe_mode_lift_s": 30.0,
}


# ---- error budget


def make_budget() -> ErrorBudget:
    """First tokens within 100 ms, of 100 one may be late, over 10 s."""
    return ErrorBudget(ttft_s=0.1, share=0.01, window_s=10.0)


def answer(budget: ErrorBudget, name: str, came: float, took: float) -> None:
    request = make_request(name, 3)
    budget.watch(request, came)
    budget.answered(request, came + took)


def test_the_burn_rate_is_the_share_that_is_late_against_the_share_that_may_be() -> None:
    budget = make_budget()
    for number in range(50):
        answer(budget, str(number), 1.0, 0.2 if number == 0 else 0.05)
    assert budget.burn(1.2) == pytest.approx(2.0)


def test_a_request_without_any_token_is_late_when_its_time_is_over() -> None:
    budget, request = make_budget(), make_request("starved", 3)
    budget.watch(request, 1.0)
    budget.expire(1.05)
    assert budget.num_late(1.05) == 0
    budget.expire(1.2)
    assert budget.num_late(1.2) == 1
    budget.answered(request, 5.0)
    assert budget.num_late(5.0) == 1, "it counts once"


def test_what_is_older_than_the_window_does_not_count() -> None:
    budget = make_budget()
    answer(budget, "a", 1.0, 0.2)
    assert budget.num_late(10.0) == 1
    assert budget.num_late(12.0) == 0
    assert budget.burn(12.0) == 0.0


def test_a_request_that_ended_early_is_no_failure() -> None:
    budget, request = make_budget(), make_request("cancelled", 3)
    budget.watch(request, 1.0)
    budget.forget(request)
    budget.expire(9.0)
    assert budget.num_late(9.0) == 0


# ---- when


def make_mode(**settings: object) -> SafeMode:
    return make_scheduler(**SETTINGS | settings).safe_mode


def outcomes(mode: SafeMode, at: float, late: int, in_time: int) -> None:
    """So many first tokens of class 0."""
    for number in range(late + in_time):
        request = make_request(f"{at}/{number}", 3)
        mode.watch(request, at)
        mode.answered(request, at + (0.2 if number < late else 0.01))
    mode.look(at + 0.2)


def test_a_fast_burn_sets_it_and_a_slow_one_does_not() -> None:
    mode = make_mode()
    outcomes(mode, 0.0, late=9, in_time=91)
    assert mode.level is None, "nine times the budget"
    outcomes(mode, 1.0, late=11, in_time=89)
    assert mode.level == 0


def test_a_few_late_ones_prove_nothing() -> None:
    mode = make_mode()
    outcomes(mode, 0.0, late=MIN_LATE - 1, in_time=0)
    assert mode.level is None
    outcomes(mode, 0.3, late=1, in_time=0)
    assert mode.level == 0


def test_it_is_lifted_when_the_burn_has_been_slow_for_long_and_not_before() -> None:
    mode = make_mode()
    outcomes(mode, 0.0, late=50, in_time=50)
    for second in range(1, 40):  # late ones leave the window after 10 s, and then it takes 30 s
        outcomes(mode, float(second), late=0, in_time=100)
        assert mode.level == 0, f"{second} s"
    outcomes(mode, 41.0, late=0, in_time=100)
    assert mode.level is None


def test_between_fast_and_slow_it_stays_as_it_is() -> None:
    mode = make_mode()
    outcomes(mode, 0.0, late=50, in_time=50)
    for second in range(1, 200):
        outcomes(mode, float(second), late=2, in_time=98)
    assert mode.level == 0, "twice the budget: not lifted"
    mode.lift()
    for second in range(200, 300):
        outcomes(mode, float(second), late=2, in_time=98)
    assert mode.level is None, "twice the budget: not set"


def test_an_operator_lifts_what_the_budget_has_set_until_there_are_new_failures() -> None:
    mode = make_mode()
    outcomes(mode, 0.0, late=50, in_time=0)
    mode.lift()
    mode.look(0.3)
    assert mode.level is None
    outcomes(mode, 1.0, late=50, in_time=0)
    assert mode.level == 0


def test_the_smaller_level_is_in_force() -> None:
    mode = make_mode(safe_mode_level=1)
    mode.set(3)
    assert mode.level == 3
    outcomes(mode, 0.0, late=50, in_time=0)
    assert mode.level == 1
    mode.set(0)
    assert mode.level == 0


def test_only_classes_that_are_kept_have_a_budget() -> None:
    mode = make_mode(safe_mode_level=1)
    for number in range(20):
        low = make_request(str(number), 3, entry=QueueEntry(priority=2))
        mode.watch(low, 0.0)
    mode.look(9.0)
    assert mode.burn(9.0) == 0.0
