"""Which requests workers that drain hand over, and to whom (HO14)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.moves.targets import MAX_LOOKED_AT_IN_ALL, Rotation, Targets, by_layout, layout_of
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.slots.slot_state import OWNING
from scheduler_svc.core.state.worker import Worker


class Drains:
    """Begins what draining workers can hand over now: most output first, a few at a time."""

    def __init__(self, config: SchedulerConfig, workers: Mapping[str, Worker], desk: HandoffDesk) -> None:
        self._config, self._workers, self._desk = config, workers, desk
        self._rotation = Rotation()

    def look(self, now: float) -> None:
        """One pass over the workers, or as many of them as are reached."""
        draining = {
            name: worker for name, worker in self._workers.items() if worker.draining and worker.attached
        }
        if not draining or not self._config.max_handoffs_per_worker:
            return
        able = by_layout(worker for worker in self._workers.values() if worker.takes_new)
        targets = {
            layout: Targets(members, self._desk, spares_full=False) for layout, members in able.items()
        }
        left = MAX_LOOKED_AT_IN_ALL
        for source in self._rotation.of(draining):
            if layout_of(source) in targets:
                left -= self._hand_over(source, targets[layout_of(source)], left, now)
            if left <= 0:
                return

    def _hand_over(self, source: Worker, targets: Targets, most: int, now: float) -> int:
        """Returns how many requests were looked at."""
        room = self._config.max_handoffs_per_worker - len(handoffs_of(source).exports)
        if room <= 0:
            return 0
        name, table = source.info.worker_id, source.table
        slots = np.flatnonzero(OWNING[table.state])
        slots = slots[np.argsort(-table.num_output[slots], kind="stable")]
        looked_at = self._rotation.next_of(name, slots.tolist(), most)
        for request in map(table.request, looked_at):
            if now < request.history.no_handoff_before or self._desk.why_request_stays(request, source):
                continue
            target = targets.best_for(request, source, now)
            if target is None:
                continue
            self._rotation.has_begun(name)
            self._desk.begin(request, source, target, now)
            targets.took(target)
            room -= 1
            if not room:
                break
        return len(looked_at)
