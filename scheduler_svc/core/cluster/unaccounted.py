"""Requests that a frontend waits for and that nobody here knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.request import Request, RequestKey

MAX_LOST = 512
"""Looked at in one go: what calling one lost costs, its message included, is 16 us (W3)."""
Holders = tuple[Process, ...] | None
"""Processes that may have a request; None: it is not said, and any worker may."""
IsSettled = Callable[[str, Process, float, float], bool]
"""Whether a frontend's requests wait for a process no longer: frontend, process, when it was named, now."""


class _End(NamedTuple):
    """An end that is on its way."""

    attempt: int
    by: Process
    until: float
    """When it should have come, in seconds."""


@dataclass
class _Wait:
    """What one frontend waits for."""

    groups: dict[Holders, dict[str, int]] = field(default_factory=dict)
    """The attempts that it waits for, this one or a newer one, by request id; those of the same holders together."""
    holders: dict[str, Holders] = field(default_factory=dict)
    """By request id: the worker processes that may have the attempt."""
    named_at: dict[Process, float] = field(default_factory=dict)
    """When it named the holders that are not settled, in seconds."""
    ended: dict[str, _End] = field(default_factory=dict)
    """Others that it waits for, by request id, whose ends are on their way."""

    def put(self, request_id: str, attempt: int, holders: Holders) -> None:
        """It waits for the attempt. Who may have one that it waits for already is known."""
        holders = self.holders.setdefault(request_id, holders)
        group = self.groups.setdefault(holders, {})
        group[request_id] = max(attempt, group.get(request_id, 0))

    def attempt_of(self, request_id: str) -> int | None:
        """The attempt of a request that it waits for; None: it waits for none."""
        if request_id not in self.holders:
            return None
        return self.groups[self.holders[request_id]][request_id]

    def remove(self, request_id: str) -> None:
        """It waits for the request no longer."""
        holders = self.holders.pop(request_id)
        group = self.groups[holders]
        del group[request_id]
        if not group:
            del self.groups[holders]

    def doubt(self, is_doubtful: Callable[[_End], bool]) -> None:
        """Ends that will not come, perhaps: nobody has the requests then."""
        for request_id, end in list(self.ended.items()):
            if is_doubtful(end):
                del self.ended[request_id]
                self.put(request_id, end.attempt, ())


class UnaccountedRequests:
    """Requests that frontends wait for and that nobody has. Each is lost once every process that may have it is
    settled (J13): until then one may say hello with it. Of requests that nobody said who may have them, all workers
    have `grace_s` from the start on."""

    def __init__(
        self, grace_s: float, started_at: float, is_settled: IsSettled, end_grace_s: float = 0.0
    ) -> None:
        """`end_grace_s`: how long an end may be on its way."""
        self._anybody_until, self._is_settled = started_at + grace_s, is_settled
        self._end_grace_s = end_grace_s
        self._by_frontend: dict[str, _Wait] = {}
        self.is_cut = False
        """`take_lost` has left some for its next call, which is to come soon."""

    def __len__(self) -> int:
        return sum(len(awaited.holders) for awaited in self._by_frontend.values())

    def is_awaited(self, key: RequestKey) -> bool:
        """A frontend waits for the request already."""
        awaited = self._by_frontend.get(key.frontend_instance)
        return awaited is not None and key.request_id in awaited.holders

    def add(self, key: RequestKey, attempt: int, holders: Holders, now: float) -> None:
        """A frontend waits for this attempt, or a newer one, which these may have."""
        awaited = self._of(key.frontend_instance)
        awaited.ended.pop(key.request_id, None)
        awaited.put(key.request_id, attempt, holders)
        for process in holders or ():
            awaited.named_at.setdefault(process, now)

    def ended(self, key: RequestKey, attempt: int, by: Process, now: float) -> None:
        """A frontend waits for an attempt that this worker has ended: nobody says more of it while that stands. For a
        time only: who has got the end by then does not mind, and who has not must not wait for ever."""
        awaited = self._of(key.frontend_instance)
        if awaited.attempt_of(key.request_id) == attempt:
            awaited.remove(key.request_id)
        awaited.ended[key.request_id] = _End(attempt, by, now + self._end_grace_s)

    def awaited_by(self, frontend_instance: str) -> Iterable[Process]:
        """The processes that requests of a frontend wait for."""
        awaited = self._by_frontend.get(frontend_instance)
        return awaited.named_at.keys() if awaited is not None else ()

    def worker_spoke(
        self, process: Process, now: float, ended: Iterable[tuple[RequestKey, int]] = ()
    ) -> None:
        """A worker said hello, and that these attempts have `ended`. Other processes of its id are gone, with what
        they had ended and not handed over."""
        for awaited in self._by_frontend.values():
            awaited.named_at = {
                each: named_at
                for each, named_at in awaited.named_at.items()
                if each.worker_id != process.worker_id
            }
            awaited.doubt(lambda end: end.by.worker_id == process.worker_id and end.by != process)
        for key, attempt in ended:
            waiting = self._by_frontend.get(key.frontend_instance)
            if waiting is not None and waiting.attempt_of(key.request_id) == attempt:
                self.ended(key, attempt, process, now)

    def worker_went(self, process: Process) -> None:
        """The process is known to be gone."""
        for awaited in self._by_frontend.values():
            awaited.named_at.pop(process, None)
            awaited.doubt(lambda end: end.by == process)

    def forget(self, frontend_instance: str) -> None:
        """Forgets what a frontend waits for that is gone, or says it anew."""
        self._by_frontend.pop(frontend_instance, None)

    def take_lost(
        self, requests: Mapping[RequestKey, Request], are_all_attached: bool, now: float
    ) -> list[tuple[RequestKey, int]]:
        """Forgets those that nobody can have any more, MAX_LOST at most, and names the ones that are not among
        `requests`: they are lost. `are_all_attached`: no worker that is known here is away."""
        lost: list[tuple[RequestKey, int]] = []
        room, self.is_cut = MAX_LOST, False
        may_anybody = not are_all_attached or now < self._anybody_until
        for instance, awaited in self._by_frontend.items():
            awaited.doubt(lambda end: now >= end.until)
            self._settle(instance, awaited, now)
            for holders, group in list(awaited.groups.items()):
                if may_anybody if holders is None else any(each in awaited.named_at for each in holders):
                    continue
                attempts = list(islice(group.items(), room))
                room -= len(attempts)
                self.is_cut = self.is_cut or len(attempts) < len(group)
                for request_id, attempt in attempts:
                    awaited.remove(request_id)
                    key = RequestKey(instance, request_id)
                    known = requests.get(key)
                    if known is None or known.attempt < attempt:
                        lost.append((key, attempt))
        return lost

    def _settle(self, instance: str, awaited: _Wait, now: float) -> None:
        """Forgets the processes that are settled."""
        for process, named_at in list(awaited.named_at.items()):
            if self._is_settled(instance, process, named_at, now):
                del awaited.named_at[process]

    def _of(self, frontend_instance: str) -> _Wait:
        return self._by_frontend.setdefault(frontend_instance, _Wait())
