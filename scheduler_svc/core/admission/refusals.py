"""Ends waiting requests that have turned out to be impossible."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.admission.admission import Admission
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.cluster.unreachable import Unreachable
from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.queue.refusal import refuse
from scheduler_svc.core.queue.waiting_queue import WaitingQueue
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import RequestStatus
from scheduler_svc.core.state.worker import Worker


class Refusals:
    """Looks at whatever waits when workers have come, gone or begun to drain."""

    def __init__(
        self,
        config: SchedulerConfig,
        admission: Admission,
        register: Register,
        queues: Queues,
        workers: Mapping[str, Worker],
        unreachable: Unreachable,
    ) -> None:
        self._config, self._admission, self._register = config, admission, register
        self._queues, self._workers, self._unreachable = queues, workers, unreachable

    def refuse_waiting(self, queue: WaitingQueue, now: float) -> None:
        """Ends what can be run by no worker that is there."""
        for request in list(queue):
            refusal = self._admission.impossibility_of(request, now)
            if refusal is not None:
                self._register.end(request, RequestStatus.FINISHED_ERROR)
                self._register.notices.append(refusal)

    def refuse_unreachable(self, now: float) -> None:
        """Ends what waits for workers none of which its frontend has heard for as long as a worker is waited for."""
        self._unreachable.look(self._workers.values(), now)
        for frontend, model in self._unreachable.lasts(now, self._config.no_worker_grace_s):
            for request in [r for r in self._queues.of(model) if r.key.frontend_instance == frontend]:
                message = f"no worker of {model!r} can be reached from the frontend that has the request"
                self._register.end(request, RequestStatus.FINISHED_ERROR)
                self._register.notices.append(refuse(request, "UnavailableError", message, "model"))
