"""Requests go from where their prompts were computed to where others decode (PD3)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.handoff.desk import HandoffDesk
from scheduler_svc.core.handoff.drain import MAX_LOOKED_AT, best_target
from scheduler_svc.core.handoff.eligibility import is_full, same_layout
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.state import RUNNING
from scheduler_svc.core.slots.worker import Worker
from signalbox.protocol.enums import WorkerRole


class Disaggregation:
    """Begins hand-offs of what decodes where prompts are computed."""

    def __init__(self, config: SchedulerConfig, workers: Mapping[str, Worker], desk: HandoffDesk) -> None:
        self._config, self._workers, self._desk = config, workers, desk

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
        """One pass over the workers."""
        for worker in self._workers.values():
            self.look_at(worker, now)

    def look_at(self, source: Worker, now: float) -> None:
        """Begins the hand-offs of what one worker decodes, oldest request first."""
        room = self._config.max_handoffs_per_worker - len(source.handoffs.exports)
        if room <= 0 or source.role is WorkerRole.DECODE or not source.attached or source.draining:
            return
        targets = self._targets(source)
        if not targets:
            return
        found = [
            request
            for request in self._candidates(source, now)
            if best_target(request, source, targets, self._desk, now) is not None
        ]
        for request in sorted(found, key=lambda each: each.order)[:room]:
            target = best_target(request, source, targets, self._desk, now)  # those before it have taken room
            if target is None:
                continue
            request.history.was_moved_by_role = True
            request.history.no_move_before = now + self._config.rebalance_pause_s
            self._desk.begin(request, source, target, now)
            self._desk.counts.num_by_role += 1

    def target_for(self, request: Request, source: Worker) -> Worker | None:
        """Where a request that decodes at `source` would go; None: nobody has room for it."""
        return best_target(request, source, self._targets(source), self._desk, self._desk.now)

    def left_out(self, source: Worker) -> list[str]:
        """Ids of workers that could not read from `source` when they last tried (HO21)."""
        name = source.info.worker_id
        return [pair.target_id for pair in self._desk.pairs.left_out() if pair.source_id == name]

    def _targets(self, source: Worker) -> list[Worker]:
        """Who decodes for it: of a worker that does both, only those that do nothing else."""
        able = [
            other
            for other in self._workers.values()
            if same_layout(source, other) and other.takes_new and not is_full(other)
        ]
        decoders = [other for other in able if other.role is WorkerRole.DECODE]
        if decoders or source.role is WorkerRole.BOTH:
            return decoders
        return [other for other in able if other.role is WorkerRole.BOTH]

    def _candidates(self, source: Worker, now: float) -> list[Request]:
        """What decodes, the newest last, and was not moved lately."""
        table = source.table
        able = []
        for slot in [*table.decode_slots.tolist(), *table.settling]:
            request = table.requests[slot]
            if request is None or table.state[slot] not in RUNNING or request.rests:
                continue
            history = request.history
            if now >= max(
                history.no_handoff_before, history.no_move_before
            ) and not self._desk.why_request_stays(request, source):
                able.append(request)
        return able[-MAX_LOOKED_AT:]
