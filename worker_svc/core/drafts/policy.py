"""How many drafts each request gets: as many as pay by what was measured, and none where none do.

A request whose drafts do not pay is paused: its limit falls to 0 on both sides, so that the scheduler need not keep
room for them. After a while, twice as long each time, and when the budget allows it, it asks for its limit again and
tries a few drafts: two requests at a time, and if theirs are right, others of which little is known follow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.drafts.budget import DraftBudget
from worker_svc.core.drafts.step_costs import StepCosts

I64 = NDArray[np.int64]

FIRST_PAUSE, LONGEST_PAUSE = 16, 256
"""Length of a request's first pause and of the longest, in steps."""
TRIAL_STEPS = 3
"""Steps with drafts that a request tries after a pause, whatever it knows."""
TRIAL_DRAFTS = 2
TRIAL_ROWS = 2
"""Requests that try for all: a draft model has to compute first what each of them lags behind by."""
KEPT = 0.25
"""Share of what a request knew that counts in its next trial: it may have changed."""
MEMORY = 0.95
"""Per verified draft: a request remembers about 20, all of them together some hundred."""
SHARED_MEMORY = 0.99
PRIOR_WEIGHT = 6.0
"""Verified drafts for which the average of all requests stands in."""
MARGIN = 1.15
"""Drafts have to promise so many times the tokens that their time would bring without them."""
SURE_GAIN = 1.3
"""Drafts that promise so much pay for certain, noise or not."""
ROUNDS = 3
"""Rounds of the search for the best counts: each starts from the speed that the one before found."""


class DraftPolicy:
    """Columns by slot. It knows counts, never tokens."""

    def __init__(self, num_slots: int, most: int) -> None:
        """most: drafts that any request can get."""
        self._costs = StepCosts()
        self._budget = DraftBudget()
        self._depths = np.arange(1, most + 1)
        self._caps = np.zeros(num_slots, np.int64)
        """Limit of each request as it came."""
        self._hits = np.zeros(num_slots)
        self._tries = np.zeros(num_slots)
        self._shared_hits, self._shared_tries = PRIOR_WEIGHT, PRIOR_WEIGHT
        self._pauses = np.full(num_slots, FIRST_PAUSE)
        """Length of the next pause."""
        self._waits = np.zeros(num_slots, np.int64)
        """Steps until a paused request may try again."""
        self._asked = np.zeros(num_slots, np.bool_)
        """Whether a slot has asked for its limit, which the scheduler has to confirm."""
        self._trials = np.zeros(num_slots, np.int64)
        """Steps with drafts to be made whatever they promise."""
        self._wanted = np.zeros(num_slots, np.int64)
        """Drafts that the last step was to have."""
        self._expected_loss = 0.0
        """What its drafts were taken to cost, in steps without drafts."""
        self._depth = self._num_drafted = 0
        """Drafts of its row that had most, and of all."""
        self._speed = 1.0
        """What drafts promised last, in shares of the speed without."""
        self.is_plain = True
        """Nobody was asked for drafts in the last step."""
        self._is_first = False
        self._has_news = False
        """Some draft was right since paused requests were last looked at."""
        self._changed: dict[int, int] = {}

    def start(self, slot: int, cap: int) -> None:
        """A request came whose drafts are limited to `cap`."""
        self._caps[slot] = cap
        self._hits[slot] = self._tries[slot] = 0.0
        self._pauses[slot] = FIRST_PAUSE
        self._waits[slot] = self._trials[slot] = 0
        self._asked[slot] = False
        self._changed.pop(slot, None)

    def rest(self) -> None:
        """The scheduler's link ended: what was asked for is asked for again."""
        self._waits[self._asked] = 1
        self._asked[:] = False
        self._changed.clear()

    def choose(self, slots: I64, limits: I64, confirmed: NDArray[np.int32], is_measured: bool) -> I64:
        """[R] drafts that each of the decode rows `slots` may have, of at most `limits` `[R]`, none of them negative.

        `confirmed` `[num_slots]` are the limits of all slots; those of requests that are paused now fall to 0.
        is_measured: the step consists of decode rows alone, so that its duration tells what drafts cost.
        """
        self._budget.pass_step()
        self.is_plain = True
        has_none = confirmed[slots] == 0
        if has_none.any():
            self._wake(slots[has_none & (self._caps[slots] > 0)], slots)
        if has_none.all():
            return np.zeros_like(slots)
        if self._asked.any():
            self._begin_trials(slots[self._asked[slots] & ~has_none])
        if not limits.any() or (is_measured and self._costs.wants_plain(len(slots), self._speed > SURE_GAIN)):
            return np.zeros_like(limits)
        tries, may_have = self._trials[slots] > 0, limits > 0
        wanted = np.where(tries, TRIAL_DRAFTS, 0)
        if not self._budget.is_spent:
            wanted[may_have & ~tries], self._speed = self._best_counts(slots[may_have & ~tries], len(slots))
            if not wanted[may_have].all():
                self._pause(slots[(wanted == 0) & may_have], confirmed)
        counts: I64 = np.minimum(wanted, limits)
        self._wanted[slots] = counts
        self.is_plain = not counts.any()
        return counts

    def learn(self, slots: I64, drafted: I64, matched: I64, is_first: bool) -> None:
        """Takes into account that of the `drafted` `[R]` tokens of each row the first `matched` `[R]` were right.

        is_first: the drafter did work that further drafts do not take, and rows without drafts may get some by it.
        """
        if self.is_plain:
            return
        num_rows = max(len(slots), 1)
        self._depth, self._num_drafted = int(drafted.max(initial=0)), int(drafted.sum())
        costs = self._costs.draft_costs(num_rows)
        self._expected_loss = costs.per_depth * self._depth + costs.per_draft * self._num_drafted / num_rows
        self._is_first = is_first
        self._budget.add(float(matched.sum()) / num_rows - self._expected_loss)
        looked = (self._wanted[slots] > 0) & ((drafted > 0) | (not is_first))
        slots, drafted, matched = slots[looked], drafted[looked], matched[looked]
        self._has_news |= bool(matched.any())
        tries = np.minimum(matched + 1, drafted)
        kept = MEMORY**tries
        self._hits[slots] = self._hits[slots] * kept + matched
        self._tries[slots] = self._tries[slots] * kept + tries
        kept_by_all = SHARED_MEMORY ** float(tries.sum())
        self._shared_hits = self._shared_hits * kept_by_all + float(matched.sum())
        self._shared_tries = self._shared_tries * kept_by_all + float(tries.sum())
        self._trials[slots] = np.maximum(self._trials[slots] - 1, 0)
        paying = slots[(matched > 0) & (self._trials[slots] == 0)]
        self._pauses[paying] = np.maximum(self._pauses[paying] // 2, FIRST_PAUSE)

    def take_duration(self, num_rows: int, seconds: float) -> None:
        """The step, of so many decode rows and nothing else, took so long."""
        if self.is_plain:
            self._costs.add_plain(num_rows, seconds)
            return
        extra = self._costs.add_drafted(
            num_rows, self._depth, self._num_drafted, seconds, is_first=self._is_first
        )
        if extra is not None:
            self._budget.add(self._expected_loss - extra)

    def take_changes(self) -> list[tuple[int, int]]:
        """(slot, limit) that the scheduler is to be told; a lower one holds already, a higher one when confirmed."""
        changes, self._changed = list(self._changed.items()), {}
        return changes

    def _best_counts(self, slots: I64, num_rows: int) -> tuple[I64, float]:
        """[N] drafts of `slots` that together give a step of `num_rows` the most expected tokens per time: what one row
        alone would have to pay for, a run of the draft model, many share. 0 where drafts do not promise MARGIN. And
        what they promise, in shares of the speed without."""
        prior = self._shared_hits / self._shared_tries
        rates = (self._hits[slots] + PRIOR_WEIGHT * prior) / (self._tries[slots] + PRIOR_WEIGHT)
        # A draft counts if it and all before it are right.
        chances = rates[:, None] ** self._depths
        per_depth, per_draft = self._costs.draft_costs(num_rows)
        speed, counts = MARGIN, np.zeros(len(slots), np.int64)
        for _ in range(ROUNDS):
            # What takes time has to bring as many tokens as the rest of the step does in that time (Dinkelbach 1967).
            surplus = np.maximum(chances - speed * per_draft, 0.0)
            worth = np.cumsum(surplus.sum(axis=0) / num_rows - speed * per_depth)
            depth = int(worth.argmax()) + 1 if worth.max() > 0 else 0
            is_made = surplus[:, :depth] > 0
            counts = is_made.sum(axis=1)
            tokens = 1 + float(chances[:, :depth][is_made].sum()) / num_rows
            speed = max(tokens / (1 + per_depth * depth + per_draft * int(counts.sum()) / num_rows), speed)
        return counts, speed

    def _pause(self, slots: I64, confirmed: NDArray[np.int32]) -> None:
        confirmed[slots] = 0
        self._changed.update(dict.fromkeys(slots.tolist(), 0))
        self._waits[slots] = self._pauses[slots]
        self._pauses[slots] = np.minimum(2 * self._pauses[slots], LONGEST_PAUSE)

    def _wake(self, paused: I64, slots: I64) -> None:
        """Counts one step of the pauses. When there is time for a trial, some of those that are over ask for their
        limit, and all those of which little is known and whose drafts would pay if all `slots` had some."""
        waiting = paused[~self._asked[paused]]
        self._waits[waiting] -= 1
        if not len(waiting) or not self._budget.may_try:
            return
        is_due = self._waits[waiting] <= 0
        if not (self._has_news or is_due.any()):  # which costs less to see than what follows
            return
        self._has_news = False
        due = waiting[is_due]
        trying = due[np.argsort(self._waits[due], kind="stable")[:TRIAL_ROWS]]
        little_known = waiting[is_due | (self._tries[waiting] < PRIOR_WEIGHT)]
        counts, _ = self._best_counts(slots, len(slots))
        promising = np.intersect1d(little_known, slots[counts > 0])
        waking = np.union1d(trying, promising)
        if len(waking):
            self._budget.begin_trial()
            self._asked[waking] = True
            self._changed.update(zip(waking.tolist(), self._caps[waking].tolist(), strict=True))

    def _begin_trials(self, slots: I64) -> None:
        self._asked[slots] = False
        self._trials[slots] = TRIAL_STEPS
        self._hits[slots] *= KEPT
        self._tries[slots] *= KEPT
