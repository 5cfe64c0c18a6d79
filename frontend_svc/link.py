"""What the links to scheduler and workers share: when to dial again, and reader and writer side by side."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from typing import Any

import grpc

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
"""What a stream's `read` returns at its end."""
FIRST_BACKOFF_S = 0.1
LARGEST_BACKOFF_S = 2.0


class Backoff:
    """Doubles from FIRST_BACKOFF_S to LARGEST_BACKOFF_S, with a random part so that not all come at once."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def is_first(self) -> bool:
        """No attempt has failed since the link was last up."""
        return self._failures == 0

    def reset(self) -> None:
        """The link is up."""
        self._failures = 0

    def next_s(self) -> float:
        """Seconds to wait now."""
        delay = min(LARGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)


async def run_until_first_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Runs all of `work` until one ends, cancels the others, and raises what the first one raised.

    A write to a stream that has just ended is such an end, not an error.
    """
    tasks = [asyncio.create_task(item) for item in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(asyncio.InvalidStateError):
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def describe(error: BaseException) -> str:
    """For the log: one line."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return repr(error)
