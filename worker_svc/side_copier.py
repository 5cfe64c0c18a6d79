"""Copies between device and host tier that run beside the steps, group after group, in a thread of their own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from worker_svc.core.batch import ModelRunner
from worker_svc.core.step import Failure, SideCopies

logger = logging.getLogger(__name__)


class SideCopier:
    """Makes groups of copies. What a step may touch meanwhile is the scheduler's business: it was told of a fence."""

    def __init__(self, runner: ModelRunner, on_ended: Callable[[int, Failure | None], None]) -> None:
        """on_ended: called in the copying thread with the fence of each group, and with what went wrong."""
        self._runner = runner
        self._on_ended = on_ended
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="side-copies")
        self._open: dict[Future[None], float] = {}
        """Groups that have not ended, by the time they were begun; replaced as a whole, since other threads read it."""

    @property
    def age_s(self) -> float:
        """How long the oldest group has been open; 0 when none is. Any thread may ask."""
        begun = [at for future, at in self._open.items() if not future.done()]
        return time.monotonic() - min(begun) if begun else 0.0

    def begin(self, group: SideCopies) -> None:
        """Begins with `group` behind everything that the runner has been given so far. The step thread calls it."""
        copy = self._runner.copies_aside(group.copies)
        still_open = {future: at for future, at in self._open.items() if not future.done()}
        begun = self._thread.submit(self._make, group.fence, copy)
        self._open = still_open | {begun: time.monotonic()}

    def wait(self) -> None:
        """Until all groups have ended, and that was told."""
        wait(self._open)

    def close(self) -> None:
        """Groups that have not begun are dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _make(self, fence: int, copy: Callable[[], None]) -> None:
        failure = None
        try:
            copy()
        except Exception as error:  # the content is computed again, or copied within a step
            logger.exception("copies beside the steps failed")
            failure = Failure("InternalError", f"block copies failed ({type(error).__name__}: {error})")
        self._on_ended(fence, failure)
