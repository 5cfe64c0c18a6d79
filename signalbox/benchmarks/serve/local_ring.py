"""A ring that a bench starts for itself, on free ports, and stops however the bench ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

from signalbox.benchmarks.process_time import process_time_of
from signalbox.benchmarks.serve import pinning
from signalbox.cli.ring.bring_up import first_of, warn
from signalbox.cli.ring.log_dir import LogDir
from signalbox.cli.ring.readiness import tell_serving, wait_ready
from signalbox.cli.ring.ring import Ring
from signalbox.cli.ring.supervisor import Supervisor
from signalbox.errors import InvalidRequestError

T = TypeVar("T")


class LocalRing:
    """Runs `ring` in processes of their own."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._pids: dict[str, int] = {}

    async def use(self, work: Callable[[], Awaitable[T]]) -> T:
        """Starts the ring, awaits `work` when it is ready, and stops it. Raises UnavailableError with its last words
        when a service ends meanwhile. The logs are kept when something failed that no request is to blame for. SIGTERM
        and SIGHUP end the ring, then the process."""
        stopped = _catch_signals()
        results: list[T] = []
        logs = LogDir()
        supervisor = Supervisor(self._ring.stages(), logs.path, warn)

        async def run() -> None:
            await self._wait_until_ready()
            supervisor.ready = True
            results.append(await work())

        failed = True
        try:
            supervisor.start()
            self._pids = supervisor.pids()
            await first_of(supervisor.watch(), run(), stopped)
            failed = False
        except (InvalidRequestError, asyncio.CancelledError):
            failed = False
            raise
        finally:
            await supervisor.stop()
            if logs.close(failed=failed):
                warn(f"the services' logs are in {logs.path}")
        if not results:
            raise SystemExit(128 + stopped.result())
        return results[0]

    def cpu_s(self) -> dict[str, float]:
        """Processor time of each service so far, in seconds; empty where the kernel is not Linux."""
        return {name: cpu for name, pid in self._pids.items() if (cpu := _cpu_of(pid)) is not None}

    def move(self, name: str, core: int) -> None:
        """Has a service run on one core."""
        pinning.move(self._pids[name], core)

    async def _wait_until_ready(self) -> None:
        ring = self._ring
        workers = {f"worker-{index}": address for index, address in enumerate(ring.workers)}
        await tell_serving({"scheduler": ring.scheduler, **workers}, lambda name: None)
        await wait_ready(ring.http)


def _catch_signals() -> asyncio.Future[int]:
    """Done with the number of the first signal that asks for the end. Ctrl-C needs no help: it cancels the work."""
    loop = asyncio.get_running_loop()
    caught: asyncio.Future[int] = loop.create_future()

    def catch(number: int) -> None:
        if not caught.done():
            caught.set_result(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, catch, number)
    return caught


def _cpu_of(pid: int) -> float | None:
    try:
        return process_time_of(pid)
    except OSError:
        return None
