"""Looks at the invariants while there is nothing else to do, so that what cannot be does not last."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from scheduler_svc.core.integrity import check_requests, check_worker
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.slots.worker import Worker

logger = logging.getLogger(__name__)

MOST_SHARE = 0.01
"""Largest share of the time that checks may take."""


class IdleCheck:
    """One worker at a time, when it has no step in flight; then all requests together, when nobody waits and no step is
    in flight at all."""

    def __init__(self, core: Scheduler, clock: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        """Violations so far, by worker id; those of the requests together under the empty id."""
        self._core, self._clock = core, clock
        self._every_s = core.config.integrity_check_s
        self._next_at = clock() + self._every_s
        self._todo: list[str] = []

    def look(self, now: float) -> str | None:
        """Checks an idle worker when it is time; to be called a few times a second. Returns the worker, if any, whose
        state contradicts itself: it is to be asked for its snapshot."""
        if not self._every_s or now < self._next_at:
            return None
        worker_id = self._next()
        if worker_id is None:
            return None
        is_good = self._check(worker_id)
        self._next_at = now + max(self._every_s, (self._clock() - now) / MOST_SHARE)
        return None if is_good or not worker_id else worker_id

    def _next(self) -> str | None:
        """Whom to look at now; empty: all requests together. None: nobody is idle."""
        workers = self._core.workers
        self._todo = [each for each in self._todo if not each or each in workers] or [*workers, ""]
        for worker_id in self._todo:
            if self._is_idle(worker_id):
                self._todo.remove(worker_id)
                return worker_id
        return None

    def _is_idle(self, worker_id: str) -> bool:
        if worker_id:
            return self._rests(self._core.workers[worker_id])
        return not self._core.num_waiting and all(map(self._rests, self._core.workers.values()))

    @staticmethod
    def _rests(worker: Worker) -> bool:
        return not worker.records and not worker.is_arriving

    def _check(self, worker_id: str) -> bool:
        try:
            core = self._core
            if worker_id:
                check_worker(core.workers[worker_id], core.requests)
            else:
                suspects = core.register.suspects.keys()
                check_requests(core.requests, core.workers, core.queues, suspects, core.level)
        except Exception:  # whatever a table that cannot be runs into
            self.counts[worker_id] += 1
            of = f"the state of worker {worker_id}" if worker_id else "the list of all requests"
            logger.exception("%s contradicts itself", of)
            return False
        return True
