"""Works through the batches of a folder together with the other processes that share it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from frontend_svc.batches.batch import Batch
from frontend_svc.batches.batch_run import BatchLimits, BatchRun, Execute
from frontend_svc.batches.batch_store import BatchLease, BatchStore
from frontend_svc.batches.file_store import FileStore
from frontend_svc.batches.places import Places
from frontend_svc.batches.quota import DiskQuota
from frontend_svc.batches.troubles import PATIENCE_S, Troubles
from signalbox.runtime.parts import FAILURES

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often to look for batches that nobody works on, in seconds."""
SWEEP_S = 60.0
MAX_RUNNING = 8
"""Batches that run at once in a process; further ones wait, the oldest of each tenant first."""


class BatchRunner:
    """Takes batches whose lock is free, and what has expired off the disk."""

    def __init__(
        self,
        batches: BatchStore,
        files: FileStore,
        quota: DiskQuota,
        execute: Execute,
        limits: BatchLimits,
        *,
        places: Places,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._batches, self._files, self._quota = batches, files, quota
        self._execute, self._limits, self._now = execute, limits, now
        self._places = places
        self._running: dict[str, BatchRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: set[str] = set()
        """Batches that need not be looked at again."""
        self._troubles = Troubles()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look for batches."""
        self._task = asyncio.create_task(self._keep_looking())

    def look(self, batch_id: str) -> None:
        """Something happened to this batch: it is new, or to be cancelled."""
        if batch_id in self._running:
            self._running[batch_id].look()
        else:
            self._news.set()

    async def stop(self) -> None:
        """Leaves all batches as they are; another process may go on with them at once."""
        tasks = [*self._tasks, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        swept_s = loop.time() - SWEEP_S
        while True:
            self._news.clear()
            try:
                if loop.time() - swept_s >= SWEEP_S:
                    swept_s = loop.time()
                    await asyncio.to_thread(self._sweep)
                await self._take()
            except OSError as error:
                log.warning("cannot look for batches: %s", error.strerror)
            except Exception as error:  # batches that can be taken are not to wait for a bug that one meets
                FAILURES.add("batches", error)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: before Python 3.12 that forgets a cancellation that comes together with news.
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()

    async def _take(self) -> None:
        without_room = {run.tenant for run in self._running.values() if run.lacks_room}
        most = MAX_RUNNING - sum(not run.lacks_room for run in self._running.values())
        if most <= 0:
            return
        running = set(self._running)
        resting = self._troubles.resting(time.monotonic())
        skip = self._ended | running | resting
        of_tenants = Counter(run.tenant for run in self._running.values())
        taking = asyncio.create_task(
            asyncio.to_thread(self._batches.take, skip, most, of_tenants, without_room)
        )
        try:
            leases = await asyncio.shield(taking)
        except asyncio.CancelledError:
            for lease in await taking:
                lease.release()
            raise
        self._ended = skip - running - resting  # one that ran may be let go by now, and is not at its end
        for lease in leases:
            self._begin(lease)

    def _begin(self, lease: BatchLease) -> None:
        run = BatchRun(
            lease,
            self._files,
            self._execute,
            self._places,
            self._limits,
            partial(self._quota.check_room, lease.batch.tenant),
            self._now,
        )
        self._running[lease.batch.id] = run
        task = asyncio.create_task(self._run(run, lease))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, run: BatchRun, lease: BatchLease) -> None:
        batch = lease.batch
        try:
            await run.run()
            self._troubles.forget(batch.id)
        except OSError as error:
            await self._wait_or_fail(run, batch, error)
        except Exception as error:
            log.error("%s failed", batch.id, exc_info=error)
            await run.fail("internal_error", f"internal error ({type(error).__name__})")
        finally:
            del self._running[batch.id]
            lease.release()  # while it rests another process may have better luck
            self._news.set()

    async def _wait_or_fail(self, run: BatchRun, batch: Batch, error: OSError) -> None:
        """Its files cannot be read or opened. That may pass: descriptors come back, and so do disks of the network."""
        log.warning("%s cannot be read: %s", batch.id, error.strerror)
        if not self._troubles.add(batch, time.monotonic()):
            self._troubles.forget(batch.id)
            told = f"its files could not be read for {PATIENCE_S:g} s: {error.strerror}"
            await run.fail("input_unreadable", told)

    def _sweep(self) -> None:
        self._files.sweep()
        self._ended &= self._batches.sweep(self._now() - self._limits.expire_s)
