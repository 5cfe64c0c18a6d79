"""Requests that a scheduler has found half handed over: they run nowhere until the other end has spoken (HO9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.request import Request, RequestKey
from scheduler_svc.core.state.worker import Worker


@dataclass
class Wait:
    """One of them, with the end that has said hello."""

    request: Request
    worker: Worker = field(repr=False)
    other: Process
    """The other end."""
    transfer: int
    is_import: bool
    """The request has come here, all of it; else it is frozen here."""
    until: float
    """When the other end counts as gone if it has not come, in seconds."""


class HandoffWaits:
    """All of them, by request."""

    def __init__(
        self,
        grace_s: float,
        workers: Mapping[str, Worker],
        register: Register,
        thaw: Callable[[Request, Worker], None],
        commit: Callable[[Request, Worker], None],
        has_gone: Callable[[str, Process, float], bool],
    ) -> None:
        """`grace_s`: how long an end is waited for that nobody here has met, unless it `has_gone` by what others say
        (`Settlement`). `thaw` lets a frozen request go on, `commit` one that has come."""
        self._grace_s, self._workers, self._register = grace_s, workers, register
        self._has_gone = has_gone
        self._thaw, self._commit = thaw, commit
        self.by_key: dict[RequestKey, Wait] = {}

    def add(
        self, request: Request, worker: Worker, other: Process, transfer: int, *, is_import: bool, now: float
    ) -> None:
        """`request`, in a slot of `worker` that was frozen, is the other end's, or `worker`'s: that one has to say."""
        until = now + self._grace_s
        self.by_key[request.key] = Wait(request, worker, other, transfer, is_import, until)

    def of(self, request: Request) -> Wait | None:
        """What `request` waits for; None: nothing."""
        wait = self.by_key.get(request.key)
        return wait if wait is not None and wait.request is request else None

    def spoke(self, worker: Worker, now: float) -> None:
        """`worker` has said hello, and all that it has is known."""
        for wait in list(self.by_key.values()):
            if wait.other.worker_id == worker.info.worker_id or wait.worker is worker:
                self._look(wait, now)

    def gone(self, process: Process, now: float) -> None:
        """The process does not come back."""
        for wait in [wait for wait in self.by_key.values() if wait.other == process]:
            self._end(wait)

    def tick(self, now: float) -> None:
        """Ends those whose other end has gone, or whose time has passed."""
        for wait in list(self.by_key.values()):
            self._look(wait, now)

    def _look(self, wait: Wait, now: float) -> None:
        other = self._workers.get(wait.other.worker_id)
        is_known = other is not None and not other.is_arriving
        has_spoken = is_known and (other.attached or other.process != wait.other)  # type: ignore[union-attr]
        if has_spoken or (other is None and self._is_over(wait, now)):
            self._end(wait)

    def _is_over(self, wait: Wait, now: float) -> bool:
        frontend = wait.request.key.frontend_instance
        return now >= wait.until or self._has_gone(frontend, wait.other, now)

    def _end(self, wait: Wait) -> None:
        """The other end does not have it: it is ours."""
        request, worker = wait.request, wait.worker
        current = self._workers.get(worker.info.worker_id)
        if current is not None and current.is_arriving:
            return  # it is being adopted once more, and is looked at then
        del self.by_key[request.key]
        if current is not worker:
            return  # it has gone, or has said hello without the request
        if self._register.requests.get(request.key) is not request or not worker.table.holds(request):
            return
        assert request.slot is not None
        if wait.is_import:
            worker.table.thaw(request.slot)
            self._commit(request, worker)
        else:
            self._thaw(request, worker)
