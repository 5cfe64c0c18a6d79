"""How many drafts each request gets: as many as pay by what was measured, and none where none do.

A request whose drafts do not pay is paused: its limit falls to 0 on both sides, so that the scheduler need not keep
room for them. After a while, twice as long each time, it asks for its limit again and tries a few drafts, together
with others that are about to.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.step_costs import StepCosts
from worker_svc.core.trial_windows import TrialWindows

I64 = NDArray[np.int64]

FIRST_PAUSE, LONGEST_PAUSE = 16, 256
"""Steps."""
TRIAL_STEPS = 4
"""Steps with drafts that a request tries after a pause, whatever it knows."""
TRIAL_DRAFTS = 2
MEMORY = 0.95
"""Per verified draft: a request remembers about 20, all of them together some hundred."""
SHARED_MEMORY = 0.99
PRIOR_WEIGHT = 4.0
"""Verified drafts for which the average of all requests stands in."""
LEAST_GAIN = 1.05
"""Drafts have to promise this much more speed than none."""


class DraftPolicy:
    """Columns by slot. It knows counts, never tokens."""

    def __init__(self, num_slots: int, most: int) -> None:
        """most: drafts that any request can get."""
        self.costs = StepCosts()
        self._windows = TrialWindows()
        self._powers = np.arange(most + 1)
        self._caps = np.zeros(num_slots, np.int64)
        """Limit of each request as it came."""
        self._hits = np.zeros(num_slots)
        self._tries = np.zeros(num_slots)
        self._shared_hits, self._shared_tries = PRIOR_WEIGHT, PRIOR_WEIGHT
        self._pauses = np.full(num_slots, FIRST_PAUSE)
        """Length of the next pause."""
        self._waits = np.zeros(num_slots, np.int64)
        """Steps until a paused request tries again; 0: it is not paused."""
        self._asked = np.zeros(num_slots, np.bool_)
        """It has asked for its limit, which the scheduler has to confirm."""
        self._trials = np.zeros(num_slots, np.int64)
        """Steps with drafts to be made whatever they promise."""
        self._best = np.zeros(num_slots, np.int64)
        """Drafts that promised most when the request last had some."""
        self._num_rows = 1
        """Of the last step with drafts."""
        self._changed: dict[int, int] = {}

    def start(self, slot: int, cap: int) -> None:
        """A request came whose drafts are limited to `cap`."""
        self._caps[slot] = cap
        self._hits[slot] = self._tries[slot] = 0.0
        self._pauses[slot] = FIRST_PAUSE
        self._waits[slot] = self._trials[slot] = 0
        self._asked[slot] = False
        self._changed.pop(slot, None)
        self._best[slot] = self._best_counts(np.array([slot]))[0]

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
        self._windows.pass_step()
        has_none = confirmed[slots] == 0
        if has_none.any():
            self._wake(slots[has_none & (self._caps[slots] > 0)])
        if self._asked.any():
            self._begin_trials(slots[self._asked[slots] & ~has_none])
        if not limits.any() or (is_measured and self.costs.wants_plain(len(slots))):
            return np.zeros_like(limits)
        self._num_rows = len(slots)
        wanted = np.where(self._trials[slots] > 0, TRIAL_DRAFTS, self._best[slots])
        if not wanted.all():
            self._pause(slots[(wanted == 0) & (limits > 0)], confirmed)
        counts: I64 = np.minimum(wanted, limits)
        return counts

    def learn(self, slots: I64, drafted: I64, matched: I64) -> None:
        """Of the `drafted` `[R]` tokens of each row the first `matched` `[R]` were right."""
        had = drafted > 0
        if not had.any():
            return
        slots, drafted, matched = slots[had], drafted[had], matched[had]
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
        self._best[slots] = self._best_counts(slots)
        if (self._best[slots][self._trials[slots] == 0] > 0).any():
            self._windows.paid()

    def take_changes(self) -> list[tuple[int, int]]:
        """(slot, limit) that the scheduler is to be told; a lower one holds already, a higher one when confirmed."""
        changes, self._changed = list(self._changed.items()), {}
        return changes

    def _best_counts(self, slots: I64) -> I64:
        """[R] numbers of drafts with the most expected tokens per time; 0 where none give LEAST_GAIN."""
        prior = self._shared_hits / self._shared_tries
        rates = (self._hits[slots] + PRIOR_WEIGHT * prior) / (self._tries[slots] + PRIOR_WEIGHT)
        # Drafts count up to the first wrong one, and one token comes in any case: 1 + p + p^2 + ...
        expected = np.cumsum(rates[:, None] ** self._powers, axis=1)
        speeds = expected / (1 + self._powers * self.costs.draft_ratio(self._num_rows))
        best: I64 = np.where(speeds.max(axis=1) > LEAST_GAIN, speeds.argmax(axis=1), 0)
        return best

    def _pause(self, slots: I64, confirmed: NDArray[np.int32]) -> None:
        for slot in slots.tolist():
            confirmed[slot] = 0
            self._changed[slot] = 0
            self._waits[slot] = self._pauses[slot]
            if self._pauses[slot] > FIRST_PAUSE:
                self._windows.failed()
            self._pauses[slot] = min(2 * self._pauses[slot], LONGEST_PAUSE)

    def _wake(self, paused: I64) -> None:
        """Counts one step of the pauses; those that are over ask for their limit."""
        waiting = paused[~self._asked[paused]]
        self._waits[waiting] -= 1
        if not self._windows.may_try:
            return
        for slot in waiting[self._waits[waiting] <= 0].tolist():
            self._windows.tried()
            self._asked[slot] = True
            self._changed[slot] = int(self._caps[slot])

    def _begin_trials(self, slots: I64) -> None:
        self._asked[slots] = False
        self._trials[slots] = TRIAL_STEPS
