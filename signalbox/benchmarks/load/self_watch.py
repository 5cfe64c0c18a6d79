"""Whether the bench itself was too slow: its share of a core, and how late its event loop is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from signalbox.benchmarks.load.summary import Figures, percentile

TICK_S = 0.02
BUSY_SHARE = 0.85
"""Share of a core for the thread of the event loop above which messages wait for the client."""
LATE_MS = 20.0


class SelfWatch:
    """Measures the process that it runs in."""

    def __init__(self) -> None:
        self._lags: list[float] = []
        self._started = self._now()
        self._ended = self._started

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Measures until the block ends."""
        self._started = self._now()
        task = asyncio.create_task(self._keep_sampling())
        try:
            yield
        finally:
            task.cancel()
            self._ended = self._now()

    def figures(self) -> Figures:
        """`client_bottleneck` says why the figures are the client's and not the server's; None: they are not."""
        wall, process, thread = (end - start for start, end in zip(self._started, self._ended, strict=True))
        share = thread / wall if wall > 0 else 0.0
        lag_ms = (percentile(sorted(self._lags), 99) or 0.0) * 1e3
        return {
            "client_cpu_s": round(process, 3),
            "client_loop_share": round(share, 3),
            "client_lag_ms_p99": round(lag_ms, 3),
            "client_bottleneck": judge(share, lag_ms),
        }

    async def _keep_sampling(self) -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self._lags.append(max(0.0, time.perf_counter() - due))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), time.thread_time()


def judge(loop_share: float, lag_ms: float) -> str | None:
    """Why the client was the bottleneck, if it was."""
    if loop_share >= BUSY_SHARE:
        return f"the client's event loop was busy {loop_share:.0%} of the time"
    if lag_ms >= LATE_MS:
        return f"the client's event loop was late by {lag_ms:.0f} ms (99th percentile)"
    return None
