"""Looks at the invariants while there is nothing else to do, so that what cannot be does not last."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scheduler_svc.core.integrity import check_requests, worker_pieces
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_check import state_version

logger = logging.getLogger(__name__)

_DONE = object()
MOST_SHARE = 0.01
"""Largest share of the time that checks may take."""


@dataclass
class _Look:
    """A check of a worker that has begun."""

    worker: Worker
    version: tuple[int, ...]
    """The version of its state when the look began."""
    pieces: Iterator[None]
    took_s: float = 0.0

    def is_valid(self, now: Worker | None) -> bool:
        """Nothing has changed since it began; `now` is the worker of the id."""
        return now is self.worker and state_version(now) == self.version


class IdleCheck:
    """One worker at a time, when it has no step in flight, piece by piece; then all requests together, when nobody
    waits and no step is in flight at all."""

    def __init__(self, core: Scheduler, clock: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        """Violations so far, by worker id; those of the requests together under the empty id."""
        self._core, self._clock = core, clock
        self._every_s = core.config.integrity_check_s
        self._next_at = clock() + self._every_s
        self._todo: list[str] = []
        self._look: _Look | None = None

    def look(self, now: float) -> str | None:
        """Does a piece of a check of an idle worker when it is time; to be called a few times a second. Returns the
        worker, if any, whose state contradicts itself: it is to be asked for its snapshot."""
        if not self._every_s or now < self._next_at:
            return None
        look, self._look = self._look, None
        if look is None:
            worker_id = self._next()
            if worker_id is None:
                return None
            if not worker_id:
                self._check("", self._check_requests)
                self._rest(now, self._clock() - now)
                return None
            worker = self._core.workers[worker_id]
            look = _Look(worker, state_version(worker), worker_pieces(worker, self._core.requests))
        return self._go_on(look, now)

    def _go_on(self, look: _Look, now: float) -> str | None:
        """Another piece; a look whose worker has changed is given up."""
        worker_id = look.worker.info.worker_id
        worker = self._core.workers.get(worker_id)
        if not look.is_valid(worker) or not self._is_idle(worker_id):
            self._todo.append(worker_id)
            self._rest(now, look.took_s)
            return None
        is_done = True

        def do_piece() -> None:
            nonlocal is_done
            is_done = next(look.pieces, _DONE) is _DONE

        is_good = self._check(worker_id, do_piece)
        look.took_s += self._clock() - now
        if is_done:
            self._rest(now, look.took_s)
        else:
            self._look = look
        return None if is_good else worker_id

    def _rest(self, now: float, took_s: float) -> None:
        self._next_at = now + max(self._every_s, took_s / MOST_SHARE)

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

    def _check_requests(self) -> None:
        core, suspects = self._core, self._core.register.suspects.keys()
        check_requests(core.requests, core.workers, core.queues, suspects, core.level)

    def _check(self, worker_id: str, check: Callable[[], None]) -> bool:
        try:
            check()
        except Exception:  # whatever a table that cannot be runs into
            self.counts[worker_id] += 1
            of = f"the state of worker {worker_id}" if worker_id else "the list of all requests"
            logger.exception("%s contradicts itself", of)
            return False
        return True
