"""Safe mode: the classes below a level are suspended until things are better. Who asked for it, and when it ends.

An operator sets it and lifts it. The error budget of the classes that are to be kept sets it when it burns fast, and
lifts it when it has burnt slowly for long: between the two it stays as it is, so that it does not come and go.
"""

from __future__ import annotations

from scheduler_svc.core.queue.error_budget import ErrorBudget
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request

FAST = 10.0
"""The budget burns: in the window so many times as much is late as may be."""
SLOW = 1.0
"""It does not: no more is late than may be."""
MIN_LATE = 5
"""Fewer late requests than this prove nothing, whatever their share."""


class SafeMode:
    """The level in force. Requests pass `watch`, then `answered` or `forget`; `look` is to be called about every
    second."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.operator_level: int | None = None
        """What an operator has set; None: nothing."""
        self.budget_level: int | None = None
        """What the error budget asks for; None: it does not burn."""
        self._kept_level, self._lift_s = config.safe_mode_level, config.safe_mode_lift_s
        self._slow_since: float | None = None
        self._budget: ErrorBudget | None = None
        if config.safe_mode_ttft_ms is not None:
            self._budget = ErrorBudget(
                config.safe_mode_ttft_ms / 1e3, config.safe_mode_budget, config.safe_mode_window_s
            )

    @property
    def level(self) -> int | None:
        """Classes with a higher priority number are suspended; None: none are."""
        levels = [level for level in (self.operator_level, self.budget_level) if level is not None]
        return min(levels, default=None)

    def burn(self, now: float) -> float | None:
        """How fast the error budget burns, 1 as fast as it may; None: there is none."""
        return None if self._budget is None else self._budget.burn(now)

    # -- operator --

    def set(self, level: int) -> None:
        """An operator suspends the classes below `level`."""
        self.operator_level = level

    def lift(self) -> None:
        """An operator lets all classes go on, whoever had them suspended. What was late until now does not count any
        more: only new failures set it again."""
        self.operator_level = self.budget_level = self._slow_since = None
        if self._budget is not None:
            self._budget.reset()

    # -- error budget --

    def watch(self, request: Request, now: float) -> None:
        """A request has come. Only first tokens of the classes that are to be kept count."""
        if self._budget is None or request.is_pooling or request.num_prior_output_tokens:
            return
        if request.entry.priority <= self._kept_level:
            self._budget.watch(request, now)

    def answered(self, request: Request, now: float) -> None:
        """Its first token has been reported."""
        if self._budget is not None:
            self._budget.answered(request, now)

    def forget(self, request: Request) -> None:
        """Forgets a request that has ended."""
        if self._budget is not None:
            self._budget.forget(request)

    def look(self, now: float) -> None:
        """Takes the error budget into account."""
        budget = self._budget
        if budget is None:
            return
        budget.expire(now)
        burn = budget.burn(now)
        if burn >= FAST and budget.num_late(now) >= MIN_LATE:
            self.budget_level = self._kept_level
        if burn > SLOW:
            self._slow_since = None
        elif self._slow_since is None:
            self._slow_since = now
        elif now - self._slow_since >= self._lift_s:
            self.budget_level = None
