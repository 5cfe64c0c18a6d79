"""Requests that a frontend waits for and that nobody here knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from scheduler_svc.core.liveness.evidence import Process
from scheduler_svc.core.request import Request, RequestKey

MAX_LOST = 512
"""Looked at in one go: what calling one lost costs, its message included, is 16 us (W3)."""


class _End(NamedTuple):
    """An end that is on its way."""

    attempt: int
    by: Process
    until: float
    """When it should have come, in seconds."""


@dataclass
class _Wait:
    """What one frontend waits for."""

    attempts: dict[str, int] = field(default_factory=dict)
    """The attempts that it waits for, by request id: this attempt, or a newer one."""
    ended: dict[str, _End] = field(default_factory=dict)
    """Others that it waits for, by request id, whose ends are on their way."""
    has_named: bool = False
    """Whether the frontend said which workers may have them."""
    awaited_workers: set[str] = field(default_factory=set)
    """Workers that it named, and that have not been heard of since."""
    until: float = 0.0
    """Until when workers may say hello with them, in seconds."""
    heard_until: float = 0.0
    """Until when those workers may that the frontend hears, in seconds."""

    def doubt(self, is_doubtful: Callable[[_End], bool]) -> None:
        """Ends that will not come, perhaps: the attempts are waited for like others."""
        for request_id, end in list(self.ended.items()):
            if is_doubtful(end):
                del self.ended[request_id]
                self.attempts[request_id] = max(end.attempt, self.attempts.get(request_id, 0))


class UnaccountedRequests:
    """Requests that frontends wait for and that nobody has. They are lost once every worker that could have them has
    spoken: one may still say hello with them. Their frontend names the workers that could; while they have not come
    a time runs, and no longer than that. It is longer for those that the frontend hears: they live, and look for a
    scheduler."""

    def __init__(
        self,
        grace_s: float,
        started_at: float,
        heard_grace_s: float = 0.0,
        may_hear: Callable[[str, str], bool] = lambda frontend, worker_id: False,
    ) -> None:
        """`grace_s`: how long workers may take to say hello, from the start on or from when they were named;
        `heard_grace_s`: the same for those that the frontend hears, by `may_hear`, if that is longer."""
        self._grace_s, self._started_at = grace_s, started_at
        self._heard_grace_s, self._may_hear = max(grace_s, heard_grace_s), may_hear
        self._by_frontend: dict[str, _Wait] = {}
        self.is_cut = False
        """`take_lost` has left some for its next call, which is to come soon."""

    def __len__(self) -> int:
        return sum(len(awaited.attempts) for awaited in self._by_frontend.values())

    def add(self, key: RequestKey, attempt: int) -> None:
        """A frontend waits for this attempt, or a newer one."""
        awaited = self._of(key.frontend_instance)
        awaited.attempts[key.request_id] = max(attempt, awaited.attempts.get(key.request_id, 0))
        awaited.ended.pop(key.request_id, None)

    def ended(self, key: RequestKey, attempt: int, by: Process, now: float) -> None:
        """A frontend waits for an attempt that this worker has ended: nobody says more of it while that stands. For a
        time only: who has got the end by then does not mind, and who has not must not wait for ever."""
        awaited = self._of(key.frontend_instance)
        if awaited.attempts.get(key.request_id) == attempt:
            del awaited.attempts[key.request_id]
        awaited.ended[key.request_id] = _End(attempt, by, now + self._heard_grace_s)

    def name_workers(self, frontend_instance: str, unknown: Iterable[str], now: float) -> None:
        """A frontend that says hello has named the workers that may have requests of it; `unknown` are those of them
        that are not known here."""
        awaited = self._of(frontend_instance)
        awaited.has_named, awaited.awaited_workers = True, set(unknown)
        awaited.until, awaited.heard_until = now + self._grace_s, now + self._heard_grace_s

    def worker_spoke(
        self, process: Process, now: float, ended: Iterable[tuple[RequestKey, int]] = ()
    ) -> None:
        """A worker said hello, and that these attempts have `ended`. What another process in its place had ended and
        not handed over is gone with that."""
        self._let_go(process.worker_id, process)
        for key, attempt in ended:
            waiting = self._by_frontend.get(key.frontend_instance)
            if waiting is not None and waiting.attempts.get(key.request_id) == attempt:
                self.ended(key, attempt, process, now)

    def worker_went(self, worker_id: str) -> None:
        """The worker is known to be gone, and nobody is in its place."""
        self._let_go(worker_id, None)

    def _let_go(self, worker_id: str, successor: Process | None) -> None:
        for awaited in self._by_frontend.values():
            awaited.awaited_workers.discard(worker_id)
            awaited.doubt(lambda end: end.by.worker_id == worker_id and end.by != successor)

    def forget_ended(self, frontend_instance: str) -> None:
        """A frontend says anew what it waits for."""
        if (awaited := self._by_frontend.get(frontend_instance)) is not None:
            awaited.ended.clear()

    def forget(self, frontend_instance: str) -> None:
        """Forgets what a frontend that is gone waits for."""
        self._by_frontend.pop(frontend_instance, None)

    def take_lost(
        self, requests: Mapping[RequestKey, Request], are_all_attached: bool, now: float
    ) -> list[tuple[RequestKey, int]]:
        """Forgets those whose workers have all spoken, MAX_LOST at most, and names the ones that are not among
        `requests`: they are lost. `are_all_attached`: no worker that is known here is away."""
        lost: list[tuple[RequestKey, int]] = []
        room, self.is_cut = MAX_LOST, False
        if not self._by_frontend or not are_all_attached:
            return lost
        for instance, awaited in self._by_frontend.items():
            awaited.doubt(lambda end: now >= end.until)
            if not awaited.attempts or not self._is_settled(instance, awaited, now):
                continue
            attempts = list(islice(awaited.attempts.items(), room))
            room -= len(attempts)
            self.is_cut = self.is_cut or len(attempts) < len(awaited.attempts)
            for request_id, attempt in attempts:
                del awaited.attempts[request_id]
                key = RequestKey(instance, request_id)
                known = requests.get(key)
                if known is None or known.attempt < attempt:
                    lost.append((key, attempt))
        return lost

    def _is_settled(self, instance: str, awaited: _Wait, now: float) -> bool:
        if awaited.has_named and now < awaited.until:
            return not awaited.awaited_workers
        if awaited.has_named and now < awaited.heard_until:
            return not any(self._may_hear(instance, worker_id) for worker_id in awaited.awaited_workers)
        return awaited.has_named or now >= self._started_at + self._grace_s

    def _of(self, frontend_instance: str) -> _Wait:
        return self._by_frontend.setdefault(frontend_instance, _Wait())
