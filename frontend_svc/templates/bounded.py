"""Runs work that may never end beside the event loop, for a bounded time."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from signalbox.runtime.parts import Thread

T = TypeVar("T")
POLL_S = 0.02


class _GivenUpError(SystemExit):
    """Raised inside work that took too long. Not an Exception, which the work might take for its own, and of the one
    kind that ends a thread without a word."""


class BoundedThreads:
    """A thread for each piece of work, so many at once. Work that takes too long is ended at its next bytecode; while
    it will not end it keeps its place."""

    def __init__(self, limit_s: float, max_threads: int) -> None:
        """`limit_s` counts from when the work is asked for."""
        self._limit_s = limit_s
        self._places = asyncio.Semaphore(max_threads)
        self._reapers: set[asyncio.Task[None]] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, or what it raises. Raises TimeoutError when that does not come in time."""
        async with asyncio.timeout(self._limit_s):
            await self._places.acquire()
            outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            thread = Thread(target=_run, args=(work, outcome), daemon=True)
            try:
                thread.start()
                return await outcome
            finally:
                if outcome.done() and not outcome.cancelled():
                    self._places.release()
                else:
                    self._reap(thread)

    def _reap(self, thread: threading.Thread) -> None:
        task = asyncio.create_task(self._end(thread))
        self._reapers.add(task)
        task.add_done_callback(self._reapers.discard)

    async def _end(self, thread: threading.Thread) -> None:
        try:
            while thread.is_alive():
                assert thread.ident is not None
                _raise_in(thread.ident)
                await asyncio.sleep(POLL_S)
        finally:
            self._places.release()


def _run(work: Callable[[], T], outcome: asyncio.Future[T]) -> None:
    try:
        result = work()
    except _GivenUpError:
        return  # nobody waits any more
    except BaseException as error:
        _tell(outcome, outcome.set_exception, error)
    else:
        _tell(outcome, outcome.set_result, result)


def _tell(outcome: asyncio.Future[Any], tell: Callable[[Any], None], value: Any) -> None:
    def tell_waiting() -> None:
        if not outcome.done():
            tell(value)

    try:
        outcome.get_loop().call_soon_threadsafe(tell_waiting)
    except RuntimeError:
        return  # the loop is closed


def _raise_in(thread_id: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(_GivenUpError))
