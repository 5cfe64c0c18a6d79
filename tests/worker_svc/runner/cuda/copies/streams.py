"""Stands in for the two streams of a GPU: work is done late, in any order that the marks allow."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker_svc.runner.cuda.copies.order import Mark, Work

STEPS, COPIES = range(2)


@dataclass(frozen=True)
class QueueMark:
    """Behind so much of what a stream was given."""

    streams: LateStreams
    stream: int
    count: int

    def synchronize(self) -> None:
        """See `Mark`."""
        self.streams.reach(self)


class LateStreams:
    """An `Order`. Nothing is done before somebody waits for it, or `stir` happens to do it."""

    def __init__(self, seed: int = 0, *, steps_at_once: bool = False) -> None:
        """steps_at_once: the steps' stream is a CPU, which is done when it returns; the copies' stream stays late."""
        self._random, self._steps_at_once = random.Random(seed), steps_at_once
        self._given: tuple[list[tuple[Work, Sequence[QueueMark]]], ...] = ([], [])
        self._num_done = [0, 0]
        self._lock = threading.RLock()
        self.is_planted = False
        """A fault that was planted is there: not while a memory is made, which would find it."""
        self.num_waits = 0
        """Work beside the steps that had to wait for them."""

    def mark(self) -> Mark:
        """See `Order`."""
        return QueueMark(self, STEPS, len(self._given[STEPS]))

    def run(self, work: Work) -> None:
        """See `Order`."""
        with self._lock:
            self._given[STEPS].append((work, ()))
            if self._steps_at_once:
                self._reach(STEPS, len(self._given[STEPS]))

    def run_aside(self, work: Work, after: Sequence[Mark]) -> Mark:
        """See `Order`."""
        marks = [mark for mark in after if isinstance(mark, QueueMark)]
        assert len(marks) == len(after), "marks are of this order"
        with self._lock:
            self._given[COPIES].append((work, marks))
            self.num_waits += any(self._num_done[mark.stream] < mark.count for mark in marks)
            return QueueMark(self, COPIES, len(self._given[COPIES]))

    def reach(self, mark: QueueMark) -> None:
        """Does what is ahead of a mark, and what that waits for."""
        with self._lock:
            self._reach(mark.stream, mark.count)

    def stir(self) -> None:
        """Does some of what may be done now."""
        with self._lock:
            for _ in range(self._random.randrange(4)):
                stream = self._random.choice((STEPS, COPIES))
                if self._num_done[stream] < len(self._given[stream]) and not self._obstacles(stream):
                    self._do(stream)

    def drain(self) -> None:
        """Does all of it."""
        for stream in (STEPS, COPIES):
            self.reach(QueueMark(self, stream, len(self._given[stream])))

    def _reach(self, stream: int, count: int) -> None:
        while self._num_done[stream] < count:
            for mark in self._obstacles(stream):
                self._reach(mark.stream, mark.count)
            self._do(stream)

    def _obstacles(self, stream: int) -> list[QueueMark]:
        _, marks = self._given[stream][self._num_done[stream]]
        return [mark for mark in marks if self._num_done[mark.stream] < mark.count]

    def _do(self, stream: int) -> None:
        work, _ = self._given[stream][self._num_done[stream]]
        self._num_done[stream] += 1
        work()


class UnorderedStreams(LateStreams):
    """Planted: copies wait for no step."""

    def run_aside(self, work: Work, after: Sequence[Mark]) -> Mark:
        """See `Order`."""
        return super().run_aside(work, () if self.is_planted else after)


class _EarlyMark:
    def synchronize(self) -> None:
        """Waits for nothing."""


class EarlyStreams(LateStreams):
    """Planted: what runs beside the steps is said to have ended when it has begun."""

    def run_aside(self, work: Work, after: Sequence[Mark]) -> Mark:
        """See `Order`."""
        mark = super().run_aside(work, after)
        return _EarlyMark() if self.is_planted else mark


MakeStreams = Callable[[int], LateStreams]
