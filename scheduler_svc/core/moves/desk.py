"""Begins hand-offs, takes what workers say of them, and ends them, one way or the other."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from scheduler_svc.core.cluster.frontends import Frontends
from scheduler_svc.core.cluster.pairs import Pair, PairTroubles
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.liveness.settlement import Settlement
from scheduler_svc.core.liveness.withdrawal import withdraw_named
from scheduler_svc.core.moves.waits import HandoffWaits
from scheduler_svc.core.parts.handoff.commit import Arrived, contradiction_of, take_over
from scheduler_svc.core.parts.handoff.counts import HandoffCounts
from scheduler_svc.core.parts.handoff.eligibility import same_layout, why_not_there, why_request_stays
from scheduler_svc.core.parts.handoff.ends import HandoffEnds
from scheduler_svc.core.parts.handoff.part import handoffs_of, open_handoffs
from scheduler_svc.core.parts.handoff.patience import Patience
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.parts.pulls.desk import PullDesk
from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.handoff import Phase
from scheduler_svc.core.state.requests.notices import Placed
from scheduler_svc.core.state.requests.request import Request, RequestKey
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import DivergenceError
from signalbox.protocol.enums import ReadFault, WorkerHealth

KEY_BYTES = 16
RETRY_S = 1.0
"""How long a request stays where it is after a hand-off of it has failed, before the next is begun unasked; twice as
long after each further one."""
MAX_RETRY_S = 60.0
REASONS = {ReadFault.REQUEST: "request", ReadFault.WITHDRAWN: "withdrawn"}
"""Reasons of failures that a target tells and that are not the pair's; of all others it is "target"."""
OF_PAIR = {"target", "late"}
"""Reasons of failures by which a pair of workers is left out (HO21)."""


class HandoffRefusedError(ValueError):
    """A request cannot be handed over as asked. `field` is what stands in the way: request_id or worker_id."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


def key_to_move(requests: Mapping[RequestKey, Request], request_id: str) -> RequestKey:
    """The request of that id. Raises HandoffRefusedError when there is none, or several frontends have one."""
    found = [key for key in requests if key.request_id == request_id]
    if not found:
        raise HandoffRefusedError(f"no request {request_id!r} is known here", "request_id")
    if len(found) > 1:
        raise HandoffRefusedError(f"{len(found)} frontends have a request {request_id!r}", "request_id")
    return found[0]


def pair_of(handoff: Handoff) -> Pair:
    """The processes at its ends."""
    return Pair(handoff.source_process, handoff.target_process)


def num_open(source: Worker, target: Worker) -> int:
    """Hand-offs under way from one worker to another."""
    return sum(each.target is target for each in handoffs_of(source).exports.values())


class HandoffDesk:
    """All hand-offs between the workers of one scheduler. `now` as everywhere."""

    def __init__(
        self,
        config: SchedulerConfig,
        workers: Mapping[str, Worker],
        register: Register,
        queues: Queues,
        frontends: Frontends,
        settlement: Settlement,
        make_key: Callable[[], bytes] = lambda: secrets.token_bytes(KEY_BYTES),
    ) -> None:
        self._config, self._workers, self._register, self._queues = config, workers, register, queues
        self._frontends, self._make_key = frontends, make_key
        self._last_transfer = 0
        self.counts = HandoffCounts()
        self._patience = Patience()
        self.pairs = PairTroubles("nothing is handed over there")
        self.now = 0.0
        """When somebody last said what time it is: for calls that come without."""
        self.waits = HandoffWaits(
            config.worker_grace_s, workers, register, self.thaw, self.commit_found, settlement.has_gone
        )
        """Hand-offs of other schedulers that were found half done."""
        self.pulls = PullDesk(config, workers)
        """Cached blocks that go from worker to worker, without a request."""
        register.on_gone = self.request_gone

    def ends_of(self, worker: Worker) -> HandoffEnds:
        """Hand-offs of the worker, to be written."""
        return open_handoffs(worker, reuses_blocks=self._config.enable_prefix_caching)

    # -- begin --

    def hand_over(self, key: RequestKey, target_id: str, now: float) -> Handoff:
        """Begins to hand a request over to a worker. Raises HandoffRefusedError, and nothing has changed then."""
        request = self._register.requests.get(key)
        if request is None:
            raise HandoffRefusedError(f"no request {key.request_id!r} is known here", "request_id")
        target = self._workers.get(target_id)
        if target is None:
            raise HandoffRefusedError(f"no worker {target_id!r} is known here", "worker_id")
        source = self._workers.get(request.worker_id) if request.worker_id is not None else None
        if source is None:
            raise HandoffRefusedError(f"no worker has request {key.request_id!r} yet", "request_id")
        if why := self.why_request_stays(request, source):
            raise HandoffRefusedError(
                f"request {key.request_id!r} cannot be handed over: {why}", "request_id"
            )
        if why := why_not_there(request, source, target, self._config.watermark_blocks_per_seq):
            raise HandoffRefusedError(f"request {key.request_id!r} cannot go there: {why}", "worker_id")
        return self.begin(request, source, target, now)

    def begin(self, request: Request, source: Worker, target: Worker, now: float) -> Handoff:
        """Begins to hand over a request that can be (`eligibility.py`). Its frontend is told before any worker
        (HO10)."""
        self.now = now
        source_slot = request.slot
        assert source_slot is not None
        limit = int(source.table.limit[source_slot])
        target_slot = target.table.place_import(request, limit, target.limits.num_draft_tokens)
        self._last_transfer += 1
        handoff = Handoff(
            request,
            self._last_transfer,
            self._make_key(),
            self._next_leg(request),
            source,
            source_slot,
            target,
            target_slot,
            bool(source.table.num_blocks[source_slot]),
            now,
        )
        request.handoff = handoff
        of_source, of_target = self.ends_of(source), self.ends_of(target)
        of_source.exports[source_slot] = of_target.imports[target_slot] = handoff
        of_source.begun.append(handoff)
        of_target.arriving.append(handoff)
        self._tell_of(handoff)
        self.counts.num_begun += 1
        return handoff

    def why_request_stays(self, request: Request, source: Worker) -> str:
        """Why `request`, which `source` has, cannot be handed over to anybody (HO13, HO20); empty: it can."""
        if not self._frontends.hears_us(request.key.frontend_instance):
            return "its frontend does not hear this scheduler"
        return why_request_stays(request, source)

    def may_try(self, source: Worker, target: Worker, now: float) -> bool:
        """The pair is not left out (HO21)."""
        if not self.pairs.has_any:
            return True
        return self.pairs.may_try(Pair(source.process, target.process), now, num_open(source, target))

    def has_room(self, request: Request, source: Worker, target: Worker) -> bool:
        """`target` could take `request` over, if it can be handed over to anybody (HO1)."""
        return not why_not_there(request, source, target, self._config.watermark_blocks_per_seq)

    @property
    def most_per_pair(self) -> int:
        """Hand-offs of a source at a time that one target gets while others may have them, too (HO21)."""
        return -(-self._config.max_handoffs_per_worker // 2)

    def _next_leg(self, request: Request) -> int:
        request.newest_leg += 1
        return request.newest_leg

    def tell(self, request: Request, worker: Worker, leg: int) -> int:
        """Tells its frontend that the worker may run it under this leg. Returns the number of the word, by which it is
        acknowledged; 0: it is not."""
        num_cached = request.history.num_cached_tokens
        word = self._frontends.number_word(request.key.frontend_instance)
        placed = Placed(request.key, request.attempt, worker.info.worker_id, num_cached, leg, word)
        self._register.notices.append(placed)
        return word

    def _tell_of(self, handoff: Handoff) -> None:
        """Tells the frontend of the target's leg; the request is not frozen before it has heard that (HO20)."""
        handoff.word = self.tell(handoff.request, handoff.target, handoff.leg)
        handoff.is_heard = not handoff.word

    def heard(self, instance: str, word: int) -> bool:
        """A frontend acknowledges the words up to this one. Returns whether a request may be frozen for it."""
        is_new = False
        for worker in self._workers.values():
            for handoff in handoffs_of(worker).imports.values():
                is_its_own = handoff.request.key.frontend_instance == instance
                if is_its_own and not handoff.is_heard and handoff.word <= word:
                    handoff.is_heard = is_new = True
        return is_new

    # -- what targets say --

    def ready(self, worker_id: str, slot: int, transfer: int, now: float) -> None:
        """A target has all but a few blocks: the source may freeze the slot (HO4). Raises DivergenceError."""
        handoff = self._import(worker_id, slot, transfer)
        if handoff is not None and handoff.phase is Phase.BEGUN:
            self.now = now
            handoff.phase = Phase.READY
            self.ends_of(handoff.source).freezing.append(handoff)

    def failed(
        self,
        worker_id: str,
        slot: int,
        transfer: int,
        now: float,
        why: str = "",
        fault: ReadFault = ReadFault.PAIR,
    ) -> None:
        """A target will never have all of a request (HO8); `why` is a sentence. Raises DivergenceError."""
        handoff = self._import(worker_id, slot, transfer)
        if handoff is None:
            return
        reason = REASONS.get(fault, "target")
        # A silent source may not have been told of the hand-off; one that sends no heartbeats says nothing then (HO19).
        is_unheard = handoff.source.health is WorkerHealth.SILENT
        self.stop(handoff, "source_silent" if is_unheard and reason == "target" else reason, now, why=why)

    def ended(self, worker_id: str, slot: int, transfer: int, arrived: Arrived, now: float) -> None:
        """A target has all of a request: that is the commit (HO6). Raises DivergenceError."""
        handoff = self._import(worker_id, slot, transfer)
        if handoff is None:
            return
        if handoff.phase is not Phase.FROZEN:
            raise DivergenceError(f"transfer {transfer} has ended in slot {slot}, and was not frozen")
        if why := contradiction_of(handoff, arrived):
            raise DivergenceError(f"transfer {transfer} in slot {slot}: {why}")
        self.commit(handoff, arrived, now)

    def _import(self, worker_id: str, slot: int, transfer: int) -> Handoff | None:
        """The hand-off that a target speaks of; None: it is over."""
        worker = self._workers[worker_id]
        if slot >= worker.table.num_slots:
            raise DivergenceError(f"a transfer to slot {slot}, of {worker.table.num_slots}")
        handoff = handoffs_of(worker).imports.get(slot)
        if handoff is None or handoff.transfer != transfer:
            return None
        if not handoff.is_target_told:
            raise DivergenceError(f"transfer {transfer} to slot {slot}, which was not told of it")
        return handoff

    # -- the end --

    def commit(self, handoff: Handoff, arrived: Arrived, now: float) -> None:
        """The request is the target's."""
        self.now = now
        request, source = handoff.request, handoff.source
        table, slot = source.table, handoff.source_slot
        is_there = self._is_current(source) and table.holds(request)
        may_publish = bool(table.started_at[slot] >= source.reset_at) and not table.is_spoilt[slot]
        made = arrived.num_output - int(table.num_output[slot])
        if not source.attached:  # its reports of what it made were lost with its link
            self._queues.charge_output(request, max(made, 0))
        never_ran = not handoff.has_blocks and int(table.state[slot]) == SlotState.PREPARING
        self._leave(handoff, Phase.COMMITTED)
        if is_there:
            source.hand_off(slot)
        handoff.target.table.num_found[handoff.target_slot] = min(
            int(handoff.target.table.num_found[handoff.target_slot]), int(table.num_found[slot])
        )
        is_kept = self._config.enable_prefix_caching and not request.needs_every_position
        take_over(handoff, arrived, may_publish=may_publish, is_kept=is_kept)
        request.history.has_yet_to_start |= never_ran
        self.ends_of(handoff.target).committed[handoff.target_slot] = handoff.leg
        if arrived.num_output > request.num_prior_output_tokens and not request.is_pooling:
            self._register.answered(request, now)
        self._count_commit(handoff, now)

    def _count_commit(self, handoff: Handoff, now: float) -> None:
        counts, target = self.counts, handoff.target
        counts.num_committed += 1
        counts.num_blocks += int(target.table.num_blocks[handoff.target_slot])
        frozen_s = max(now - (handoff.frozen_at or now), 0.0)
        counts.frozen_s += frozen_s
        self._patience.took(frozen_s)
        self.pairs.succeeded(pair_of(handoff))
        handoff.request.history.num_failed_handoffs = 0
        handoff.request.history.no_handoff_before = 0.0

    def stop(
        self, handoff: Handoff, reason: str, now: float, *, source_knows: bool = False, why: str = ""
    ) -> None:
        """The hand-off has failed; the request goes on at the source (HO8). `source_knows`: that one has ended it by
        itself, or is told in another way. `why`: the target's own sentence."""
        if handoff.is_over:
            return
        self.now = now
        request, source, slot = handoff.request, handoff.source, handoff.source_slot
        was_frozen = handoff.phase is Phase.FROZEN
        self._leave(handoff, Phase.FAILED)
        self._drop_target(handoff)
        self.counts.failed[reason] += 1
        self._hold_back(handoff, reason, now, why)
        if source_knows or not (self._is_current(source) and source.table.holds(request)):
            return
        if was_frozen:
            self.thaw(request, source)
        elif handoff.is_source_told:
            self.ends_of(source).kept.append(slot)

    def _hold_back(self, handoff: Handoff, reason: str, now: float, why: str) -> None:
        """What has failed is not tried again at once: the pair is left out, or the request stays for a while. One that
        failed for the first time, by the pair's fault, may go to another worker now (HO21)."""
        history = handoff.request.history
        if reason in OF_PAIR:
            self.pairs.failed(pair_of(handoff), why or reason, now)
        if reason not in OF_PAIR or history.num_failed_handoffs:
            history.no_handoff_before = now + min(RETRY_S * 2**history.num_failed_handoffs, MAX_RETRY_S)
        history.num_failed_handoffs += 1

    def thaw(self, request: Request, source: Worker) -> None:
        """A frozen request goes on where it is, under a leg of its own."""
        assert request.slot is not None
        request.leg = self._next_leg(request)
        self.tell(request, source, request.leg)
        self.ends_of(source).thawed[request.slot] = request.leg

    def commit_found(self, request: Request, target: Worker) -> None:
        """A request that `target` had all of when it said hello is its own. Under a leg of its own: if the source was
        let go on, its frontend has heard a higher one than the request came with."""
        assert request.slot is not None
        request.leg = self._next_leg(request)
        self.tell(request, target, request.leg)
        self.ends_of(target).committed[request.slot] = request.leg

    def request_gone(self, request: Request) -> None:
        """A request that is being handed over has ended, or is lost: so has the hand-off."""
        handoff = request.handoff
        assert handoff is not None
        self._leave(handoff, Phase.FAILED)
        self._drop_target(handoff)
        self.counts.failed["ended"] += 1

    def _leave(self, handoff: Handoff, phase: Phase) -> None:
        handoff.phase, handoff.request.handoff = phase, None
        handoffs_of(handoff.source).leave(handoff)
        handoffs_of(handoff.target).leave(handoff)

    def _is_current(self, worker: Worker) -> bool:
        """It has not said hello since: another object would stand for it."""
        return self._workers.get(worker.info.worker_id) is worker

    def _drop_target(self, handoff: Handoff) -> None:
        target, slot = handoff.target, handoff.target_slot
        if not self._is_current(target):
            return
        if target.table.state[slot] == SlotState.IMPORTING and target.table.requests[slot] is handoff.request:
            target.drop_import(slot, is_told=handoff.is_target_told)

    # -- what else ends them --

    def look_at(self, worker: Worker, now: float) -> None:
        """A step of `worker` was made, or a report of it was read: ends what cannot go on with that."""
        ends = handoffs_of(worker)
        broken, ends.broken = ends.broken, []
        for handoff, reason in broken:
            self.stop(handoff, reason, now)
        for slot in worker.table.refused:
            handoff_of_row = ends.exports.get(slot)
            if handoff_of_row is not None:
                self.stop(handoff_of_row, "not_run", now)

    def detached(self, worker: Worker, now: float) -> None:
        """The worker's link has ended: it has dropped what it was taking over, and what it let others read and was not
        frozen (HO9). What it has frozen, others may still have all of."""
        self.pulls.detached(worker)
        for handoff in list(handoffs_of(worker).imports.values()):
            self.stop(handoff, "target_link", now)
        for handoff in list(handoffs_of(worker).exports.values()):
            if handoff.phase is not Phase.FROZEN:
                self.stop(handoff, "source_link", now, source_knows=True)

    def tick(self, now: float) -> None:
        """Looks at what time, and the state of workers, ends."""
        self.leave_troubled(now)
        self._end_late(now)
        self.waits.tick(now)
        self._forget_old_troubles(now)

    def _forget_old_troubles(self, now: float) -> None:
        if not (self.pairs.has_any or self.pulls.pairs.has_any):
            return
        workers = self._workers.values()
        processes = {worker.process for worker in workers}
        is_open = {pair_of(each) for worker in workers for each in handoffs_of(worker).imports.values()}
        self.pairs.forget_old(processes, is_open, now)
        self.pulls.tick(processes, now)

    def take_news(self) -> list[str]:
        """What an operator should know of pairs of workers, in words; it is told once."""
        news = self.pairs.news + self.pulls.pairs.news
        self.pairs.news, self.pulls.pairs.news = [], []
        return news

    def leave_troubled(self, now: float) -> None:
        """Ends hand-offs to workers that are not well, or that the request's frontend does not hear (HO1). Where the
        frontend does not hear us, only those that are not frozen: of others it has heard (HO20)."""
        self.now = now
        for worker in self._workers.values():
            for handoff in list(handoffs_of(worker).imports.values()):
                frontend = handoff.request.key.frontend_instance
                if frontend in worker.vitals.unheard_by or not worker.is_well:
                    self.stop(handoff, "target_unwell", now)
                elif handoff.phase is not Phase.FROZEN and not self._frontends.hears_us(frontend):
                    self.stop(handoff, "frontend", now)

    def _end_late(self, now: float) -> None:
        """Ends hand-offs that take too long, whoever is in the way (HO18)."""
        for worker in self._workers.values():
            for handoff in list(handoffs_of(worker).imports.values()):
                if self._patience.is_late(handoff, now):
                    # Once the target is ready, an acknowledgement by the frontend may be all that is missing (HO20).
                    waits_for_frontend = handoff.phase is Phase.READY and not handoff.is_heard
                    self.stop(handoff, "frontend" if waits_for_frontend else "late", now)

    def leave_draining(self, worker: Worker, now: float) -> None:
        """A worker that drains takes nothing over: what is on its way there stays where it is."""
        for handoff in list(handoffs_of(worker).imports.values()) if worker.draining else ():
            self.stop(handoff, "target_drains", now)

    def withdraw(self, worker: Worker, names: list[bytes], now: float) -> None:
        """What `worker` has forgotten because it was wrong, others forget that may have taken it over (N2, HO12)."""
        self.look_at(worker, now)
        if not (names and (self.counts.num_committed or self.pulls.counts.num_begun)):
            return
        for other in list(self._workers.values()):
            if same_layout(worker, other) and not other.is_arriving:
                withdraw_named(other, names, self._register)
                self.look_at(other, now)

    def stop_all(self, reason: str) -> None:
        """Ends all of them, as of a reset of the caches."""
        for worker in self._workers.values():
            for handoff in list(handoffs_of(worker).imports.values()):
                self.stop(handoff, reason, self.now)

    def tell_again(self, instance: str) -> None:
        """A frontend has said hello: it hears who may run what was handed over, or is to be (HO10)."""
        for request in self._register.of(instance):
            worker = self._workers.get(request.worker_id) if request.worker_id is not None else None
            if worker is not None and request.leg:
                self.tell(request, worker, request.leg)
            if request.handoff is not None:
                self._tell_of(request.handoff)
