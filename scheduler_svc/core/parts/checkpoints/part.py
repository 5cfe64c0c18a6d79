"""The part of workers that keep checkpoints of recurrent states."""

from __future__ import annotations

from types import MappingProxyType

from scheduler_svc.core.state.groups.checkpoints import Checkpoints
from scheduler_svc.core.state.part import Claim, Part, Phase, Resource
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


class CheckpointsPart(Part):
    """Orders the states to keep of slots that have ended, after all that starts in the step (CK2)."""

    name = "checkpoints"
    rank = 20
    acts = MappingProxyType({Phase.ORDER: Claim(writes=frozenset({Resource.STATES, Resource.COPIES}))})

    def __init__(self, worker: Worker, checkpoints: Checkpoints) -> None:
        self._worker, self._checkpoints = worker, checkpoints
        self.is_idle = True
        checkpoints.on_change = self._wake

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """As `Part.act`."""
        step.checkpoints += self._checkpoints.name_leaving()
        self._worker.save_evicted(step)
        self._checkpoints.end_step()
        self.is_idle = True

    def check_integrity(self) -> None:
        """As `Part.check_integrity`."""
        assert not (self.is_idle and (self._checkpoints.leaving or self._checkpoints.making))

    def _wake(self) -> None:
        self.is_idle = False

    def cache_reset(self) -> None:
        """As `Part.cache_reset`."""
        self._checkpoints.pool.reset_cache()
