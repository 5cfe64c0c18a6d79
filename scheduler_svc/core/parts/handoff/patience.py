"""How long a hand-off may take, by what others took (docs/design.md, HO18)."""

from __future__ import annotations

from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.state.requests.handoff import Phase
from scheduler_svc.core.state.slots.slot_state import SlotState

MOST_FROZEN_S = 2.0
"""Longest time for which a request may be frozen, unless its workers take longer steps."""
LEAST_FROZEN_S = 0.5
RATIO = 3.0
"""So many times as long as hand-offs are usually frozen: too long."""
MOST_STEPS = 2
"""Steps of each end that a request may be frozen for: a step that has begun is not interrupted."""
MOST_BEGUN_S = 60.0
"""Longest time from the beginning of a hand-off until its target is ready, while its source decodes."""
NEWEST_WEIGHT = 0.2


class Patience:
    """Tells which hand-offs take too long."""

    def __init__(self) -> None:
        self._usual_s: float | None = None
        """Weighted mean of how long requests were frozen; None: none has been."""

    def took(self, frozen_s: float) -> None:
        """A request that was frozen for so long has been committed."""
        usual_s = frozen_s if self._usual_s is None else self._usual_s
        self._usual_s = usual_s + NEWEST_WEIGHT * (frozen_s - usual_s)

    def is_late(self, handoff: Handoff, now: float) -> bool:
        """The hand-off takes too long: with the request frozen, or ahead of that while its source decodes."""
        if handoff.phase is Phase.FROZEN:
            return handoff.frozen_at is not None and now - handoff.frozen_at > self._most_frozen_s(handoff)
        if handoff.source.table.state[handoff.source_slot] in (SlotState.PREFILL, SlotState.PREPARING):
            return False
        return now - handoff.begun_at > MOST_BEGUN_S

    def _most_frozen_s(self, handoff: Handoff) -> float:
        most_s = MOST_FROZEN_S
        if self._usual_s is not None:
            most_s = min(max(RATIO * self._usual_s, LEAST_FROZEN_S), MOST_FROZEN_S)
        longest_s = handoff.source.pacer.longest_s + handoff.target.pacer.longest_s
        return max(most_s, MOST_STEPS * longest_s)
