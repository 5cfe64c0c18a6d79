"""Looks now and then who is to be handed over, by all policies in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.moves.disaggregation import Disaggregation
from scheduler_svc.core.moves.drain import Drains
from scheduler_svc.core.moves.resumption import Resumption
from scheduler_svc.core.moves.step_cost import StepCost
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker

LOOK_S = 0.1
"""Time between two looks at least, in seconds."""
NEVER = float("inf")


class HandoffPolicies:
    """All that begins hand-offs unasked. A report costs it one comparison."""

    def __init__(self, config: SchedulerConfig, workers: Mapping[str, Worker], desk: HandoffDesk) -> None:
        self._config, self._workers = config, workers
        self.disaggregation = Disaggregation(config, workers, desk)
        self._drains, self._resumption = Drains(config, workers, desk), Resumption(config, workers, desk)
        self._costs: dict[str, StepCost] = {}
        is_on = config.max_handoffs_per_worker and config.resume_elsewhere
        self.next_look = 0.0 if is_on else NEVER
        """Before this time there is nothing to look at, in seconds; NEVER: no policy but that of drains is in force."""

    def tick(self, now: float) -> None:
        """What drains is handed over, and the others look."""
        self._drains.look(now)
        if self.next_look == NEVER and self._follows_roles and self.disaggregation.has_roles:
            self.next_look = now
        self.look_in_time(now)

    @property
    def _follows_roles(self) -> bool:
        return bool(self._config.max_handoffs_per_worker) and self._config.prefill_hand_off != "never"

    def reported(self, worker: Worker, answered: Sequence[Request], now: float) -> None:
        """A worker has reported a step, behind which the prompts of `answered` are computed."""
        if now >= self.next_look:
            self.look(now)
        if answered and self.next_look != NEVER and self._follows_roles:
            self.disaggregation.look_at(worker, answered, now)

    def look_in_time(self, now: float) -> None:
        """Looks if the last look is LOOK_S ago."""
        if now >= self.next_look:
            self.look(now)

    def look(self, now: float) -> None:
        """Begins what pays now."""
        self.next_look = now + LOOK_S
        if self._config.resume_elsewhere:
            self._learn_costs()
            self._resumption.look(self._costs, now)
        if self._follows_roles:
            self.disaggregation.look(now)

    def _learn_costs(self) -> None:
        for name in self._costs.keys() - self._workers.keys():
            del self._costs[name]
        for name, worker in self._workers.items():
            self._costs.setdefault(name, StepCost()).look(worker)
