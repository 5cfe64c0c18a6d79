"""What frontends say of themselves, and what they are told when nobody has their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_svc.core.cluster.frontends import End, Frontends
from scheduler_svc.core.cluster.notices import Lost, OutputsLost, Placed
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.cluster.unaccounted import UnaccountedRequests
from scheduler_svc.core.liveness.judgement import Liveness
from scheduler_svc.core.request import RequestKey, RequestStatus
from scheduler_svc.core.slots.worker import Worker
from signalbox.protocol.enums import LossCause


class FrontendDesk:
    """Takes their hellos and their questions. What they wait for and nobody knows is `unaccounted` until every worker
    that could have it has spoken."""

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
        worker_ids: Sequence[str],
        now: float,
        *,
        acknowledges: bool = False,
    ) -> None:
        """A frontend said hello, with all requests `(request_id, attempt)` that it still waits for, those of them whose
        clients read too slowly, and the workers that may have some of them; empty: it does not say which.
        `acknowledges`: it says what it has heard of who may run them."""
        register, frontends = self._register, self._frontends
        frontends.attach(instance, live, paused, acknowledges=acknowledges)
        self._liveness.forget_frontend(instance)
        self._unaccounted.forget_ended(instance)
        if worker_ids:
            self._unaccounted.name_workers(instance, [w for w in worker_ids if w not in self._workers], now)
        for request in register.of(instance):
            if not frontends.may_want(request.key, request.attempt):  # cancelled while the link was down
                register.end(request, RequestStatus.FINISHED_ABORTED)
        frontend = frontends.by_instance[instance]
        for request_id, attempt in frontend.live.items():
            key = RequestKey(instance, request_id)
            if key in register.requests:
                self.set_paused(key, attempt, (request_id, attempt) in frontend.paused)
            else:
                self._miss(key, attempt, frontend.ended.get((request_id, attempt)), now)
        self.resolve_unaccounted(now)

    def _miss(self, key: RequestKey, attempt: int, end: End | None, now: float) -> None:
        """A frontend waits for an attempt that is not known here any more; `end`: a worker has ended it."""
        worker = self._workers.get(end.by.worker_id) if end is not None else None
        if end is None or worker is None or worker.process != end.by:
            self._unaccounted.add(key, attempt)
            return
        self._unaccounted.ended(key, attempt, end.by, now)
        if end.leg:  # the word may not have come to the frontend, which takes no end without it (HO10)
            self._register.notices.append(Placed(key, attempt, end.by.worker_id, 0, end.leg))

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

    def check(self, key: RequestKey, attempt: int, worker_id: str, worker_instance: str, now: float) -> None:
        """A frontend's worker was replaced by another process, and it asks whether the request is still to come."""
        request = self._register.requests.get(key)
        if request is None or request.attempt != attempt:
            self._unaccounted.add(key, attempt)
            if not self._unaccounted.is_cut:
                self.resolve_unaccounted(now)
        elif request.worker_id == worker_id and worker_instance:
            request.in_doubt = self._workers[worker_id].info.instance != worker_instance

    def resolve_unaccounted(self, now: float) -> None:
        """Calls requests lost that nobody has, once every worker that could have them has spoken. Some of them only,
        if there are many: to be called again soon then (`UnaccountedRequests.is_cut`)."""
        are_all_attached = all(worker.attached for worker in self._workers.values())
        for key, attempt in self._unaccounted.take_lost(self._register.requests, are_all_attached, now):
            self._frontends.withdraw(key, attempt)
            self._register.notices.append(Lost(key, attempt, "no worker has it any more"))
