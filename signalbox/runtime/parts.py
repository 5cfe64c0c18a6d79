"""Parts of a service: threads and tasks that run for as long as its process does. An error that ends one is logged,
counted, and told to whoever depends on it (docs/liveness.md, LO1)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)
BEGIN_S = 5.0
"""Seconds of this process after which a new thread counts as ended. A starved one may still begin later."""
STEP_S = 0.1


class PartFailures:
    """Errors of the parts of a process, by part. Any thread may ask and add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._ended: set[str] = set()

    @property
    def counts(self) -> dict[str, int]:
        """Errors of each part that was started; 0: none."""
        with self._lock:
            return dict(self._counts)

    @property
    def ended(self) -> frozenset[str]:
        """Parts that an error has ended."""
        with self._lock:
            return frozenset(self._ended)

    def begin(self, part: str) -> None:
        """A part of this name starts: its count exists from now on, and the part has not ended."""
        with self._lock:
            self._counts.setdefault(part, 0)
            self._ended.discard(part)

    def add(self, part: str, error: BaseException, *, is_end: bool = False) -> None:
        """Logs an error of a part and counts it. `is_end`: the part does not go on."""
        with self._lock:
            self._counts[part] = self._counts.get(part, 0) + 1
            if is_end:
                self._ended.add(part)
        end = "; it has ended, and what needs it is off until this process starts again" if is_end else ""
        log.error("an error in %s: %r%s", part, error, end, exc_info=error)

    def count(self, part: str) -> None:
        """Counts an error that somebody else logs."""
        with self._lock:
            self._counts[part] = self._counts.get(part, 0) + 1


FAILURES = PartFailures()
"""Errors of the parts of this process."""
CALLBACKS, THREADS = "callbacks", "other-threads"
"""Parts that stand for whatever has no name: callbacks and tasks of the event loop, and threads."""


def watch_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Counts errors that nobody catches, in callbacks and tasks of `loop` and in threads that are no parts."""
    for part in (CALLBACKS, THREADS):
        FAILURES.begin(part)

    def in_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("exception") is not None:
            FAILURES.count(CALLBACKS)
        loop.default_exception_handler(context)

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and args.exc_type is not SystemExit:
            FAILURES.add(THREADS, args.exc_value)

    loop.set_exception_handler(in_loop)
    threading.excepthook = in_thread


class Thread(threading.Thread):
    """A thread whose `start` raises RuntimeError when the new thread ends ahead of its first line.

    Python does not report that: a thread that has no memory for its first frame ends with a line on stderr, and
    `threading.Thread.start` waits for its signal for ever (CPython, issue 140746).
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._started = _Begun()  # CPython's `start` waits for it


class _Begun(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        """Without `timeout`, raises RuntimeError when it is not set in time. A process that is stopped meanwhile is
        given that time again, up to one step."""
        if timeout is not None:
            return super().wait(timeout)
        for _ in range(round(BEGIN_S / STEP_S)):
            if super().wait(STEP_S):
                return True
        raise RuntimeError("a new thread has ended before it began: no memory")


def start_thread(
    part: str, run: Callable[[], None], on_failed: Callable[[BaseException], None] = lambda error: None
) -> threading.Thread:
    """Starts a daemon thread that runs until `run` returns. on_failed: called in the thread when an error ends it."""
    FAILURES.begin(part)

    def guarded() -> None:
        try:
            run()
        except BaseException as error:  # whatever it is: nobody else would hear of it
            FAILURES.add(part, error, is_end=True)
            on_failed(error)

    thread = Thread(target=guarded, name=part, daemon=True)
    thread.start()
    return thread


def start_task(
    part: str,
    work: Coroutine[Any, Any, None],
    on_failed: Callable[[BaseException], None] = lambda error: None,
) -> asyncio.Task[None]:
    """Starts a task that runs until `work` returns or is cancelled. on_failed: called when an error ends it."""
    FAILURES.begin(part)
    task = asyncio.create_task(work, name=part)

    def ended(done: asyncio.Task[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            FAILURES.add(part, error, is_end=True)
            on_failed(error)

    task.add_done_callback(ended)
    return task
