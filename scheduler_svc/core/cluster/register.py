"""All requests that have not ended, wherever they stand: the one way in, and the one way out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scheduler_svc.core.cluster.frontends import End, Frontends
from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.queue.safe_mode import SafeMode
from scheduler_svc.core.state.requests.notices import Lost, Notice
from scheduler_svc.core.state.requests.request import Request, RequestKey, RequestStatus
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import LossCause


class Register:
    """Whoever counts or remembers requests hears here of those that come and go."""

    def __init__(
        self, queues: Queues, safe_mode: SafeMode, workers: Mapping[str, Worker], frontends: Frontends
    ) -> None:
        self.requests: dict[RequestKey, Request] = {}
        """The newest attempt of each."""
        self.suspects: dict[RequestKey, Request] = {}
        """Requests that may have caused a crash."""
        self.notices: list[Notice] = []
        """What frontends have to be told, in order."""
        self.on_end: Callable[[Request], None] | None = None
        """Hears of every request that leaves `requests`."""
        self.on_gone: Callable[[Request], None] | None = None
        """Hears of every request that leaves while it is being handed over."""
        self._queues, self._safe_mode = queues, safe_mode
        self._workers, self._frontends = workers, frontends
        self._of: dict[str, dict[RequestKey, Request]] = {}
        """The requests of each frontend, by its instance."""
        self._next_sequence = 1

    def of(self, instance: str) -> list[Request]:
        """The requests of one frontend."""
        return list(self._of.get(instance, {}).values())

    # -- in --

    def number(self, request: Request) -> None:
        """Says which request came when, refused ones too."""
        request.sequence = self._next_sequence
        self._next_sequence += 1

    def add(self, request: Request, now: float) -> None:
        """A request waits for a worker."""
        self._enter(request)
        self._queues.assign(request, now)
        self._queues.push(request, now)
        self._safe_mode.watch(request, now)

    def is_orphan(self, request: Request) -> bool:
        """Placed by an earlier scheduler, unknown to this one, and still wanted."""
        return request.key not in self.requests and self._frontends.may_want(request.key, request.attempt)

    def add_orphan(self, request: Request, now: float) -> None:
        """A worker has had the request from an earlier scheduler."""
        self.number(request)
        self._queues.assign(request, now)
        self._queues.adopted(request)
        self._enter(request)
        self._frontends.expect(request.key.frontend_instance, now)
        request.client_paused = self._frontends.is_paused(request.key, request.attempt)

    def _enter(self, request: Request) -> None:
        self.requests[request.key] = request
        self._of.setdefault(request.key.frontend_instance, {})[request.key] = request
        if request.num_crashes:
            self.suspects[request.key] = request

    def answered(self, request: Request, now: float) -> None:
        """Its first token has come. Saying so twice changes nothing."""
        self._safe_mode.answered(request, now)
        self._queues.deadlines.first_token(request, now)

    def absolve(self, request: Request) -> None:
        """A new token of it has come: it is like all others (S3). An older attempt than the newest proves nothing."""
        if self.suspects.get(request.key) is request:
            request.num_crashes = 0
            del self.suspects[request.key]

    # -- out --

    def end(self, request: Request, status: RequestStatus) -> None:
        """Ends a request, wherever it stands."""
        if request.worker_id is None:
            self._queues.remove(request)
            request.move(status)
        else:
            worker = self._workers[request.worker_id]
            if worker.table.holds(request):
                assert request.slot is not None
                worker.release(request.slot, status)
            else:  # its worker is arriving, and has not come to it
                request.move(status)
        self.forget(request)

    def forget_ended(self, request: Request, end: End) -> None:
        """A worker has ended the request, and told its frontend unless that looks elsewhere by now."""
        if request.in_doubt:
            self.lose(request, f"worker {request.worker_id} ended it and was replaced", LossCause.WORKER_GONE)
        else:
            self.forget(request, end)

    def lose(self, request: Request, reason: str, cause: LossCause) -> None:
        """Nobody has the request any more: its frontend may submit it again."""
        self.forget(request)
        self.notices.append(Lost(request.key, request.attempt, reason, cause))

    def take_back(self, request: Request, reason: str, cause: LossCause) -> None:
        """Takes a request from the worker that has it, which is told if it still listens; its frontend may submit it
        again."""
        self.end(request, RequestStatus.FINISHED_ABORTED)
        self.notices.append(Lost(request.key, request.attempt, reason, cause))

    def forget(self, request: Request, end: End | None = None) -> None:
        """The request has ended, and nobody has to be told; `end`: a worker has ended it, and told so."""
        if request.handoff is not None and self.on_gone is not None:
            self.on_gone(request)
        del self.requests[request.key]
        mates = self._of[request.key.frontend_instance]
        del mates[request.key]
        if not mates:
            del self._of[request.key.frontend_instance]
        self._frontends.withdraw(request.key, request.attempt, end)
        if request.num_crashes:
            del self.suspects[request.key]
        if request.worker_id is not None:
            self._queues.ended(request)
        self._safe_mode.forget(request)
        self._queues.deadlines.ended(request)
        if self.on_end is not None:
            self.on_end(request)
