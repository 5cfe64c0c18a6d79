"""Threads that make masks beside the steps (docs/design.md, G6 and G10 to G14)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from signalbox.runtime.parts import start_thread
from worker_svc.core.requests.masks import MaskJob, MaskMaker

DEFAULT_THREADS = 2
"""One for the masks that the step waits for, and one for those made ahead."""
GRACE_S = 0.02
"""Longest that a step waits for masks behind its model: what ordinary schemas take for a full batch. The costliest mask
that the limits allow takes as long, but not every step can wait so long."""
GRACE_SHARE = 0.1
"""Most of the time that goes to such waits, however many masks are late: so much longer steps become at most."""
CLOSE_S = 5.0
"""Longest that an end waits for the masks that are being made."""
HELP_S = 0.001
"""A step that has waited so long has another thread help: one makes a batch of ordinary masks for less CPU time."""
PACE_S = 0.01
"""Longest that an empty step lasts while masks are being made: as long as a short step with rows."""


class Grace:
    """How long steps may still wait for masks; by a clock that is passed in."""

    def __init__(self, now: float) -> None:
        self._left_s, self._at = GRACE_S, now

    def begin(self, now: float) -> float:
        """A wait begins. Returns how long it may be."""
        self._left_s = min(GRACE_S, self._left_s + GRACE_SHARE * (now - self._at))
        self._at = now
        return self._left_s

    def end(self, now: float) -> None:
        """The wait ended."""
        self._left_s = max(self._left_s - (now - self._at), 0.0)
        self._at = now


class MaskQueue:
    """Jobs that wait. Accounts take turns; the jobs of one account are in the order of arrival."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[int, deque[MaskJob]] = OrderedDict()
        """None is empty; the first one is next."""

    def __bool__(self) -> bool:
        return bool(self._accounts)

    def put(self, job: MaskJob) -> None:
        """Adds a job."""
        self._accounts.setdefault(job.account, deque()).append(job)

    def take(self) -> MaskJob:
        """Removes the next job, of those that there are."""
        account, jobs = self._accounts.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self._accounts[account] = jobs
        return job


class MaskPool:
    """A `MaskMaker` of some threads. The library lets other threads run while it makes a
    mask. Masks that a step waits for are made first, and one thread makes no others if there are two or more."""

    def __init__(
        self, num_threads: int = DEFAULT_THREADS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        lock = threading.Lock()
        self._work, self._done = threading.Condition(lock), threading.Condition(lock)
        self._urgent, self._ahead = MaskQueue(), MaskQueue()
        self._num_ahead, self._most_ahead = 0, max(num_threads - 1, 1)
        """Jobs made ahead that are being made, and how many may be at a time."""
        self._is_closed = False
        self._wanted: set[MaskJob] = set()
        """What the step thread waits for, without the jobs that are done."""
        self._num_left = 0
        """It goes on when so many of them are left."""
        self._threads: list[threading.Thread] = []
        self._clock, self._grace = clock, Grace(clock())
        for number in range(num_threads):
            self._threads.append(start_thread(f"masks-{number}", self._run))

    def begin(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.begin`."""
        with self._work:
            for job in jobs:
                job.is_begun = True
                (self._ahead if job.is_ahead else self._urgent).put(job)
            self._work.notify(bool(self._urgent) + bool(self._ahead))

    def wait(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.wait`: for as long as is left of the steps' grace."""
        self._wait(jobs, 0, self._grace.begin(self._clock()))
        self._grace.end(self._clock())

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.wait_for_one`."""
        self._wait(jobs, len(jobs) - 1, PACE_S)

    def close(self) -> None:
        """Drops what has not begun, and waits for the rest: the library must not return to an interpreter that has
        ended. May be called again."""
        with self._work:
            self._is_closed = True
            self._work.notify_all()
        until = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))

    # -- inside --

    def _wait(self, jobs: Sequence[MaskJob], num_left: int, most_s: float) -> None:
        """Until no more than `num_left` of the jobs are not done."""
        with self._done:
            self._wanted = {job for job in jobs if not job.is_done}
            self._num_left = num_left
            until = time.monotonic() + most_s
            if not self._done.wait_for(self._has_come, min(most_s, HELP_S)):
                self._work.notify_all()
                self._done.wait_for(self._has_come, until - time.monotonic())
            self._wanted = set()

    def _has_come(self) -> bool:
        return len(self._wanted) <= self._num_left

    def _run(self) -> None:
        job: MaskJob | None = None
        while (job := self._next(job)) is not None:
            try:
                job.run()
            except (
                BaseException
            ) as error:  # a panic of the library: this request fails, and the thread goes on
                job.fail(error)

    def _next(self, made: MaskJob | None) -> MaskJob | None:
        """The next job, when there is one; None: the pool is closed. made: the thread's last one."""
        with self._work:
            if made is not None:
                self._end(made)
            while not self._is_closed:
                if self._urgent:
                    job = self._urgent.take()
                elif self._may_work_ahead:
                    job = self._ahead.take()
                else:
                    self._work.wait()
                    continue
                if not job.is_dropped:
                    if job.is_ahead:
                        self._num_ahead += 1
                        if self._may_work_ahead:
                            self._work.notify()
                    return job
            return None

    @property
    def _may_work_ahead(self) -> bool:
        return bool(self._ahead) and self._num_ahead < self._most_ahead

    def _end(self, job: MaskJob) -> None:
        job.finish()
        if job.is_ahead:
            self._num_ahead -= 1
            if self._may_work_ahead:
                self._work.notify()
        if job in self._wanted:
            self._wanted.remove(job)
            if self._has_come():
                self._done.notify()


class MaskWaits:
    """A `MaskMaker` that has another one make the masks, and measures how long the step thread waits, so that no
    judgement of the worker's pace counts it (docs/liveness.md, E7, E8)."""

    def __init__(self, maker: MaskMaker, clock: Callable[[], float]) -> None:
        self._maker, self._clock = maker, clock
        self.waited_s = 0.0
        """Seconds that steps have waited so far."""

    def begin(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.begin`."""
        self._maker.begin(jobs)

    def wait(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.wait`."""
        began = self._clock()
        self._maker.wait(jobs)
        self.waited_s += self._clock() - began

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.wait_for_one`."""
        began = self._clock()
        self._maker.wait_for_one(jobs)
        self.waited_s += self._clock() - began
