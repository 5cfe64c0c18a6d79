"""How much time drafts may lose: a small share of all, saved up step by step and spent on trials.

What drafts win is saved too, up to a limit, so that those that pay go on through a run of bad luck; whoever turns out
to pay nothing, for whatever reason and whatever was estimated, has spent the savings and is stopped.
"""

from __future__ import annotations

SHARE = 0.015
"""Share of each step that drafts may lose."""
MOST_SAVED = MOST_OWED = 16.0
"""Limits of the balance, in steps without drafts, like all amounts here."""
TRIAL_COST = 1.0
"""Least balance with which a trial begins, in steps without drafts."""
TRIAL_GAP = 8
"""Steps until it is known what a trial costs: no other begins before."""
LEAST_STEPS = 8
"""Once drafts go on again they may: the first ones are dear where a draft model lags behind."""


class DraftBudget:
    """The balance of the time that drafts won and lost."""

    def __init__(self) -> None:
        self._balance = MOST_SAVED / 2
        self._closed_for = self._granted = 0
        self.is_spent = False
        """Whether nothing is left: no drafts but those of trials that have begun."""

    @property
    def may_try(self) -> bool:
        """Whether a trial may begin."""
        return not self.is_spent and self._balance >= TRIAL_COST and not self._closed_for

    def pass_step(self) -> None:
        """Adds what another step allows to lose."""
        self._closed_for = max(self._closed_for - 1, 0)
        self._granted = max(self._granted - 1, 0)
        self.add(SHARE)

    def add(self, won: float) -> None:
        """Drafts won so much time; negative: they lost it."""
        self._balance = min(max(self._balance + won, -MOST_OWED), MOST_SAVED)
        if self.is_spent:
            self.is_spent = self._balance < TRIAL_COST
            self._granted = LEAST_STEPS
        else:
            self.is_spent = self._balance < 0 and not self._granted

    def begin_trial(self) -> None:
        """Notes that a trial begins: no other does for TRIAL_GAP steps."""
        self._closed_for = TRIAL_GAP
