"""The one clock that the frontend judges and waits by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds; it only rises."""


def loop_time() -> float:
    """Of the event loop that runs: whatever drives its timers drives this, too."""
    return asyncio.get_running_loop().time()
