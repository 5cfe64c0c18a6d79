"""How many drafts a request gets follows what was accepted and what steps took."""

from __future__ import annotations

import numpy as np

from worker_svc.core.drafts.budget import LEAST_STEPS, MOST_SAVED, SHARE, TRIAL_COST, DraftBudget
from worker_svc.core.drafts.policy import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    TRIAL_DRAFTS,
    TRIAL_ROWS,
    TRIAL_STEPS,
    DraftPolicy,
)
from worker_svc.core.drafts.step_costs import PLAIN_EVERY, PLAIN_EVERY_UNSURE, UNKNOWN_COSTS, StepCosts

MOST = 6


class Requests:
    """`count` requests that decode for ever; of each row's drafts those up to its first wrong one are accepted."""

    def __init__(self, count: int, row_s: float = 0.0, draft_s: float = 0.0) -> None:
        self.policy = DraftPolicy(count, MOST)
        self.confirmed = np.full(count, MOST, np.int32)
        self.slots = np.arange(count)
        self.changes: list[tuple[int, int]] = []
        self._row_s, self._draft_s = row_s, draft_s
        self._random = np.random.default_rng(0)
        for slot in range(count):
            self.policy.start(slot, MOST)

    def step(self, *rates: float) -> list[int]:
        """One step in which each draft of a row is right with its rate. Returns the drafts made per row."""
        limits = self.confirmed.astype(np.int64)
        counts = self.policy.choose(self.slots, limits, self.confirmed, True)
        matched = [
            next((i for i in range(count) if self._random.random() >= rate), count)
            for count, rate in zip(counts.tolist(), rates, strict=True)
        ]
        self.policy.learn(self.slots, counts, np.array(matched), False)
        if self._row_s:
            seconds = len(counts) * self._row_s + int(counts.sum()) * self._draft_s
            self.policy.take_duration(len(counts), seconds)
        changes = self.policy.take_changes()
        self.changes += changes
        for slot, limit in changes:  # the scheduler confirms what is asked for
            assert self.confirmed[slot] == 0 or limit == 0
            self.confirmed[slot] = limit
        return counts.tolist()

    def run(self, num_steps: int, *rates: float) -> list[float]:
        """Mean drafts per row over so many steps."""
        return np.mean([self.step(*rates) for _ in range(num_steps)], axis=0).tolist()


def test_all_right_gets_as_many_as_allowed() -> None:
    requests = Requests(1)
    assert requests.run(50, 1.0) == [MOST]
    assert not requests.changes


def test_none_right_falls_to_none_and_the_scheduler_hears_it() -> None:
    """D7."""
    requests = Requests(1)
    requests.run(100, 0.0)
    assert requests.changes[0] == (0, 0)
    assert requests.run(400, 0.0)[0] < 0.1


def test_requests_are_judged_one_by_one() -> None:
    requests = Requests(3)
    requests.run(100, 1.0, 0.0, 0.5)
    good, bad, fair = requests.run(200, 1.0, 0.0, 0.5)
    assert good > MOST - 0.5
    assert bad < 0.5 < fair < good


def test_pauses_double_up_to_a_limit() -> None:
    requests = Requests(1)
    steps = [requests.step(0.0)[0] for _ in range(3000)]
    starts = [i for i in range(1, 3000) if steps[i] and not steps[i - 1]]
    gaps = np.diff(starts)
    assert gaps[0] < 4 * FIRST_PAUSE
    assert LONGEST_PAUSE <= gaps[-1] <= LONGEST_PAUSE + 4 * TRIAL_STEPS
    assert max(steps[starts[0] :]) == TRIAL_DRAFTS
    assert (gaps[1:] >= gaps[:-1]).all()


def test_drafts_that_become_right_are_found_out() -> None:
    requests = Requests(1)
    requests.run(300, 0.0)
    requests.run(LONGEST_PAUSE + 50, 1.0)
    assert requests.run(100, 1.0)[0] > MOST - 0.5


def test_nothing_more_is_asked_before_an_answer() -> None:
    """L10."""
    policy, confirmed = DraftPolicy(1, MOST), np.zeros(1, np.int32)
    policy.start(0, MOST)
    slots, none = np.zeros(1, np.int64), np.zeros(1, np.int64)
    policy._pause(slots, confirmed)
    policy.take_changes()
    changes = []
    for _ in range(5 * FIRST_PAUSE):
        policy.choose(slots, none, confirmed, True)
        changes += policy.take_changes()
    assert changes == [(0, MOST)]
    policy.rest()
    policy.choose(slots, none, confirmed, True)
    assert policy.take_changes() == [(0, MOST)], "the answer is lost with the link"


def test_drafts_that_cost_as_much_as_tokens_do_not_pay() -> None:
    """Half of them right: worth it when a draft costs a tenth of a row, not when it costs as much as one."""
    cheap, dear = Requests(4, 1e-3, 0.1e-3), Requests(4, 1e-3, 1e-3)
    rates = (0.5,) * 4
    cheap.run(100, *rates)
    dear.run(100, *rates)
    assert np.mean(cheap.run(200, *rates)) > 1.5
    assert np.mean(dear.run(400, *rates)) < 0.2


def test_costs_of_runs_and_of_tokens_are_told_apart() -> None:
    """D7."""
    costs = StepCosts()
    for depth in (1, 2, 3, 4) * 20:
        for rows in (1, 4):
            costs.add_plain(4, 0.010)
            seconds = 0.010 + 0.002 * depth + 0.0005 * depth * rows
            costs.add_drafted(4, depth, depth * rows, seconds, is_first=False)
    per_depth, per_draft = costs.draft_costs(4)
    assert abs(per_depth - 0.2) < 0.03
    assert abs(per_draft - 0.2) < 0.03
    assert costs.draft_costs(64) == UNKNOWN_COSTS, "nothing is known of so many rows"


def test_costs_forget_steps_that_something_else_held_up() -> None:
    held_up, undisturbed = StepCosts(), StepCosts()
    for costs in (held_up, undisturbed):
        for _ in range(50):
            costs.add_plain(2, 0.010)
            costs.add_drafted(2, 2, 4, 0.014, is_first=False)
    held_up.add_drafted(2, 2, 4, 10.0, is_first=False)
    assert held_up.draft_costs(2).per_draft < 1.5 * undisturbed.draft_costs(2).per_draft
    held_up.add_plain(2, 10.0)
    assert (held_up.add_drafted(2, 2, 4, 0.020, is_first=False) or 0.0) > 0.3


def test_what_is_done_once_per_request_is_no_cost_of_drafts_but_of_the_step() -> None:
    costs = StepCosts()
    for _ in range(50):
        costs.add_plain(2, 0.010)
        costs.add_drafted(2, 2, 4, 0.014, is_first=False)
    before = costs.draft_costs(2)
    extra = costs.add_drafted(2, 2, 4, 0.060, is_first=True)
    assert extra is not None
    assert abs(extra - 5.0) < 1e-6
    assert costs.draft_costs(2) == before


def test_a_step_without_drafts_is_asked_for_now_and_then() -> None:
    for is_sure, every in ((True, PLAIN_EVERY), (False, PLAIN_EVERY_UNSURE)):
        costs = StepCosts()
        assert not costs.wants_plain(1, is_sure), "as long as nobody measures"
        costs.add_drafted(1, 3, 3, 0.01, is_first=False)
        assert costs.wants_plain(1, is_sure)
        costs.add_plain(1, 0.01)
        costs.add_plain(1, 0.01)
        for _ in range(every):
            assert not costs.wants_plain(1, is_sure)
            costs.add_drafted(1, 3, 3, 0.01, is_first=False)
        assert costs.wants_plain(1, is_sure)


def test_a_spent_budget_is_saved_up_again() -> None:
    """D8."""
    budget = DraftBudget()
    budget.add(MOST_SAVED)
    budget.add(-MOST_SAVED - 2.0)
    assert budget.is_spent
    assert not budget.may_try
    num_steps = 0
    while budget.is_spent:
        budget.pass_step()
        num_steps += 1
    assert abs(num_steps - (2.0 + TRIAL_COST) / SHARE) < 2
    assert budget.may_try


def test_drafts_that_go_on_again_get_a_few_steps_before_they_are_judged() -> None:
    budget = DraftBudget()
    budget.add(MOST_SAVED)
    budget.add(-MOST_SAVED - 1.0)
    while budget.is_spent:
        budget.pass_step()
    budget.add(-3.0)
    for _ in range(LEAST_STEPS):
        assert not budget.is_spent
        budget.pass_step()
    assert budget.is_spent


def test_winnings_are_kept_up_to_a_limit() -> None:
    """D9."""
    budget = DraftBudget()
    budget.add(1000.0)
    budget.add(-MOST_SAVED - 0.1)
    assert budget.is_spent


def test_a_few_requests_try_for_all() -> None:
    """D8."""
    requests = Requests(8)
    requests.run(20, *([0.0] * 8))
    num_trying = [np.count_nonzero(requests.step(*([0.0] * 8))) for _ in range(1000)]
    assert max(num_trying) == TRIAL_ROWS
    for _ in range(1000):
        if all(requests.step(*([1.0] * 8))):
            break
    else:
        raise AssertionError("the others are not told")
