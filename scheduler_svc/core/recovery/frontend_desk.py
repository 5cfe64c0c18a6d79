"""What frontends say of themselves, and what they are told when nobody has their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler_svc.core.cluster.frontends import End, Frontends
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.cluster.unaccounted import Holders, UnaccountedRequests
from scheduler_svc.core.liveness.judgement import Liveness
from scheduler_svc.core.state.requests.notices import Lost, OutputsLost, Placed
from scheduler_svc.core.state.requests.request import RequestKey, RequestStatus
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import LossCause


@dataclass(frozen=True)
class Question:
    """A frontend asks whether an attempt is still to come: its worker was replaced by another process."""

    key: RequestKey
    attempt: int
    worker_id: str
    """The worker in whose place the other process stands."""
    worker_instance: str
    """The process in its place; empty: there is none."""
    may_be_on: Sequence[str] = ()
    """Workers that may have the attempt; empty: any of `model` may."""
    model: str = ""
    """Empty: it is not said."""


class FrontendDesk:
    """Takes their hellos and their questions. What they wait for and nobody knows is `unaccounted` until every process
    that could have it is settled."""

    def __init__(
        self,
        register: Register,
        frontends: Frontends,
        unaccounted: UnaccountedRequests,
        liveness: Liveness,
        workers: Mapping[str, Worker],
    ) -> None:
        self._register, self._frontends, self._unaccounted = register, frontends, unaccounted
        self._liveness, self._workers = liveness, workers

    def attach(
        self,
        instance: str,
        live: list[tuple[str, int]],
        paused: list[tuple[str, int]],
        holders: Mapping[str, Holders],
        now: float,
        *,
        acknowledges: bool = False,
    ) -> None:
        """A frontend said hello, with all requests `(request_id, attempt)` that it still waits for, those of them whose
        clients read too slowly, and the `holders` of each by its id; it does not say of others who may have them.
        `acknowledges`: it says what it has heard of who may run them."""
        register, frontends = self._register, self._frontends
        frontends.attach(instance, live, paused, acknowledges=acknowledges)
        self._liveness.forget_frontend(instance)
        self._unaccounted.forget(instance)
        for request in register.of(instance):
            if not frontends.may_want(request.key, request.attempt):  # cancelled while the link was down
                register.end(request, RequestStatus.FINISHED_ABORTED)
        frontend = frontends.by_instance[instance]
        for request_id, attempt in frontend.live.items():
            key = RequestKey(instance, request_id)
            if key in register.requests:
                self.set_paused(key, attempt, (request_id, attempt) in frontend.paused)
            elif not self._awaits_end(key, attempt, frontend.ended.get((request_id, attempt)), now):
                self._unaccounted.add(key, attempt, holders.get(request_id), now)
        self.resolve_unaccounted(now)

    def _awaits_end(self, key: RequestKey, attempt: int, end: End | None, now: float) -> bool:
        """Whether a frontend waits for an attempt that a worker has ended and is to tell it of: `end`, if any has."""
        worker = self._workers.get(end.by.worker_id) if end is not None else None
        if end is None or worker is None or worker.process != end.by:
            return False
        self._unaccounted.ended(key, attempt, end.by, now)
        if end.leg:  # the word may not have come to the frontend, which takes no end without it (HO10)
            self._register.notices.append(Placed(key, attempt, end.by.worker_id, 0, end.leg))
        return True

    def let_go(self, now: float) -> None:
        """Ends what frontends had that are gone."""
        for instance in self._frontends.take_gone(now):
            self._liveness.forget_frontend(instance)
            self._unaccounted.forget(instance)
            for request in self._register.of(instance):
                self._register.end(request, RequestStatus.FINISHED_ABORTED)

    def lose_outputs(self, instance: str, worker_id: str) -> None:
        """A worker has thrown away outputs that this frontend did not read. The frontend may well live, and read from
        others: what it has on this worker is lost."""
        for request in self._register.of(instance):
            if request.worker_id == worker_id:
                reason = f"worker {worker_id} has thrown away what was not read"
                self._register.take_back(request, reason, LossCause.OUTPUT_LOST)
        worker_instance = self._workers[worker_id].info.instance
        self._register.notices.append(OutputsLost(instance, worker_id, worker_instance))

    def set_paused(self, key: RequestKey, attempt: int, paused: bool) -> None:
        """A client reads too slowly, or goes on."""
        self._frontends.set_paused(key, attempt, paused)
        request = self._register.requests.get(key)
        if request is None or request.attempt != attempt:
            return
        worker = self._workers[request.worker_id] if request.worker_id is not None else None
        if worker is None or not worker.table.holds(request):  # it waits, or its worker has not come to it
            request.client_paused = paused
        else:
            assert request.slot is not None
            worker.table.set_client_paused(request.slot, paused)

    def check(self, question: Question, now: float) -> None:
        """Answers when the attempt is lost; not while its output may still come."""
        key, attempt = question.key, question.attempt
        request = self._register.requests.get(key)
        if request is None or request.attempt != attempt:
            is_new = not self._unaccounted.is_awaited(key)
            self._unaccounted.add(key, attempt, self._holders_of(question) if is_new else (), now)
            if is_new and not self._unaccounted.is_cut:
                self.resolve_unaccounted(now)
        elif request.worker_id == question.worker_id and question.worker_instance:
            request.in_doubt = self._workers[question.worker_id].info.instance != question.worker_instance

    def _holders_of(self, question: Question) -> Holders:
        """Processes that may have an attempt that is not known here: of workers that are away, and those that its
        frontend waits for anyway."""
        names, model = question.may_be_on, question.model
        if not names and not model:
            return None
        away = [
            worker.process
            for worker in self._workers.values()
            if not worker.attached
            and (worker.info.worker_id in names if names else worker.info.model == model)
        ]
        awaited = self._unaccounted.awaited_by(question.key.frontend_instance)
        strangers = (each for each in awaited if each.worker_id not in self._workers)
        return (*away, *(each for each in strangers if not names or each.worker_id in names))

    def resolve_unaccounted(self, now: float) -> None:
        """Calls requests lost that nobody can have any more (J13). Some of them only, if there are many: to be called
        again soon then (`UnaccountedRequests.is_cut`)."""
        are_all_attached = all(worker.attached for worker in self._workers.values())
        for key, attempt in self._unaccounted.take_lost(self._register.requests, are_all_attached, now):
            self._frontends.withdraw(key, attempt)
            self._register.notices.append(Lost(key, attempt, "no worker has it any more"))
