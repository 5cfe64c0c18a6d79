"""The scheduler: requests wait, are placed on workers, run in steps. Time comes in, decisions and notices go out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler_svc.core.config import SchedulerConfig, resolve
from scheduler_svc.core.notices import Lost, Notice, Placed, Rejected
from scheduler_svc.core.offers import Offers
from scheduler_svc.core.placement import candidates
from scheduler_svc.core.policy.tenants import Tenants
from scheduler_svc.core.queues import Queues
from scheduler_svc.core.recovery import (
    SlotStatus,
    WorkerSnapshot,
    adopt_slot,
    check_snapshot,
    discard_slot,
    make_places,
)
from scheduler_svc.core.refusal import malformation_of, refusal_of, refuse, refuse_for_now
from scheduler_svc.core.report_reader import DivergenceError, first_tokens, read_report
from scheduler_svc.core.request import Request, RequestKey, RequestStatus
from scheduler_svc.core.request_table import SlotState
from scheduler_svc.core.safe_mode import SafeMode
from scheduler_svc.core.side_copies import end_fence
from scheduler_svc.core.step import StepDecision, StepReport
from scheduler_svc.core.step_builder import build_step
from scheduler_svc.core.waiting_queue import WaitingQueue
from scheduler_svc.core.worker import Worker, WorkerInfo

__all__ = ["DivergenceError", "Scheduler"]


@dataclass
class Frontend:
    """A frontend process that has or had a link."""

    attached: bool = False
    detached_at: float = 0.0
    live: set[tuple[str, int]] = field(default_factory=set)
    """What it said it was waiting for, in its last hello."""
    paused: set[tuple[str, int]] = field(default_factory=set)
    """Those of them whose clients read too slowly."""


class Scheduler:
    """All state of one scheduler process. `now` is any clock that only rises, in seconds."""

    def __init__(
        self, config: SchedulerConfig, epoch: int, now: float, tenants: Tenants | None = None
    ) -> None:
        self.config = config
        self.epoch = epoch
        self.workers: dict[str, Worker] = {}
        self.frontends: dict[str, Frontend] = {}
        self.requests: dict[RequestKey, Request] = {}
        """The newest attempt of every request that has not ended."""
        self.on_end: Callable[[Request], None] | None = None
        """Hears of every request that leaves `requests`."""
        self.queues = Queues(config, tenants or Tenants(), self._num_cached)
        self.safe_mode = SafeMode(config)
        self._level: int | None = None
        """That of safe mode, as queues and workers know it."""
        self._notices: list[Notice] = []
        self._unsure: list[tuple[RequestKey, int]] = []
        """Requests that a frontend waits for and nobody here knows yet: a worker may still say hello with them."""
        self._started_at = now
        self._gone_at: dict[str, float] = {}
        """When the last worker of a model went."""
        self._next_sequence = 1

    # -- requests --

    @property
    def num_waiting(self) -> int:
        """Requests that no worker owns."""
        return self.queues.num_waiting

    @property
    def may_place(self) -> bool:
        """Requests wait that are not suspended."""
        return self.queues.num_waiting > self.queues.num_suspended

    def no_worker_until(self, model: str) -> float:
        """Until when requests may wait for a model that has no worker."""
        return self._gone_at.get(model, self._started_at) + self.config.no_worker_grace_s

    def submit(self, request: Request, now: float) -> None:
        """Takes a new attempt; an older one of the same request is cancelled. A refusal becomes a notice."""
        older = self.requests.get(request.key)
        if older is not None:
            self._end(older, RequestStatus.FINISHED_ABORTED)
        request.sequence = self._next_sequence
        self._next_sequence += 1
        refusal = malformation_of(request) or self._refusal(request, now)
        if refusal is None and self.queues.num_competing(request) >= self.config.max_waiting:
            count, most = self.queues.num_competing(request), self.config.max_waiting
            refusal = refuse_for_now(request, f"max_waiting: {count} of {most} requests wait already")
        refusal = refusal or self.queues.refusal_of(request, now)
        if refusal is not None:
            request.move(RequestStatus.FINISHED_IGNORED)
            self._notices.append(refusal)
            return
        self.requests[request.key] = request
        self.queues.assign(request, now)
        self.queues.push(request, now)
        self.safe_mode.watch(request, now)

    def cancel(self, key: RequestKey, attempt: int) -> None:
        """Ends a request for its client's sake; the frontend has told the client already. Unknown ones are ignored:
        they ended meanwhile."""
        self._end_attempt(key, attempt, RequestStatus.FINISHED_ABORTED)

    def finish(self, key: RequestKey, attempt: int) -> None:
        """Ends a request whose stop string the frontend found."""
        self._end_attempt(key, attempt, RequestStatus.FINISHED_STOPPED)

    def set_paused(self, key: RequestKey, attempt: int, paused: bool) -> None:
        """A client reads too slowly, or goes on."""
        frontend = self.frontends.get(key.frontend_instance)
        if frontend is not None:  # a worker may still say hello with the request
            (frontend.paused.add if paused else frontend.paused.discard)((key.request_id, attempt))
        request = self.requests.get(key)
        if request is None or request.attempt != attempt:
            return
        if request.worker_id is None:
            request.client_paused = paused
        else:
            assert request.slot is not None
            self.workers[request.worker_id].set_client_paused(request.slot, paused)

    def check(self, key: RequestKey, attempt: int, worker_id: str, worker_instance: str, now: float) -> None:
        """A frontend's worker was replaced by another process, and it asks whether the request is still to come."""
        request = self.requests.get(key)
        if request is None or request.attempt != attempt:
            self._unsure.append((key, attempt))
            self._resolve_unsure(now)
        elif request.worker_id == worker_id and worker_instance:
            request.in_doubt = self.workers[worker_id].info.instance != worker_instance

    # -- steps --

    def has_work(self, worker: Worker) -> bool:
        """A step for this worker might have something in it."""
        return worker.attached and (worker.has_own_work or self._is_offered(worker))

    def schedule(self, worker_id: str, now: float) -> StepDecision | None:
        """The next step of a worker; None when nothing would be in it, enough steps are in flight, or it is too early
        (`worker.hold_until`)."""
        worker = self.workers[worker_id]
        if len(worker.records) >= self.config.max_inflight_steps or not self.has_work(worker):
            return None
        if worker.records and now < worker.hold_until:
            return None
        others: list[Worker] = []
        if self._is_offered(worker):  # who else could take a request matters only when one waits
            others = [
                w
                for w in self.workers.values()
                if w is not worker and w.info.model == worker.info.model and not w.draining
            ]
        step = self._build_step(worker, others, now)
        for request in (*step.placed, *step.prepared):
            self._notices.append(Placed(request.key, request.attempt, worker_id, request.num_cached_tokens))
        return None if step.is_empty else step

    def _build_step(self, worker: Worker, others: list[Worker], now: float) -> StepDecision:
        def take(request: Request) -> None:
            request.worker_id = worker.info.worker_id
            self.queues.placed(request)

        waiting = self._queue_of(worker).walk(now)
        taken = candidates(worker, others, waiting, self.config, now) if self._is_offered(worker) else ()
        offers = Offers(iter(taken), take, self.queues.charge_input, self.queues.had, self.queues.version)
        step = build_step(worker, self.config, offers, now)
        waiting.close()
        return step

    def update(self, worker_id: str, report: StepReport, now: float) -> None:
        """Takes a worker's report. Raises DivergenceError: then close its link."""
        worker = self.workers[worker_id]
        record = worker.records[0] if worker.records else None
        answered = first_tokens(worker, record, report) if record is not None else []
        finishes = read_report(worker, report)
        for request in answered:
            self._answered(request, now)
        if record is not None:
            self.queues.charge_outputs(worker, record, report)
            self.queues.stepped(worker, record, report)
        if self.config.just_in_time_steps and len(worker.records) == self.config.max_inflight_steps - 1:
            worker.hold_until = now + worker.pacer.hold_s()
        for finish in finishes:
            self._forget_ended(finish.request)

    def grammar_ready(self, worker_id: str, slot: int, request_id: str, attempt: int) -> None:
        """A worker has compiled the grammar of a request: it starts when there is room. Raises DivergenceError."""
        if self._preparing(worker_id, slot, request_id, attempt) is not None:
            self.workers[worker_id].grammar_ready(slot)

    def grammar_failed(self, worker_id: str, slot: int, request_id: str, attempt: int) -> None:
        """A worker has ended a request whose grammar cannot be compiled; its frontend hears it from there. Raises
        DivergenceError."""
        request = self._preparing(worker_id, slot, request_id, attempt)
        if request is not None:
            self.workers[worker_id].release(slot, RequestStatus.FINISHED_ERROR)
            self._forget_ended(request)

    def fence_ended(self, worker_id: str, fence_id: int, *, failed: bool) -> None:
        """A worker's copies beside the steps have ended: whoever waited for them may start."""
        end_fence(self.workers[worker_id], fence_id, failed=failed)

    def _preparing(self, worker_id: str, slot: int, request_id: str, attempt: int) -> Request | None:
        """The request that a worker says something of; None when it was cancelled meanwhile, and the slot perhaps given
        to another."""
        table = self.workers[worker_id].table
        if slot >= table.num_slots:
            raise DivergenceError(f"a grammar of slot {slot}, of {table.num_slots}")
        request = table.requests[slot]
        if request is None or table.state[slot] != SlotState.PREPARING:
            return None
        same = (request.key.request_id, request.attempt) == (request_id, attempt)
        return request if same else None

    def drain_notices(self) -> list[Notice]:
        """What frontends have to be told since the last call."""
        notices, self._notices = self._notices, []
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
        if self._level == self.safe_mode.level:
            return
        self._level = self.safe_mode.level
        self.queues.suspend(self._level, now)
        for worker in self.workers.values():
            self._suspend_on(worker)

    def _suspend_on(self, worker: Worker) -> None:
        """What runs on a draining worker goes on to its end."""
        pauses = self.config.safe_mode_pauses and not worker.draining
        worker.suspend(self._level if pauses else None)

    # -- links --

    def attach_worker(self, info: WorkerInfo, snapshot: WorkerSnapshot | None, now: float) -> Worker:
        """A worker said hello. Its table is built from its snapshot; what it should have and has not is lost.

        Raises ValueError with a sentence when its offer and our settings, or its snapshot and itself, contradict each
        other: then nothing has changed.
        """
        limits = resolve(
            self.config,
            num_slots=info.num_slots,
            max_num_batched_tokens=info.max_num_batched_tokens,
            max_request_tokens=info.max_request_tokens,
            max_draft_tokens=info.max_draft_tokens,
        )
        worker, old = Worker(info, limits), self.workers.get(info.worker_id)
        worker.draining = old is not None and old.draining and old.info.instance == info.instance
        if snapshot is not None:
            check_snapshot(worker, snapshot)
            worker.next_step_id, worker.last_reported = snapshot.last_step_id + 1, snapshot.last_step_id
            if old is not None and old.reset_at and old.info.instance == info.instance:
                worker.reset_at = worker.next_step_id
            self._adopt(worker, snapshot, now)
        self._suspend_on(worker)
        self.workers[info.worker_id] = worker
        self._refuse_waiting(self._queue_of(worker), now)
        if old is not None:
            kept = {id(request) for request in worker.requests()}
            for request in old.requests():
                if id(request) not in kept and self.requests.get(request.key) is request:
                    self._lose(request, f"worker {info.worker_id} does not have it any more")
        return worker

    def detach_worker(self, worker_id: str, now: float) -> None:
        """A worker's link ended. Its requests stay its own until it comes back or the grace time has passed."""
        worker = self.workers.get(worker_id)
        if worker is not None:
            worker.attached, worker.detached_at = False, now

    def drain_worker(self, worker_id: str, draining: bool, now: float) -> int:
        """Places nothing more on a worker, or again; returns the number of requests that it still holds. What waits for
        a model none of whose workers takes anything is refused. Raises KeyError when there is no such worker."""
        worker = self.workers[worker_id]
        worker.draining = draining
        self._suspend_on(worker)
        self._refuse_waiting(self._queue_of(worker), now)
        return len(worker.requests())

    def attach_frontend(
        self, instance: str, live: list[tuple[str, int]], paused: list[tuple[str, int]], now: float
    ) -> None:
        """A frontend said hello, with all requests `(request_id, attempt)` that it still waits for, and those of them
        whose clients read too slowly."""
        frontend = self.frontends.setdefault(instance, Frontend())
        frontend.attached, frontend.live, frontend.paused = True, set(live), set(paused)
        for request in self._requests_of(instance):
            if (request.key.request_id, request.attempt) not in frontend.live:
                self._end(request, RequestStatus.FINISHED_ABORTED)  # cancelled while the link was down
        for request_id, attempt in live:
            self.set_paused(RequestKey(instance, request_id), attempt, (request_id, attempt) in paused)
            self._unsure.append((RequestKey(instance, request_id), attempt))
        self._resolve_unsure(now)

    def detach_frontend(self, instance: str, now: float) -> None:
        """A frontend's link ended. Its requests run on until the grace time has passed."""
        frontend = self.frontends.get(instance)
        if frontend is not None:
            frontend.attached, frontend.detached_at = False, now

    def lose_frontend(self, instance: str, worker_id: str) -> None:
        """A worker has thrown away outputs that this frontend did not read. The frontend may well live, and read from
        others: what it has on this worker is lost."""
        for request in self._requests_of(instance):
            if request.worker_id == worker_id:
                self._end(request, RequestStatus.FINISHED_ABORTED)
                reason = f"worker {worker_id} has thrown away what was not read"
                self._notices.append(Lost(request.key, request.attempt, reason))

    def tick(self, now: float) -> None:
        """Lets grace times run out. To be called about every second, and after links change."""
        for worker in [w for w in self.workers.values() if not w.attached]:
            if now - worker.detached_at >= self.config.worker_grace_s:
                self._remove_worker(worker, now)
        for model, queue in self.queues.by_model():
            if len(queue) and all(w.draining for w in self.workers.values() if w.info.model == model):
                self._refuse_waiting(queue, now)
        for instance, frontend in list(self.frontends.items()):
            if not frontend.attached and now - frontend.detached_at >= self.config.frontend_grace_s:
                for request in self._requests_of(instance):
                    self._end(request, RequestStatus.FINISHED_ABORTED)
                del self.frontends[instance]
        self._resolve_unsure(now)
        self.queues.deadlines.now = now
        self.safe_mode.look(now)
        self._suspend(now)

    def reset_prefix_cache(self) -> int:
        """Forgets all cached content of all workers, host tiers too; returns the number of blocks that had some."""
        return sum(worker.reset_cache() for worker in self.workers.values())

    def check_integrity(self) -> None:
        """Asserts all invariants."""
        for worker in self.workers.values():
            worker.check_integrity()
            for request in worker.requests():
                assert self.requests.get(request.key) is request, f"{request.key} runs and is not known"
                assert request.worker_id == worker.info.worker_id
        placed = {id(r) for worker in self.workers.values() for r in worker.requests()}
        waiting = {id(r) for _, queue in self.queues.by_model() for r in queue}
        for request in self.requests.values():
            assert (id(request) in placed) != (id(request) in waiting), f"{request.key} is nowhere or twice"
            assert not request.status.is_finished
        suspended = [r for _, queue in self.queues.by_model() for r in queue if r.suspended]
        assert len(suspended) == self.queues.num_suspended, "suspended requests miscounted"
        assert all(self._level is not None and r.base_rank > self._level for r in suspended)
        assert len(self.requests) == len(placed) + len(waiting)

    # -- inside --

    def _requests_of(self, instance: str) -> list[Request]:
        return [r for r in self.requests.values() if r.key.frontend_instance == instance]

    def _queue_of(self, worker: Worker) -> WaitingQueue:
        return self.queues.of(worker.info.model)

    def _is_offered(self, worker: Worker) -> bool:
        """Requests wait that this worker might take. Many may wait of a kind that it does not serve: it need not look
        at them one by one."""
        info, num_of = worker.info, self.queues.num_of
        return not worker.draining and bool(
            (info.serves_generation and num_of(info.model, False))
            or (info.serves_pooling and num_of(info.model, True))
        )

    def _num_cached(self, request: Request) -> int:
        """Most tokens of a waiting request that a worker has cached."""
        if not self.config.enable_prefix_caching or request.needs_every_position:
            return 0
        workers = [w for w in self.workers.values() if w.info.model == request.model]
        counts = (w.pool.prefix_length(request.block_hashes) * w.info.block_size for w in workers)
        return max(counts, default=0)

    def _refusal(self, request: Request, now: float) -> Rejected | None:
        workers = [w for w in self.workers.values() if w.info.model == request.model]
        if not workers:
            if now < self.no_worker_until(request.model):
                return None  # it may come (back): whether it can take the request is looked at then
            return refuse(
                request, "UnavailableError", f"no worker serves the model {request.model!r} now", "model"
            )
        workers = [w for w in workers if not w.draining]
        if not workers:
            return refuse(
                request, "UnavailableError", f"the workers of {request.model!r} are being drained", "model"
            )
        return refusal_of(request, workers, self.config)

    def _end_attempt(self, key: RequestKey, attempt: int, status: RequestStatus) -> None:
        frontend = self.frontends.get(key.frontend_instance)
        if frontend is not None:  # a worker may still say hello with the request
            frontend.live.discard((key.request_id, attempt))
            frontend.paused.discard((key.request_id, attempt))
        request = self.requests.get(key)
        if request is not None and request.attempt == attempt:
            self._end(request, status)

    def _end(self, request: Request, status: RequestStatus) -> None:
        """Ends a request, wherever it stands."""
        if request.worker_id is None:
            self.queues.remove(request)
            request.move(status)
        else:
            assert request.slot is not None
            self.workers[request.worker_id].release(request.slot, status)
        self._forget(request)

    def _forget(self, request: Request) -> None:
        del self.requests[request.key]
        frontend = self.frontends.get(request.key.frontend_instance)
        if frontend is not None:
            frontend.paused.discard((request.key.request_id, request.attempt))
        if request.worker_id is not None:
            self.queues.ended(request)
        self.safe_mode.forget(request)
        self.queues.deadlines.ended(request)
        if self.on_end is not None:
            self.on_end(request)

    def _forget_ended(self, request: Request) -> None:
        """Its worker has ended the request, and told its frontend unless that looks elsewhere by now."""
        if request.in_doubt:
            self._lose(request, f"worker {request.worker_id} ended it and was replaced")
        else:
            self._forget(request)

    def _lose(self, request: Request, reason: str) -> None:
        """Nobody has the request any more: its frontend may submit it again."""
        self._forget(request)
        self._notices.append(Lost(request.key, request.attempt, reason))

    def _refuse_waiting(self, queue: WaitingQueue, now: float) -> None:
        """Ends waiting requests that have turned out to be impossible."""
        for request in list(queue):
            refusal = self._refusal(request, now)
            if refusal is not None:
                self._end(request, RequestStatus.FINISHED_ERROR)
                self._notices.append(refusal)

    def _remove_worker(self, worker: Worker, now: float) -> None:
        del self.workers[worker.info.worker_id]
        for request in worker.requests():
            if self.requests.get(request.key) is request:
                self._lose(request, f"worker {worker.info.worker_id} is gone")
        if not any(w.info.model == worker.info.model for w in self.workers.values()):
            self._gone_at[worker.info.model] = now
        self._refuse_waiting(self._queue_of(worker), now)

    def _adopt(self, worker: Worker, snapshot: WorkerSnapshot, now: float) -> None:
        for slot in snapshot.slots:
            known = self.requests.get(slot.request.key)
            if known is None and self._is_orphan(slot.request, snapshot):
                slot.request.sequence = self._next_sequence
                self._next_sequence += 1
                self.queues.assign(slot.request, now)
                self.queues.adopted(slot.request)
                known = self.requests[slot.request.key] = slot.request
                frontend = self.frontends.setdefault(known.key.frontend_instance, Frontend(detached_at=now))
                known.client_paused = (known.key.request_id, known.attempt) in frontend.paused
            same = known is not None and known.attempt == slot.request.attempt
            elsewhere = (
                known is not None and known is not slot.request and known.worker_id != worker.info.worker_id
            )
            if known is None or not same or elsewhere:
                discard_slot(worker, slot, slot.request)
                continue
            if slot.num_output_tokens and not known.num_prior_output_tokens and not known.is_pooling:
                self._answered(known, now)  # unless its report came: it may have been lost with the link
            if slot.status == SlotStatus.ENDED:
                discard_slot(worker, slot, slot.request)
                self._forget(known)
            else:
                adopt_slot(worker, slot, known)
        make_places(worker)

    def _answered(self, request: Request, now: float) -> None:
        """Its first token has come. Saying so twice changes nothing."""
        self.safe_mode.answered(request, now)
        self.queues.deadlines.first_token(request, now)

    def _is_orphan(self, request: Request, snapshot: WorkerSnapshot) -> bool:
        """Placed by an earlier scheduler and still wanted. One that this scheduler placed, it would know."""
        if snapshot.scheduler_epoch == self.epoch:
            return False
        frontend = self.frontends.get(request.key.frontend_instance)
        return (
            frontend is None
            or not frontend.attached
            or (request.key.request_id, request.attempt) in frontend.live
        )

    def _resolve_unsure(self, now: float) -> None:
        """Calls requests lost that nobody has, once every worker that could have them has spoken."""
        self._unsure = [(key, attempt) for key, attempt in self._unsure if not self._knows(key, attempt)]
        if now < self._started_at + self.config.start_grace_s or any(
            not worker.attached for worker in self.workers.values()
        ):
            return
        for key, attempt in self._unsure:
            self._notices.append(Lost(key, attempt, "no worker has it any more"))
        self._unsure = []

    def _knows(self, key: RequestKey, attempt: int) -> bool:
        request = self.requests.get(key)
        return request is not None and request.attempt >= attempt
