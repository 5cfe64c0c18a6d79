"""Copies between device and host tier that run beside the steps, group after group, in a thread of their own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from signalbox.runtime.parts import start_thread
from worker_svc.core.batch import ModelRunner
from worker_svc.core.step import Failure, SideCopies

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Group:
    """Copies under one fence that have been begun."""

    fence: int
    copy: Callable[[], None]
    begun: float
    """When it was begun, in seconds of the monotonic clock."""
    ended: threading.Event = field(default_factory=threading.Event)


class SideCopier:
    """Makes groups of copies. What a step may touch meanwhile is the scheduler's business: it was told of a fence."""

    def __init__(self, runner: ModelRunner, on_ended: Callable[[int, Failure | None], None]) -> None:
        """on_ended: called in the copying thread with the fence of each group, and with what went wrong."""
        self._runner = runner
        self._on_ended = on_ended
        self._waiting: queue.SimpleQueue[_Group | None] = queue.SimpleQueue()
        self._open: tuple[_Group, ...] = ()
        """Groups that had not ended when the newest was begun; replaced as a whole, since other threads read it."""
        self._is_closed = False
        self._has_ended = False
        """An error has ended the thread: groups fail when they are begun."""
        # A process that fails does not wait for it: a copy cannot be interrupted.
        self._thread = start_thread("side-copies", self._run, self._ended)

    @property
    def age_s(self) -> float:
        """How long the oldest group has been open; 0 when none is. Any thread may ask."""
        begun = [group.begun for group in self._open if not group.ended.is_set()]
        return time.monotonic() - min(begun) if begun else 0.0

    def begin(self, copies: SideCopies) -> None:
        """Begins with a group behind everything that the runner has been given so far. The step thread calls it."""
        group = _Group(copies.fence, self._prepare(copies), time.monotonic())
        still_open = tuple(other for other in self._open if not other.ended.is_set())
        self._open = (*still_open, group)
        self._waiting.put(group)
        if self._has_ended:
            self._fail_waiting()

    def wait(self) -> None:
        """Waits until all groups have ended, and that was told."""
        for group in self._open:
            group.ended.wait()

    def close(self, timeout_s: float) -> None:
        """Groups that have not begun are dropped; the one that has is waited for, for so long."""
        self._is_closed = True
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def _prepare(self, copies: SideCopies) -> Callable[[], None]:
        """What makes the copies, or fails as the runner just did: a fence ends in one way only."""
        try:
            return self._runner.copies_aside(copies.copies)
        except Exception as error:
            failure = error

        def fail() -> None:
            raise failure

        return fail

    def _run(self) -> None:
        while (group := self._waiting.get()) is not None:
            try:
                if not self._is_closed:
                    self._make(group)
            finally:
                group.ended.set()

    def _ended(self, error: BaseException) -> None:
        self._has_ended = True
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        """Nobody makes these copies: their fences end, and what they were to bring is computed."""
        with suppress(queue.Empty):
            while (group := self._waiting.get_nowait()) is not None:
                try:
                    self._on_ended(
                        group.fence, Failure("InternalError", "nobody makes block copies any more")
                    )
                finally:
                    group.ended.set()

    def _make(self, group: _Group) -> None:
        failure = None
        try:
            group.copy()
        except BaseException as error:  # the content is computed again, or copied within a step
            logger.exception("copies beside the steps failed")
            failure = Failure("InternalError", f"block copies failed ({type(error).__name__}: {error})")
        self._on_ended(group.fence, failure)
