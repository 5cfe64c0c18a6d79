"""Which requests may wait for a worker, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.notices import Rejected
from scheduler_svc.core.queues import Queues
from scheduler_svc.core.refusal import malformation_of, refusal_of, refuse, refuse_for_now
from scheduler_svc.core.request import Request
from scheduler_svc.core.worker import Worker


class Admission:
    """Knows the workers that there are, and since when a model has had none."""

    def __init__(
        self, config: SchedulerConfig, workers: Mapping[str, Worker], queues: Queues, started_at: float
    ) -> None:
        self._config, self._workers, self._queues = config, workers, queues
        self._started_at = started_at
        self._gone_at: dict[str, float] = {}
        """When the last worker of a model went."""

    def worker_went(self, model: str, now: float) -> None:
        """A worker of the model has just been removed."""
        if not any(worker.info.model == model for worker in self._workers.values()):
            self._gone_at[model] = now

    def no_worker_until(self, model: str) -> float:
        """Until when requests may wait for a model that has no worker."""
        return self._gone_at.get(model, self._started_at) + self._config.no_worker_grace_s

    def refusal_of(self, request: Request, now: float) -> Rejected | None:
        """Why a new request may not wait; None: it may."""
        refusal = malformation_of(request) or self.impossibility_of(request, now)
        if refusal is None and self._queues.num_competing(request) >= self._config.max_waiting:
            count, most = self._queues.num_competing(request), self._config.max_waiting
            refusal = refuse_for_now(request, f"max_waiting: {count} of {most} requests wait already")
        return refusal or self._queues.refusal_of(request, now)

    def impossibility_of(self, request: Request, now: float) -> Rejected | None:
        """Why no worker will run a request, as far as can be told now; None: one may."""
        workers = [w for w in self._workers.values() if w.info.model == request.model]
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
        return refusal_of(request, workers, self._config)
