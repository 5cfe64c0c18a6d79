"""Which requests may wait for a worker, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.admission.continuation import Continuation
from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.queue.refusal import malformation_of, refusal_of, refuse, refuse_for_now
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker


class Admission:
    """Knows the workers that there are, and since when a model has had none."""

    def __init__(
        self, config: SchedulerConfig, workers: Mapping[str, Worker], queues: Queues, started_at: float
    ) -> None:
        self._config, self._workers, self._queues = config, workers, queues
        self._started_at = started_at
        self._gone_at: dict[str, float] = {}
        """When the last worker of a model went, by model."""
        self.continuation = Continuation(config, workers, started_at)

    def worker_went(self, gone: Worker, now: float) -> None:
        """A worker has just been removed, or takes nothing new."""
        self.continuation.worker_went(gone, now)
        model = gone.info.model
        if not any(worker.info.model == model and not worker.draining for worker in self._workers.values()):
            self._gone_at[model] = now

    def no_worker_until(self, model: str) -> float:
        """Until when requests may wait for a model that has no worker, in seconds of the scheduler's clock."""
        return self._gone_at.get(model, self._started_at) + self._config.no_worker_grace_s

    def refusal_of(self, request: Request, now: float) -> Rejected | None:
        """Why a new request may not wait; None: it may. Limits are for first attempts (W2): one that was accepted
        before is only put off while too many bytes wait, and its frontend submits it again (F3)."""
        refusal = malformation_of(request) or self.impossibility_of(request, now) or self._excess_of(request)
        if refusal is not None or request.num_losses:
            return refusal
        if self._queues.num_competing(request) >= self._config.max_waiting:
            count, most = self._queues.num_competing(request), self._config.max_waiting
            return refuse_for_now(
                request, f"max_waiting: {count} of {most} requests for {request.model!r} wait already"
            )
        return self._queues.refusal_of(request, now)

    def _excess_of(self, request: Request) -> Rejected | None:
        """Memory has one limit for all (W1). A request that nobody is before may always wait."""
        count, most = self._queues.num_waiting_bytes, self._config.max_waiting_bytes
        if not count or count + request.num_bytes <= most:
            return None
        return refuse_for_now(
            request,
            f"max_waiting_bytes: {count} of {most} bytes wait already, and it has {request.num_bytes}",
        )

    def impossibility_of(self, request: Request, now: float) -> Rejected | None:
        """Why no worker will run a request, as far as can be told now; None: one may."""
        models = ((worker, worker.info.model) for worker in self._workers.values() if not worker.draining)
        first = next((worker for worker, model in models if model == request.model), None)
        if first is not None and refusal_of(request, [first], self._config) is None:
            return None  # nearly always: the others need not be asked
        workers = [w for w in self._workers.values() if w.info.model == request.model]
        able = [w for w in workers if not w.draining]
        # One may come (back): whether it can take the request is looked at then.
        may_wait = now < self.no_worker_until(request.model) and (not workers or request.num_losses)
        if not able and may_wait:
            return None
        if not workers:
            return refuse(
                request, "UnavailableError", f"no worker serves the model {request.model!r} now", "model"
            )
        if not able:
            return refuse(
                request, "UnavailableError", f"the workers of {request.model!r} are being drained", "model"
            )
        return refusal_of(request, able, self._config)
