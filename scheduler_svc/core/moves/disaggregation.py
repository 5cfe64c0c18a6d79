"""Requests go from where their prompts were computed to where others decode (PD3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.moves.targets import (
    MAX_LOOKED_AT,
    MAX_LOOKED_AT_IN_ALL,
    Layout,
    Rotation,
    Targets,
    by_layout,
    layout_of,
)
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import RUNNING
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import WorkerRole


class Disaggregation:
    """Begins hand-offs of what decodes where prompts are computed."""

    def __init__(self, config: SchedulerConfig, workers: Mapping[str, Worker], desk: HandoffDesk) -> None:
        self._config, self._workers, self._desk = config, workers, desk
        self._rotation = Rotation()
        self._targets: dict[tuple[Layout, WorkerRole], Targets] | None = None
        """As of the last look, by layout and role; None: there was none yet."""

    @property
    def has_roles(self) -> bool:
        """Some worker is not there for all."""
        return any(worker.role is not WorkerRole.BOTH for worker in self._workers.values())

    def decodes_for_others(self, worker: Worker) -> bool:
        """What decodes there may be moved by roles."""
        return (
            self.has_roles
            and worker.role is not WorkerRole.DECODE
            and self._config.prefill_hand_off != "never"
            and bool(worker.info.kv_layout)
        )

    def look(self, now: float) -> None:
        """One pass over the workers, or as many of them as are reached."""
        self._targets = self._find_targets()
        left = MAX_LOOKED_AT_IN_ALL
        for source in self._rotation.of(self._workers):
            if self._may_hand_over(source):
                left -= self._look_at_rows(source, left, now)
            if left <= 0:
                return

    def look_at(self, source: Worker, requests: Sequence[Request], now: float) -> None:
        """Begins the hand-offs of `requests`, which `source` has just computed the prompts of, oldest first."""
        if self._targets is None:
            self._targets = self._find_targets()
        if self._may_hand_over(source):
            self._begin(source, self._movable(source, requests[:MAX_LOOKED_AT], now), now)

    def _may_hand_over(self, source: Worker) -> bool:
        has_room = self._config.max_handoffs_per_worker > len(handoffs_of(source).exports)
        return has_room and source.role is not WorkerRole.DECODE and source.attached and not source.draining

    def _look_at_rows(self, source: Worker, most: int, now: float) -> int:
        """Begins hand-offs of what decodes at `source`, oldest first. Returns how many rows were looked at."""
        if not self._choose(self._targets or {}, source):
            return 0
        table = source.table
        rows = np.array([*table.decode_slots.tolist(), *table.settling], np.int64)
        rows = rows[np.argsort(table.started_at[rows], kind="stable")]
        slots = self._rotation.next_of(source.info.worker_id, rows.tolist(), most)
        found = [request for slot in slots if (request := table.requests[slot]) is not None]
        if self._begin(source, self._movable(source, found, now), now):
            self._rotation.has_begun(source.info.worker_id)
        return len(slots)

    def _begin(self, source: Worker, requests: Iterable[Request], now: float) -> bool:
        """Begins as many hand-offs as may be. Returns whether it began one."""
        targets, has_begun = self._choose(self._targets or {}, source), False
        if not targets:
            return False
        room = self._config.max_handoffs_per_worker - len(handoffs_of(source).exports)
        for request in requests:
            target = targets.best_for(request, source, now, self._is_current)
            if target is None:
                continue
            has_begun = True
            request.history.was_moved_by_role = True
            request.history.no_move_before = now + self._config.rebalance_pause_s
            self._desk.begin(request, source, target, now)
            self._desk.counts.num_by_role += 1
            targets.took(target)
            room -= 1
            if not room:
                break
        return has_begun

    def _movable(self, source: Worker, requests: Iterable[Request], now: float) -> list[Request]:
        """Requests of these that decode at `source` and were not moved lately, the oldest first."""
        table, found = source.table, []
        for request in requests:
            slot, history = request.slot, request.history
            if slot is None or not table.holds(request) or table.state[slot] not in RUNNING or request.rests:
                continue
            waits = now < max(history.no_handoff_before, history.no_move_before)
            if not waits and not self._desk.why_request_stays(request, source):
                found.append(request)
        return sorted(found, key=lambda request: request.order)

    # -- where to --

    def target_for(self, request: Request, source: Worker) -> Worker | None:
        """Where a request that decodes at `source` would go; None: nobody has room for it."""
        targets = self._choose(self._find_targets(), source)
        return targets.best_for(request, source, self._desk.now) if targets is not None else None

    def left_out(self, source: Worker) -> list[str]:
        """Ids of workers that could not read from `source` when they last tried (HO21)."""
        name = source.info.worker_id
        return [pair.target_id for pair in self._desk.pairs.left_out() if pair.source_id == name]

    def _is_current(self, worker: Worker) -> bool:
        """The worker has not said hello since the last look: another object would stand for it."""
        return self._workers.get(worker.info.worker_id) is worker

    def _find_targets(self) -> dict[tuple[Layout, WorkerRole], Targets]:
        able = [worker for worker in self._workers.values() if worker.takes_new]
        return {
            (layout, role): Targets([w for w in members if w.role is role], self._desk, spares_full=True)
            for layout, members in by_layout(able).items()
            for role in (WorkerRole.DECODE, WorkerRole.BOTH)
        }

    def _choose(self, targets: Mapping[tuple[Layout, WorkerRole], Targets], source: Worker) -> Targets | None:
        """Who decodes for it: of a worker that does both, only those that do nothing else."""
        decoders = targets.get((layout_of(source), WorkerRole.DECODE))
        if decoders or source.role is WorkerRole.BOTH:
            return decoders
        return targets.get((layout_of(source), WorkerRole.BOTH))
