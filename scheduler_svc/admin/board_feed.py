"""Snapshots for everybody who watches the board: one for all, made while somebody does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator

from scheduler_svc.admin.board_snapshot import make_snapshot
from scheduler_svc.admin.board_times import ReportTimes
from scheduler_svc.core.state.steps.step import StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.step_loop import StepLoop
from signalbox.runtime.latest_value import LatestValue
from signalbox.v1 import admin_pb2

logger = logging.getLogger(__name__)
INTERVAL_S = 0.5
"""Least seconds between two snapshots."""
MAX_SHARE = 0.01
"""Largest share of a core for making snapshots: where one takes long, the next comes later."""


class BoardFeed:
    """Looks at a step loop for those who watch the board. Without any it costs nothing."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self._times = ReportTimes()
        self._newest: LatestValue[admin_pb2.WatchBoardResponse] = LatestValue()
        self._task: asyncio.Task[None] | None = None
        self._num_watchers = 0

    async def watch(self) -> AsyncGenerator[admin_pb2.WatchBoardResponse, None]:
        """One snapshot after another. To be closed (`aclose`) when nobody reads any more."""
        self._join()
        try:
            seen = None
            while True:
                seen = await self._newest.other_than(seen)
                yield seen
        finally:
            self._leave()

    def _join(self) -> None:
        self._num_watchers += 1
        if self._task is None:
            self._times = ReportTimes()
            self._loop.on_report = self._note
            self._task = asyncio.create_task(self._keep_looking())

    def _leave(self) -> None:
        self._num_watchers -= 1
        if not self._num_watchers and self._task is not None:
            self._loop.on_report = None
            self._task.cancel()
            self._task = None
            self._newest.clear()

    def _note(self, worker: Worker, report: StepReport) -> None:
        self._times.note(worker, report, time.monotonic(), time.time() * 1e3)

    async def _keep_looking(self) -> None:
        while True:
            started = time.monotonic()
            try:
                self._newest.put(self._look())
            except Exception:
                logger.exception("no snapshot for the board")  # the state may be readable at the next look
            await asyncio.sleep(max(INTERVAL_S, (time.monotonic() - started) / MAX_SHARE))

    def _look(self) -> admin_pb2.WatchBoardResponse:
        return make_snapshot(
            self._loop.core, self._loop.num_frontends, self._times, time.monotonic(), time.time() * 1e3
        )
