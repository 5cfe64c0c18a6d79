"""Which worker takes which waiting request: where its prefix is cached, else where the fewest run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from scheduler_svc.core.admission.continuation import Continuation
from scheduler_svc.core.placement.cached_prefix import find_best_prefix
from scheduler_svc.core.placement.prompts import leaves_prompt
from scheduler_svc.core.placement.rivals import Rivals
from scheduler_svc.core.placement.standings import NO_ROOM, Mask, Standings
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import WorkerRole

LOOKAHEAD = 8
"""Waiting requests that a worker may leave to others before it looks no further: bounds the work of a step."""
FEWER = 2
"""Requests that a worker has to have fewer to be waited for."""


class _Rooms(NamedTuple):
    """Room at others, for plain requests: known tokens of the longest that could start there, at least NO_ROOM."""

    open: int
    """Room at a worker that has fewer requests, and may get a step now."""
    fewer: int
    """Room at a worker that has `FEWER` requests fewer."""


class Choice:
    """The choices of one worker, whose step is being built. Other workers do not change meanwhile, but for blocks that
    they show to it."""

    def __init__(
        self,
        worker: Worker,
        config: SchedulerConfig,
        standings: Standings,
        continuation: Continuation,
        now: float,
    ) -> None:
        self._worker, self._config, self._now = worker, config, now
        self._standings, self._continuation = standings, continuation
        self._usual: dict[bool, Rivals] = {}
        """Rivals for requests that all workers of their model could run, by whether they are pooling requests."""
        self._looked_at: set[str] = set()
        """Rivals that have been found, and whose standings are true."""
        self._plain_tokens = NO_ROOM
        """Known tokens of the longest plain request."""
        self._rooms: _Rooms | None = None
        """What plain requests are compared with; None: not known since the worker took the last request."""

    def candidates(self, waiting: Iterable[Request]) -> Iterator[Request]:
        """The waiting requests that the worker should take, in order. After `LOOKAHEAD` requests that it leaves to
        others it looks no further."""
        left = 0
        self._refresh()
        self._plain_tokens = self._find_plain_tokens()
        for request in waiting:
            if not self._is_plain(request) and not self._may_run(request):
                continue
            if self._should_take(request):
                yield request
                self._rooms = None
                continue
            left += 1
            if left >= LOOKAHEAD:
                return

    def _may_run(self, request: Request) -> bool:
        worker = self._worker
        return worker.can_run(request) and self._continuation.may_take(worker, request, self._now)

    def _should_take(self, request: Request) -> bool:
        if self._is_plain(request) and self._is_cached_nowhere(request):
            return not self._leaves_plain(request)
        is_prompt = not request.is_pooling
        if is_prompt and self._worker.role is WorkerRole.DECODE:
            others_have_room = self._has_room(request, computing=True)
            if leaves_prompt(self._worker.role, others_have_room=others_have_room):
                return False
            is_prompt = False  # it competes with all
        rivals = self._rivals(request, computing=is_prompt)
        if not len(rivals):
            return True
        preferred = self._preferred(rivals, request)
        if preferred is not None:
            return preferred is self._worker
        load = self._worker.load
        if self._has_room(request, load - 1, computing=is_prompt, is_open=True):
            return False
        if not self._may_wait(request) or not self._has_room(request, load - FEWER, computing=is_prompt):
            return True
        return not self._waits_for_fewer(request)

    def _may_wait(self, request: Request) -> bool:
        """The time in which workers with fewer requests are waited for is not over."""
        until = request.affinity.balanced_until
        return until is None or self._now < until

    def _waits_for_fewer(self, request: Request) -> bool:
        """Somebody has steps enough in flight, and so many fewer requests that it is waited for, for a short time: else
        whoever is asked first takes all that comes at once."""
        affinity = request.affinity
        if affinity.balanced_until is None:
            affinity.balanced_until = self._now + self._config.balance_wait_ms / 1e3
        return self._now < affinity.balanced_until

    def _preferred(self, rivals: Rivals, request: Request) -> Worker | None:
        """The worker that has most of the prompt cached, while waiting for it is worth while. The prefix is searched
        once per request, though the caches may change while the request waits."""
        config, affinity = self._config, request.affinity
        if not self._may_be_cached(request):
            return None
        if affinity.until is None:
            affinity.until = self._now + config.affinity_wait_ms / 1e3
            workers, is_uniform = [self._worker, *rivals.members], self._standings.is_uniform
            best = find_best_prefix(workers, request, config.affinity_min_tokens, is_uniform=is_uniform)
            affinity.worker_id = best.info.worker_id if best is not None else None
        if not affinity.holds(self._now):
            affinity.worker_id = None
            return None
        is_own = affinity.worker_id == self._worker.info.worker_id
        affinity.num_times_left += not is_own
        return self._worker if is_own else rivals.named(affinity.worker_id)

    def _may_be_cached(self, request: Request) -> bool:
        return bool(
            request.block_hashes and self._config.enable_prefix_caching and not request.needs_every_position
        )

    # -- plain requests: nothing but their length tells them apart --

    def _find_plain_tokens(self) -> int:
        """Known tokens of the longest plain request; NO_ROOM: none is plain for this worker."""
        worker, info = self._worker, self._worker.info
        if worker.role is WorkerRole.DECODE or not info.serves_generation:
            return NO_ROOM
        if self._standings.unheard or worker.vitals.unheard_by:
            return NO_ROOM
        longest = self._standings.longest(info.model, is_pooling=False)
        return min(longest, worker.max_known_tokens(is_pooling=False))

    def _is_plain(self, request: Request) -> bool:
        """Each worker that serves its model could run it: a prompt that no grammar nor earlier output binds."""
        is_bound = request.output_identity or request.has_grammar or request.is_pooling
        return request.num_known_tokens <= self._plain_tokens and not is_bound

    def _is_cached_nowhere(self, request: Request) -> bool:
        """No worker is preferred for what it has cached of the plain request, and none is to be looked for."""
        affinity = request.affinity
        return affinity.worker_id is None and (affinity.until is not None or not self._may_be_cached(request))

    def _leaves_plain(self, request: Request) -> bool:
        """As `_should_take`, with rooms that are looked up once for all requests between two that are taken."""
        rooms = self._rooms
        if rooms is None:
            load = self._worker.load
            open_room = self._room(request, load - 1, computing=True, is_open=True)
            rooms = self._rooms = _Rooms(open_room, self._room(request, load - FEWER, computing=True))
        num_tokens = request.num_known_tokens
        if num_tokens <= rooms.open:
            return True
        return num_tokens <= rooms.fewer and self._waits_for_fewer(request)

    # -- others --

    def _has_room(
        self,
        request: Request,
        most_load: int | None = None,
        *,
        computing: bool = False,
        is_open: bool = False,
    ) -> bool:
        """A rival that has `most_load` or less could start the request."""
        return request.num_known_tokens <= self._room(
            request, most_load, computing=computing, is_open=is_open
        )

    def _room(
        self,
        request: Request,
        most_load: int | None = None,
        *,
        computing: bool = False,
        is_open: bool = False,
    ) -> int:
        """Known tokens of the longest request of the kind of `request` that a rival with `most_load` or less could
        start (None: any rival); NO_ROOM: there is none. Whoever has that room is looked at itself, for what changed it
        may have said nothing."""
        for _ in self._standings.workers:
            rivals = self._rivals(request, computing=computing)
            room, other = rivals.most_room(most_load, is_open=is_open, has_grammar=request.has_grammar)
            if other is None or self._is_known(other):
                return room
            self._refresh()
        return NO_ROOM

    def _is_known(self, other: Worker) -> bool:
        """The standing of `other` is what it is now. It is looked at once."""
        name = other.info.worker_id
        if name in self._looked_at:
            return True
        self._looked_at.add(name)
        return self._standings.is_true(name)

    def _refresh(self) -> None:
        if self._standings.refresh():
            self._usual.clear()
            self._rooms = None

    def _rivals(self, request: Request, *, computing: bool) -> Rivals:
        """Others that may run the request; `computing`: those whose role is not `decode`."""
        is_usual = self._standings.is_usual(request) and not self._is_foreign(request)
        rivals = self._usual.get(request.is_pooling) if is_usual else None
        if rivals is None:
            rivals = Rivals(self._standings, self._chosen(request, is_usual=is_usual))
            if is_usual:
                self._usual[request.is_pooling] = rivals
        return rivals.computing if computing else rivals

    def _is_foreign(self, request: Request) -> bool:
        """Another identity than that of all workers, or of some, has made its output."""
        origin = request.output_identity
        return bool(origin) and self._standings.identities != {origin}

    def _chosen(self, request: Request, *, is_usual: bool) -> Mask:
        chosen = self._standings.serving(request)
        own = self._standings.index_of.get(self._worker.info.worker_id)
        if own is not None:
            chosen[own] = False
        if not is_usual:
            chosen &= self._able(request)
        return chosen

    def _able(self, request: Request) -> Mask:
        """Who could run the request, and may go on with its output, worker by worker."""
        may_take: dict[bytes, bool] = {}
        able = []
        for worker in self._standings.workers:
            key = worker.info.identity.key
            if key not in may_take:
                may_take[key] = self._continuation.may_take(worker, request, self._now)
            able.append(may_take[key] and worker.can_run(request))
        return np.array(able, np.bool_)
