"""The one clock that the frontend judges and waits by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Clock = Callable[[], float]
"""A clock in seconds that only rises."""


def loop_time() -> float:
    """The time of the event loop that runs, in seconds: whatever drives its timers drives this, too."""
    return asyncio.get_running_loop().time()
