"""Makes the next step of a worker: finds what it may take of those that wait, and lets suspects have their turns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from scheduler_svc.core.admission.continuation import Continuation
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.liveness.solo import build_solo_step, may_offer, placed_suspects, take_turns
from scheduler_svc.core.placement.choice import Choice
from scheduler_svc.core.placement.standings import Standings
from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.queue.waiting_cursor import WaitingCursor
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.builder import build_step
from scheduler_svc.core.step.bursts import is_steady, steps_behind

MAX_LOOKED_AT = 1024
"""Waiting requests among which suspects are looked for."""


class StepMaker:
    """Makes the steps of all workers."""

    def __init__(
        self,
        config: SchedulerConfig,
        standings: Standings,
        queues: Queues,
        register: Register,
        continuation: Continuation,
    ) -> None:
        self._config, self._standings, self._continuation = config, standings, continuation
        self._queues, self._register = queues, register

    def is_offered(self, worker: Worker) -> bool:
        """Requests wait that this worker might take. Many may wait of a kind that it does not serve: it need not look
        at them one by one."""
        info, num_of = worker.info, self._queues.num_of
        wait = (info.serves_generation and num_of(info.model, False)) or (
            info.serves_pooling and num_of(info.model, True)
        )
        return bool(wait) and worker.takes_new

    def may_make(self, worker: Worker, now: float) -> bool:
        """There is room for another step in flight, and it is time for it."""
        most, records = worker.limits.max_inflight_steps, worker.records
        if len(records) < most:
            return not records or now >= worker.hold_until
        if self._may_burst(worker):
            return worker.burst_left > 0
        return worker.num_due < most and now >= worker.hold_until

    def _may_burst(self, worker: Worker) -> bool:
        """Nothing can change with the next step but counts, and nobody waits for it (K11)."""
        return is_steady(worker) and not self.is_offered(worker) and not self._register.suspects

    def make(self, worker: Worker, now: float) -> StepDecision:
        """The next step, taken into the worker's state; empty: there is nothing to do."""
        is_within_burst = len(worker.records) >= worker.limits.max_inflight_steps and self._may_burst(worker)
        is_offered = self.is_offered(worker)
        step = self._make(worker, now, is_offered=is_offered)
        if is_within_burst:
            worker.burst_left -= 1
        else:
            burst_s = self._config.decode_burst_ms / 1e3
            may_begin = worker.limits.max_inflight_steps > 1 and is_steady(worker)
            may_begin = may_begin and not self._register.suspects
            may_begin = may_begin and not (is_offered and self.is_offered(worker))
            worker.burst_left = steps_behind(worker, burst_s) if may_begin else 0
        if (is_within_burst or worker.burst_left) and step.only_decodes:
            step.may_be_skipped = worker.records[-1].may_be_skipped = True
        if worker.records and worker.records[-1].step_id == step.step_id:
            record, limit = worker.records[-1], worker.step_limit
            is_plain = not record.num_prefill_tokens and record.num_decode_rows <= limit.num_rows
            record.limit_s = limit.decode_s if is_plain else limit.of(record)
            if record.limit_s != worker.told_limit_s:
                step.limit_s = worker.told_limit_s = record.limit_s
        return step

    def _make(self, worker: Worker, now: float, *, is_offered: bool) -> StepDecision:
        if self._register.suspects:
            return self._make_in_turn(worker, now)
        if not is_offered:
            return build_step(worker, self._config, self._no_offers(), now)
        waiting = self._queues.of(worker.info.model).walk(now)
        step = build_step(worker, self._config, self._offers(worker, waiting, now), now)
        waiting.close()
        return step

    def _no_offers(self) -> WaitingCursor:
        queues = self._queues
        return WaitingCursor(
            iter(()),
            charge=queues.charge_input,
            service_received=queues.service_received,
            version=queues.version,
        )

    def _make_in_turn(self, worker: Worker, now: float) -> StepDecision:
        """Some requests may have caused a crash: each runs in steps of its own (S2)."""
        suspects = self._register.suspects.values()
        slots = placed_suspects(worker, suspects)

        def usual() -> StepDecision:
            waiting = self._queues.of(worker.info.model).walk(now)
            like_all = (request for request in waiting if not may_offer(request))
            offers = self._offers(worker, like_all, now, slots)
            step = build_step(worker, self._config, offers, now)
            waiting.close()
            return step

        def solo() -> StepDecision:
            waiting = self._queues.of(worker.info.model).walk(now)
            alone = (request for request in islice(waiting, MAX_LOOKED_AT) if may_offer(request))
            offers = self._offers(worker, alone, now)
            step = build_solo_step(worker, self._config, offers, slots, now)
            waiting.close()
            return step

        is_offered = any(request.worker_id is None and may_offer(request) for request in suspects)
        return take_turns(worker, slots, is_offered=is_offered, solo=solo, usual=usual)

    def _offers(
        self,
        worker: Worker,
        waiting: Iterator[Request],
        now: float,
        suspects: frozenset[int] = frozenset(),
    ) -> WaitingCursor:
        def take(request: Request) -> None:
            request.worker_id = worker.info.worker_id
            queues.placed(request)

        queues = self._queues
        taken: Iterator[Request] = iter(())
        if self.is_offered(worker):  # who else could take a request matters only when one waits
            choice = Choice(worker, self._config, self._standings, self._continuation, now)
            taken = choice.candidates(waiting)
        return WaitingCursor(
            taken, take, queues.charge_input, queues.service_received, queues.version, suspects
        )
