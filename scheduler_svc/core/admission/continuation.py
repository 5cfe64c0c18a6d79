"""Which workers may go on with an output that others have begun: those of the same identity, while there is one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker


class Continuation:
    """Knows the workers that there are, and since when an identity has had none."""

    def __init__(self, config: SchedulerConfig, workers: Mapping[str, Worker], started_at: float) -> None:
        self._grace_s, self._workers, self._started_at = config.no_worker_grace_s, workers, started_at
        self._gone_at: dict[bytes, float] = {}
        """When the last worker of an identity went, by its key; -inf: on purpose, so that nobody waits for it."""

    def worker_went(self, worker: Worker, now: float) -> None:
        """The worker has just been removed, or takes nothing new any more."""
        key = worker.info.identity.key
        others = (w for w in self._workers.values() if w is not worker and w.info.identity.key == key)
        if not any(not other.draining for other in others):
            self._gone_at[key] = -math.inf if worker.draining else now

    def may_take(self, worker: Worker, request: Request, now: float) -> bool:
        """`worker`, which could run `request`, may: it would go on under the identity that its output is of, or nobody
        of that one is there, nor is about to come back."""
        origin = request.output_identity
        if not origin or origin == worker.info.identity.key:
            return True
        since = self._gone_at.get(origin, self._started_at)
        for other in self._workers.values():
            if other.info.identity.key == origin and not other.draining and other.can_run(request):
                if other.takes_new:
                    return False
                # Silent, slow or away: whether it comes back is not waited for for ever.
                waits_since = request.entry.waits_since
                since = max(since, self._started_at if waits_since is None else waits_since)
        return now >= since + self._grace_s
