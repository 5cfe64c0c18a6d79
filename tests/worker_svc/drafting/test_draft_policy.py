"""How many drafts a request gets follows what was accepted and what steps took."""

from __future__ import annotations

import numpy as np

from worker_svc.core.draft_policy import FIRST_PAUSE, LONGEST_PAUSE, TRIAL_DRAFTS, TRIAL_STEPS, DraftPolicy
from worker_svc.core.step_costs import PLAIN_EVERY, StepCosts

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
        self.policy.learn(self.slots, counts, np.array(matched))
        if self._row_s:
            seconds = len(counts) * self._row_s + int(counts.sum()) * self._draft_s
            self.policy.costs.add(len(counts), int(counts.sum()), seconds)
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


def test_costs_are_the_difference_of_steps_with_and_without() -> None:
    costs = StepCosts()
    for _ in range(50):
        costs.add(2, 0, 0.010)
        costs.add(2, 8, 0.018)
    assert abs(costs.draft_ratio(2) - 0.001 / 0.005) < 1e-9
    costs.add(2, 0, 10.0)
    assert costs.draft_ratio(2) > 0.1, "one step that something else held up"
    assert costs.draft_ratio(64) == 0.1, "nothing is known of so many rows"


def test_a_step_without_drafts_is_asked_for_now_and_then() -> None:
    costs = StepCosts()
    assert not costs.wants_plain(1), "as long as nobody measures"
    costs.add(1, 3, 0.01)
    assert costs.wants_plain(1)
    costs.add(1, 0, 0.01)
    costs.add(1, 0, 0.01)
    for _ in range(PLAIN_EVERY):
        assert not costs.wants_plain(1)
        costs.add(1, 3, 0.01)
    assert costs.wants_plain(1)


def test_hopeless_requests_try_again_together() -> None:
    """Each new one has its own pauses, but a step in which one tries costs as much as a step in which all do."""
    rows = 8
    requests = Requests(rows)
    num_tries = 0
    for number in range(2000):
        if number % 24 == 0:  # another request takes the place of an old one
            slot = (number // 24) % rows
            requests.policy.start(slot, MOST)
            requests.confirmed[slot] = MOST
        num_tries += any(requests.step(*([0.1] * rows))) and number > 500
    assert num_tries < 1500 * 0.1
