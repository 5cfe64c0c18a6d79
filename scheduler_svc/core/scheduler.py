"""The scheduler: requests wait, are placed on workers, run in steps. Time comes in, decisions and notices go out."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.admission.admission import Admission
from scheduler_svc.core.admission.refusals import Refusals
from scheduler_svc.core.admission.suspension import suspend
from scheduler_svc.core.cluster.frontends import End, Frontends
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.cluster.term import Term
from scheduler_svc.core.cluster.unaccounted import Holders, UnaccountedRequests
from scheduler_svc.core.cluster.unreachable import Unreachable
from scheduler_svc.core.integrity import check_requests, check_workers
from scheduler_svc.core.liveness.judgement import Departure, Liveness
from scheduler_svc.core.liveness.settlement import Settlement
from scheduler_svc.core.liveness.solo import absolve
from scheduler_svc.core.liveness.withdrawal import withdraw
from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.moves.policies import HandoffPolicies
from scheduler_svc.core.parts.fetch.side_copies import end_fence
from scheduler_svc.core.parts.handoff.part import HandoffPart
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.placement.standings import Standings
from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.queue.safe_mode import SafeMode
from scheduler_svc.core.queue.waiting_queue import WaitingQueue
from scheduler_svc.core.recovery.adoption import Adoption
from scheduler_svc.core.recovery.frontend_desk import FrontendDesk, Question
from scheduler_svc.core.recovery.snapshot import WorkerSnapshot, make_worker
from scheduler_svc.core.state.blocks.block_pool import BlockPool
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.evidence import Exit, Process
from scheduler_svc.core.state.requests.notices import Notice, Placed
from scheduler_svc.core.state.requests.request import Request, RequestKey, RequestStatus
from scheduler_svc.core.state.requests.tenants import Tenants
from scheduler_svc.core.state.steps.step import StepDecision, StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.core.step.grammars import grammar_failed, grammar_ready
from scheduler_svc.core.step.report import first_tokens, read_report
from scheduler_svc.core.step_maker import StepMaker
from signalbox.protocol.enums import WorkerReach

FREED_NAMES = 1 << 15
"""Names of content that are freed in one tick, by what is left over of all pools together."""


class Scheduler:
    """All state of one scheduler process. `now` is any clock that only rises, in seconds."""

    def __init__(
        self,
        config: SchedulerConfig,
        epoch: int,
        now: float,
        tenants: Tenants | None = None,
        instance: str = "",
    ) -> None:
        """`epoch` is the first term, and `instance` the UUID of the process."""
        self.config = config
        self.term = Term(instance, epoch)
        self.workers: dict[str, Worker] = {}
        self.standings = Standings(self.workers, config.watermark_blocks_per_seq)
        self.frontends = Frontends(config.frontend_grace_s)
        self.queues = Queues(config, tenants or Tenants(), self._num_cached)
        self.safe_mode = SafeMode(config)
        self.register = Register(self.queues, self.safe_mode, self.workers, self.frontends)
        self.admission = Admission(config, self.workers, self.queues, now)
        self._maker = StepMaker(
            config, self.standings, self.queues, self.register, self.admission.continuation
        )
        self.liveness = Liveness(config, self.workers, self.register, self.frontends)
        self.unreachable = Unreachable()
        graces = config.start_grace_s, config.worker_grace_s
        settlement = Settlement(self.workers, self.liveness.evidence, *graces)
        self.unaccounted = UnaccountedRequests(graces[0], now, settlement.is_settled, max(graces))
        self.handoffs = HandoffDesk(
            config, self.workers, self.register, self.queues, self.frontends, settlement
        )
        self.policies = HandoffPolicies(config, self.workers, self.handoffs)
        self._refusals = Refusals(
            config, self.admission, self.register, self.queues, self.workers, self.unreachable
        )
        self.desk = FrontendDesk(self.register, self.frontends, self.unaccounted, self.liveness, self.workers)
        self.num_removed = 0
        """Workers that are gone: whoever keeps a list of them compares."""
        self._gone: list[BlockPool] = []
        """Pools that are taken apart bit by bit: to free millions of names takes long."""
        self.level: int | None = None
        """The level of safe mode, as queues and workers know it; None: nothing is suspended."""

    @property
    def epoch(self) -> int:
        """The term that steps are sent in."""
        return self.term.number

    @property
    def requests(self) -> Mapping[RequestKey, Request]:
        """The newest attempt of every request that has not ended."""
        return self.register.requests

    # -- requests --

    @property
    def num_waiting(self) -> int:
        """Requests that no worker owns."""
        return self.queues.num_waiting

    @property
    def may_place(self) -> bool:
        """Requests wait that are not suspended."""
        return self.queues.num_waiting > self.queues.num_suspended

    def submit(self, request: Request, now: float) -> None:
        """Takes a new attempt; an older one of the same request is cancelled. A refusal becomes a notice."""
        self.frontends.submitted(request.key, request.attempt)
        older = self.requests.get(request.key)
        if older is not None:
            self.register.end(older, RequestStatus.FINISHED_ABORTED)
        self.register.number(request)
        refusal = self.admission.refusal_of(request, now)
        if refusal is None:
            self.register.add(request, now)
        else:
            request.move(RequestStatus.FINISHED_IGNORED)
            self.frontends.withdraw(request.key, request.attempt)
            self.register.notices.append(refusal)

    def cancel(self, key: RequestKey, attempt: int) -> None:
        """Ends a request for its client's sake; the frontend has told the client already. Unknown ones are ignored:
        they ended meanwhile."""
        self._end_attempt(key, attempt, RequestStatus.FINISHED_ABORTED)

    def finish(self, key: RequestKey, attempt: int) -> None:
        """Ends a request whose stop string the frontend found."""
        self._end_attempt(key, attempt, RequestStatus.FINISHED_STOPPED)

    def set_paused(self, key: RequestKey, attempt: int, paused: bool) -> None:
        """A client reads too slowly, or goes on."""
        self.desk.set_paused(key, attempt, paused)

    def check(self, question: Question, now: float) -> None:
        """A frontend's worker was replaced by another process, and it asks whether the request is still to come."""
        self.desk.check(question, now)

    # -- steps --

    def has_work(self, worker: Worker) -> bool:
        """A step for this worker might have something in it."""
        is_there = worker.attached and not worker.vitals.has_left
        return is_there and (worker.has_own_work or self._maker.is_offered(worker))

    def schedule(self, worker_id: str, now: float) -> StepDecision | None:
        """The next step of a worker; None when nothing would be in it, enough steps are in flight, or it is too early
        (`worker.hold_until`)."""
        worker = self.workers[worker_id]
        if not self.has_work(worker) or not self._maker.may_make(worker, now):
            return None
        step = self._maker.make(worker, now)
        worker.changed[worker_id] = None
        handoff = worker.parts.get(HandoffPart) if worker.parts.all else None
        if handoff is not None and not handoff.is_idle:
            self.handoffs.look_at(worker, now)
        for request in (*step.placed, *step.prepared):
            self.register.notices.append(
                Placed(request.key, request.attempt, worker_id, request.history.num_cached_tokens)
            )
        return None if step.is_empty else step

    def update(self, worker_id: str, report: StepReport, now: float) -> None:
        """Takes a worker's report. Raises DivergenceError: then close its link."""
        worker = self.workers[worker_id]
        worker.changed[worker_id] = None
        record = worker.records[0] if worker.records else None
        answered = first_tokens(worker, record, report) if record is not None and record.chunks else []
        finishes, mask_work = read_report(worker, report)
        for request in answered:
            self.register.answered(request, now)
        if record is not None:
            self.queues.stepped(worker, record, report, mask_work)
        if self.config.just_in_time_steps and len(worker.records) == worker.limits.max_inflight_steps - 1:
            worker.hold_until = now + worker.pacer.hold_s()
        handoff = worker.parts.get(HandoffPart) if worker.parts.all else None
        if handoff is not None and not handoff.is_idle:
            self.handoffs.look_at(worker, now)
        if record is not None and record.is_solo:
            absolve(worker, record, report, self.register)
        for finish in finishes:
            self.register.forget_ended(finish.request, End(worker.process, finish.request.leg))
        self.policies.reported(worker, answered, now)
        if report.withdrawn:
            self.handoffs.withdraw(worker, withdraw(worker, report.withdrawn, self.register), now)

    def grammar_ready(self, worker_id: str, slot: int, request_id: str, attempt: int) -> None:
        """A worker has compiled the grammar of a request: it starts when there is room. Raises DivergenceError."""
        grammar_ready(self.workers[worker_id], slot, request_id, attempt)

    def grammar_failed(self, worker_id: str, slot: int, request_id: str, attempt: int) -> None:
        """A worker has ended a request whose grammar cannot be compiled; its frontend hears it from there. Raises
        DivergenceError."""
        grammar_failed(self.workers[worker_id], slot, request_id, attempt, self.register)

    def fence_ended(self, worker_id: str, fence_id: int, *, failed: bool) -> None:
        """A worker's copies beside the steps have ended: whoever waited for them may start."""
        worker = self.workers[worker_id]
        worker.changed[worker_id] = None
        end_fence(worker, fence_id, failed=failed)

    def hand_over(self, key: RequestKey, target_worker_id: str, now: float) -> Handoff:
        """Begins to hand a request over to a worker (HO). Raises HandoffRefusedError, and nothing has changed then."""
        return self.handoffs.hand_over(key, target_worker_id, now)

    def drain_notices(self) -> list[Notice]:
        """What frontends have to be told since the last call."""
        notices, self.register.notices = self.register.notices, []
        return notices

    # -- safe mode --

    def set_safe_mode(self, level: int, now: float) -> None:
        """An operator suspends the classes below `level`. Raises ValueError when the policy knows none."""
        if not self.config.has_classes:
            raise ValueError(f"safe mode suspends classes, and the policy {self.config.policy!r} has none")
        self.safe_mode.set(level)
        self._suspend(now)

    def lift_safe_mode(self, now: float) -> None:
        """An operator lets all classes go on, whoever had them suspended."""
        self.safe_mode.lift()
        self._suspend(now)

    def _suspend(self, now: float) -> None:
        """Makes the level of safe mode known, if it has changed."""
        if self.level == self.safe_mode.level:
            return
        self.level = self.safe_mode.level
        self.standings.forget()
        self.queues.suspend(self.level, now)
        for worker in self.workers.values():
            self._suspend_on(worker)

    def _suspend_on(self, worker: Worker) -> None:
        """What runs on a draining worker goes on to its end."""
        pauses = self.config.safe_mode_pauses and not worker.draining
        suspend(worker, self.level if pauses else None)

    # -- links --

    def attach_worker(self, info: WorkerInfo, snapshot: WorkerSnapshot | None, now: float) -> Worker:
        """A worker said hello, and is taken in at once. Raises as `begin_adoption`."""
        adoption = self.begin_adoption(info, snapshot, now)
        while not adoption.is_done:
            adoption.take_some(now)
        return self.end_adoption(adoption, now)

    def begin_adoption(self, info: WorkerInfo, snapshot: WorkerSnapshot | None, now: float) -> Adoption:
        """A worker said hello. Its table is built from its snapshot, piece by piece; what it should have and has not is
        lost in the end. Until then it is away.

        Raises ValueError with a sentence when its offer and our settings, or its snapshot and itself, contradict each
        other: then nothing has changed.
        """
        old = self.workers.get(info.worker_id)
        worker = make_worker(info, snapshot, self.config, old, self.term)
        worker.changed = self.standings.changed
        if old is not None:
            self.handoffs.detached(old, now)
        adoption = Adoption(worker, old, snapshot, self.register, self.queues, self.term, self.handoffs)
        if snapshot is not None:
            self.term.meet(snapshot.scheduler_epoch, snapshot.scheduler_instance)
        self.workers[info.worker_id] = worker
        self.standings.forget()
        adoption.begin(now)
        return adoption

    def end_adoption(self, adoption: Adoption, now: float) -> Worker:
        """All pieces have been taken: the worker is there."""
        worker, old = adoption.worker, adoption.old
        self.standings.forget()
        adoption.end()
        worker.attached = True
        self._suspend_on(worker)
        self._refusals.refuse_waiting(self._queue_of(worker), now)
        if old is not None:
            self.liveness.lose_rest(old, worker)
            if old.pool is not worker.pool:
                self._free(old)
        self.liveness.attached(worker, old)
        self.handoffs.waits.spoke(worker, now)
        self.unaccounted.worker_spoke(worker.process, now, adoption.ended)
        self.desk.resolve_unaccounted(now)
        return worker

    def fail_adoption(self, adoption: Adoption, now: float) -> None:
        """It failed half way, for a reason of ours: what has not come is lost, and the worker is away."""
        adoption.worker.is_arriving, adoption.worker.detached_at = False, now
        adoption.worker.table.find_free_slots()
        if adoption.old is not None:
            self.liveness.lose_rest(adoption.old, adoption.worker)
            if adoption.old.pool is not adoption.worker.pool:
                self._free(adoption.old)

    def detach_worker(self, worker_id: str, now: float) -> None:
        """A worker's link ended. Its requests stay its own until it comes back, is known to be gone, or the grace time
        has passed."""
        worker = self.workers.get(worker_id)
        if worker is not None:
            worker.attached, worker.detached_at = False, now
            self.standings.forget()
            self.handoffs.detached(worker, now)
            self._remove_gone(now)

    def worker_leaves(self, worker_id: str, reason: str, *, has_crashed: bool) -> None:
        """A worker has said its last word: what it has goes elsewhere, and the end of its link is its own end."""
        self.liveness.leaves(self.workers[worker_id], reason, has_crashed=has_crashed)
        self.handoffs.leave_troubled(self.handoffs.now)

    def worker_ended(self, process: Process, exit_: Exit, now: float) -> None:
        """A guardian says how a worker's process has ended. With the end of its link, or soon without, it is gone; one
        that nobody here has met is gone at once (J13)."""
        self.liveness.ended(process, exit_)
        self._remove_gone(now)
        self.handoffs.waits.tick(now)
        self.desk.resolve_unaccounted(now)

    def reach_worker(self, frontend: str, process: Process, reach: WorkerReach, now: float) -> None:
        """A frontend says what it sees of a worker."""
        self.liveness.said(frontend, process, reach, now)
        self.standings.forget()
        self.unreachable.look(self.workers.values(), now)
        self._remove_gone(now)

    def drain_worker(self, worker_id: str, draining: bool, now: float) -> int:
        """Places nothing more on a worker, or again; returns the number of requests that it still holds. What waits for
        a model none of whose workers takes anything is refused. Raises KeyError when there is no such worker."""
        worker = self.workers[worker_id]
        has_begun = draining and not worker.draining
        worker.draining = draining
        self.standings.forget()
        if has_begun:
            self.admission.worker_went(worker, now)
        self._suspend_on(worker)
        self._refusals.refuse_waiting(self._queue_of(worker), now)
        self.handoffs.leave_draining(worker, now)
        self.policies.tick(now)
        return len(worker.requests())

    def attach_frontend(
        self,
        instance: str,
        live: list[tuple[str, int]],
        paused: list[tuple[str, int]],
        now: float,
        holders: Mapping[str, Holders] | None = None,
        *,
        acknowledges: bool = False,
    ) -> None:
        """A frontend said hello: `FrontendDesk.attach`."""
        self.desk.attach(instance, live, paused, holders or {}, now, acknowledges=acknowledges)
        self.handoffs.tell_again(instance)

    def detach_frontend(self, instance: str, now: float) -> None:
        """A frontend's link ended. Its requests run on until the grace time has passed."""
        self.frontends.detach(instance, now)
        self.handoffs.leave_troubled(now)

    def lose_frontend(self, instance: str, worker_id: str) -> None:
        """A worker has thrown away outputs that this frontend did not read."""
        self.desk.lose_outputs(instance, worker_id)

    def tick(self, now: float) -> None:
        """Lets grace times run out. To be called every HEARTBEAT_S, by whoever has not stood still before (H3)."""
        self._remove_gone(now)
        self.liveness.judge(now)
        self.standings.forget()
        for instance in self.frontends.judge(now, self.config.worker_silence_ms / 1e3):
            self.liveness.news.append(f"frontend {instance} is silent; its requests stay where they are")
        self.handoffs.tick(now)
        self.policies.tick(now)
        self._refusals.refuse_unreachable(now)
        for model, queue in self.queues.by_model():
            if len(queue) and all(w.draining for w in self.workers.values() if w.info.model == model):
                self._refusals.refuse_waiting(queue, now)
        self.desk.let_go(now)
        self.desk.resolve_unaccounted(now)
        self.queues.deadlines.now = now
        self.safe_mode.look(now)
        self._suspend(now)
        self._free_some()

    def reset_prefix_cache(self) -> int:
        """Forgets all cached content of all workers, host tiers too; returns the number of blocks that had some."""
        self.handoffs.stop_all("cache_reset")
        count = sum(worker.reset_cache() for worker in self.workers.values())
        self._gone += [tier.pool for worker in self.workers.values() for tier in worker.tiers]
        return count

    def check_integrity(self) -> None:
        """Asserts all invariants of all workers, queues and tables."""
        check_workers(self.workers, self.requests)
        check_requests(self.requests, self.workers, self.queues, self.register.suspects.keys(), self.level)

    # -- inside --

    def _free(self, worker: Worker) -> None:
        """The worker is gone, and so is its cache."""
        for tier in worker.tiers:
            tier.pool.retire()
            self._gone.append(tier.pool)

    def _free_some(self) -> None:
        """Frees names of pools that are gone or were reset, of all pools together some FREED_NAMES."""
        num_freed = 0
        while self._gone and num_freed < FREED_NAMES:
            freed = self._gone[-1].free_some()
            num_freed += freed
            if not freed:
                self._gone.pop()

    def _queue_of(self, worker: Worker) -> WaitingQueue:
        return self.queues.of(worker.info.model)

    def _num_cached(self, request: Request) -> int:
        """Most tokens of a waiting request that a worker has cached."""
        if not self.config.enable_prefix_caching or request.needs_every_position:
            return 0
        workers = [w for w in self.workers.values() if w.info.model == request.model]
        counts = (w.pool.prefix_length(w.names_of(request).hashes) * w.info.block_size for w in workers)
        return max(counts, default=0)

    def _end_attempt(self, key: RequestKey, attempt: int, status: RequestStatus) -> None:
        self.frontends.withdraw(key, attempt)
        request = self.requests.get(key)
        if request is not None and request.attempt == attempt:
            self.register.end(request, status)

    def _remove_gone(self, now: float) -> None:
        for worker in [w for w in self.workers.values() if not w.attached and not w.is_arriving]:
            departure = self.liveness.departure_of(worker, now)
            if departure is not None:
                self._remove_worker(worker, departure, now)

    def _remove_worker(self, worker: Worker, departure: Departure, now: float) -> None:
        del self.workers[worker.info.worker_id]
        self.standings.forget()
        self._free(worker)
        self.num_removed += 1
        self.unaccounted.worker_went(worker.process)
        self.handoffs.detached(worker, now)
        self.liveness.lose_all(worker, departure)
        self.handoffs.waits.gone(worker.process, now)
        self.admission.worker_went(worker, now)
        self._refusals.refuse_waiting(self._queue_of(worker), now)
