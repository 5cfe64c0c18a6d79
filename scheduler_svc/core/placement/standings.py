"""What placement compares of the workers: load and room, as columns. Only workers that have changed are read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import WorkerRole

NO_ROOM = -1
"""Room of a worker where nothing could start now: no place, no slot, or others of its own go first."""
Mask = NDArray[np.bool_]


class _Kind(NamedTuple):
    """Workers of one model that serve requests of one kind, whatever their state."""

    serves: Mask
    longest: int
    """Most known tokens of a request that all of them could run."""


class Standings:
    """Columns over all workers of one scheduler, `[workers]` in the order of its mapping.

    Whatever changes load, room or state of a worker stores its id in `changed`, or calls `forget`. One that does not
    costs a worse choice until the next tick, never a wrong state: before a request is left to a worker, that worker
    itself is looked at.
    """

    def __init__(self, workers: Mapping[str, Worker], watermark: int) -> None:
        """`watermark`: blocks left free per active request (`watermark_blocks_per_seq`)."""
        self._workers_by_id, self._watermark = workers, watermark
        self.changed: dict[str, None] = {}
        """Ids of workers to be read again."""
        self._is_known = False
        """False: all workers are to be read again, in case some came or went."""

    def forget(self) -> None:
        """Any worker may have changed, come or gone."""
        self._is_known = False

    def refresh(self) -> bool:
        """Reads what has changed. Returns whether anything was read."""
        if not self._is_known:
            self._read_all()
            return True
        if not self.changed:
            return False
        for worker_id in self.changed:
            index = self.index_of.get(worker_id)
            if index is None or self.workers[index] is not self._workers_by_id.get(worker_id):
                self._read_all()
                return True
            self._read(index)
        self.changed.clear()
        return True

    def _read_all(self) -> None:
        self.workers = list(self._workers_by_id.values())
        self.index_of = {worker.info.worker_id: index for index, worker in enumerate(self.workers)}
        size = len(self.workers)
        self.load, self.room = np.zeros(size, np.int64), np.zeros(size, np.int64)
        """Requests that run or will; tokens of the longest request that could start now, at least NO_ROOM."""
        self.takes_new, self.may_prepare, self.decodes, self.is_open = (
            np.zeros(size, np.bool_) for _ in range(4)
        )
        """May get requests; may get one with a grammar; has the role `decode`; steps in flight leave room for another
        one."""
        self._idle: set[int] = set()
        """Indexes of those that have no step in flight: few while much is to do."""
        self.hold_until = np.zeros(size)
        """No step is sent before that time, for the sake of what arrives."""
        self.unheard = set[str]().union(*(worker.vitals.unheard_by for worker in self.workers))
        """Instances of frontends that do not hear some worker."""
        self.identities = {worker.info.identity.key for worker in self.workers}
        names = {(worker.table.identity, worker.info.block_size) for worker in self.workers}
        self.is_uniform = len(names) <= 1
        """All of them use the same names for blocks."""
        self._kinds: dict[tuple[str, bool], _Kind] = {}
        for index in range(size):
            self._read(index)
        self.changed.clear()
        self._is_known = True

    def _read(self, index: int) -> None:
        worker = self.workers[index]
        self.load[index], self.room[index] = worker.load, num_startable_tokens(worker, self._watermark)
        self.takes_new[index], self.may_prepare[index] = worker.takes_new, worker.may_prepare
        self.decodes[index] = worker.role is WorkerRole.DECODE
        self.is_open[index] = worker.is_open
        if worker.records:
            self.hold_until[index] = worker.hold_until
            self._idle.discard(index)
        else:
            self.hold_until[index] = 0.0
            self._idle.add(index)
        self.unheard |= worker.vitals.unheard_by

    def is_true(self, worker_id: str) -> bool:
        """What is known of the worker is so. Else it is to be read again."""
        index = self.index_of[worker_id]
        worker = self.workers[index]
        is_true = (
            self.load[index] == worker.load
            and self.room[index] == num_startable_tokens(worker, self._watermark)
            and self.takes_new[index] == worker.takes_new
            and self.is_open[index] == worker.is_open
            and self.may_prepare[index] == worker.may_prepare
            and self.decodes[index] == (worker.role is WorkerRole.DECODE)
            and worker.vitals.unheard_by <= self.unheard
        )
        if not is_true:
            self.changed[worker_id] = None
        return bool(is_true)

    def open_ids(self, now: float) -> list[str]:
        """Workers that may get a step now."""
        self.refresh()
        return self._ids(np.flatnonzero(self.is_open & (self.hold_until <= now)).tolist())

    def idle_ids(self) -> list[str]:
        """Workers that have no step in flight."""
        self.refresh()
        return self._ids(sorted(self._idle)) if self._idle else []

    def _ids(self, indexes: Iterable[int]) -> list[str]:
        return [self.workers[index].info.worker_id for index in indexes]

    def is_usual(self, request: Request) -> bool:
        """All workers that serve its model and kind could run it."""
        is_short = request.num_known_tokens <= self.longest(request.model, is_pooling=request.is_pooling)
        return is_short and request.key.frontend_instance not in self.unheard

    def serving(self, request: Request) -> Mask:
        """Workers that serve its model and kind, and take something new."""
        return self._kind(request.model, request.is_pooling).serves & self.takes_new

    def longest(self, model: str, *, is_pooling: bool) -> int:
        """Most known tokens of a request that all workers which serve that model and kind could run."""
        return self._kind(model, is_pooling).longest

    def _kind(self, model: str, is_pooling: bool) -> _Kind:
        key = (model, is_pooling)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._kind_of(*key)
        return kind

    def _kind_of(self, model: str, is_pooling: bool) -> _Kind:
        infos = [worker.info for worker in self.workers]
        does = [info.serves_pooling if is_pooling else info.serves_generation for info in infos]
        serves = np.array(
            [info.model == model and each for info, each in zip(infos, does, strict=True)], np.bool_
        )
        longest = [self.workers[index].max_known_tokens(is_pooling) for index in np.flatnonzero(serves)]
        return _Kind(serves, min(longest, default=0))


def num_startable_tokens(worker: Worker, watermark: int) -> int:
    """Known tokens of the longest request that could start on `worker` now; NO_ROOM: none could."""
    table, num_active = worker.table, worker.num_active
    if num_active >= worker.limits.max_num_seqs or not table.num_free_slots or table.has_waiting:
        return NO_ROOM
    num_blocks = worker.pool.num_available - watermark * num_active
    return max(num_blocks * worker.info.block_size, NO_ROOM)
