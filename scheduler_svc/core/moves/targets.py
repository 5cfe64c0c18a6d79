"""Who takes requests over: workers of one layout, those with most free places first."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from scheduler_svc.core.moves.desk import HandoffDesk, num_open
from scheduler_svc.core.parts.handoff.eligibility import is_full
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker

MAX_ASKED = 4
"""Targets that are asked for one request: if none of those with most free places has the blocks, it stays (HO22)."""
MAX_LOOKED_AT = 32
"""Requests of one worker that are looked at in one go (HO22)."""
MAX_LOOKED_AT_IN_ALL = 64
"""Requests of all workers together that are looked at in one go: some 5 ms if nobody has room for any."""
Layout = tuple[str, str, bytes, int]


def layout_of(worker: Worker) -> Layout:
    """Workers with the same one, not empty, can go on from each other's blocks (HO1)."""
    info = worker.info
    return (info.model, info.kv_layout, info.identity.key, info.block_size)


def by_layout(workers: Iterable[Worker]) -> dict[Layout, list[Worker]]:
    """Workers that hand over, by layout, in the order given."""
    found: dict[Layout, list[Worker]] = {}
    for worker in workers:
        if worker.info.kv_layout:
            found.setdefault(layout_of(worker), []).append(worker)
    return found


class Targets:
    """Workers of one layout for one look at who is to be handed over."""

    def __init__(self, able: Iterable[Worker], desk: HandoffDesk, *, spares_full: bool) -> None:
        """`spares_full`: a worker whose own requests lack blocks or places takes nothing over."""
        self._desk, self._spares_full = desk, spares_full
        self._queue = sorted((-num_free_places(worker), number, worker) for number, worker in enumerate(able))

    def __len__(self) -> int:
        return len(self._queue)

    def best_for(
        self, request: Request, source: Worker, now: float, fits: Callable[[Worker], bool] | None = None
    ) -> Worker | None:
        """Who has room for `request`, which `source` has, and the most free places: of those that get less than their
        share of the source's hand-offs now, if there are any (HO21). None: none of `MAX_ASKED` has room. `fits`: what
        else is asked of it."""
        desk = self._desk
        second: Worker | None = None
        able = (each for _, _, each in self._queue if each is not source and desk.may_try(source, each, now))
        for worker in islice(able, MAX_ASKED):
            is_spared = self._spares_full and is_full(worker)
            if is_spared or (fits is not None and not fits(worker)):
                continue
            if not desk.has_room(request, source, worker):
                continue
            if num_open(source, worker) < desk.most_per_pair:
                return worker
            second = second or worker
        return second

    def took(self, target: Worker) -> None:
        """One of them has a place fewer."""
        index = next(i for i, (_, _, worker) in enumerate(self._queue) if worker is target)
        _, number, _ = self._queue.pop(index)
        insort(self._queue, (-num_free_places(target), number, target))


def num_free_places(worker: Worker) -> int:
    """Places of its batch that nobody has or is about to have."""
    return worker.limits.max_num_seqs - worker.num_active


class Rotation:
    """Whose turn it is, over several looks of which each has a bound: workers, and requests of each."""

    def __init__(self) -> None:
        self._next = ""
        """Id of the worker to begin with; unknown: the first."""
        self._begin_at: dict[str, int] = {}
        """By worker: how many requests, of those that go first, were looked at in vain."""

    def next_of(self, worker_id: str, slots: Sequence[int], most: int) -> Sequence[int]:
        """Slots of a worker that are to be looked at now, of `slots` in the order in which they go; not more than
        `most`."""
        most = min(most, MAX_LOOKED_AT)
        first = self._begin_at.get(worker_id, 0)
        first = first if first < len(slots) else 0
        self._begin_at[worker_id] = first + most
        return slots[first : first + most]

    def has_begun(self, worker_id: str) -> None:
        """One of them is handed over: the next look begins with the first again."""
        self._begin_at[worker_id] = 0

    def of(self, workers: Mapping[str, Worker]) -> Iterator[Worker]:
        """All of them once. Whoever stops asking has had the last one whole."""
        ids = list(workers)
        self._begin_at = {name: first for name, first in self._begin_at.items() if name in workers}
        first = ids.index(self._next) if self._next in workers else 0
        for number in range(len(ids)):
            self._next = ids[(first + number + 1) % len(ids)]
            yield workers[ids[(first + number) % len(ids)]]
