"""The part of workers whose requests can be handed over to other workers."""

from __future__ import annotations

from types import MappingProxyType

from scheduler_svc.core.parts.handoff.ends import HandoffEnds
from scheduler_svc.core.parts.handoff.step_orders import go_on, hand_over, has_handoff_work
from scheduler_svc.core.state.part import Claim, Part, Phase, Resource
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


class HandoffPart(Part):
    """Both ends of hand-offs at one worker (HO)."""

    name = "handoff"
    rank = 30
    acts = MappingProxyType(
        {
            Phase.FINISH: Claim(writes=frozenset({Resource.TABLE})),
            Phase.COPY: Claim(writes=frozenset({Resource.TABLE, Resource.POOL, Resource.COPIES})),
        }
    )

    def __init__(self, worker: Worker, *, reuses_blocks: bool) -> None:
        """reuses_blocks: cached blocks are reused."""
        self._worker, self._reuses_blocks = worker, reuses_blocks
        self.ends = HandoffEnds()
        self.is_idle = True

    @property
    def has_orders(self) -> bool:
        """As `Part.has_orders`."""
        return self.ends.has_orders

    def has_work(self) -> bool:
        """As `Part.has_work`."""
        return has_handoff_work(self.ends)

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """As `Part.act`."""
        if phase is Phase.FINISH:
            go_on(self._worker, self.ends, step)
        else:
            hand_over(self._worker, self.ends, step, now, is_enabled=self._reuses_blocks)
            self.is_idle = not self.ends.is_busy

    def blocks_change(self, slot: int, reason: str) -> None:
        """As `Part.blocks_change`."""
        self.ends.break_export(slot, reason)

    def check_integrity(self) -> None:
        """As `Part.check_integrity`."""
        assert not (self.is_idle and self.ends.is_busy), "a hand-off is under way, and no step asks for it"

    def released(self, slot: int) -> None:
        """As `Part.released`."""
        self.ends.forget(slot)


def handoffs_of(worker: Worker) -> HandoffEnds:
    """Hand-offs of the worker, to be read; empty if it has no such part."""
    part = worker.parts.get(HandoffPart)
    return HandoffEnds() if part is None else part.ends


def open_handoffs(worker: Worker, *, reuses_blocks: bool) -> HandoffEnds:
    """Hand-offs of the worker, to be written: it gets the part if it has none."""
    part = worker.parts.get(HandoffPart)
    if part is None:
        part = HandoffPart(worker, reuses_blocks=reuses_blocks)
        worker.parts.add(part)
    part.is_idle = False
    return part.ends
