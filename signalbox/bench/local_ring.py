"""A ring that a bench starts for itself, on free ports, and stops however the bench ends."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from signalbox.bench import pinning
from signalbox.bring_up import first_of, warn
from signalbox.errors import SignalboxError
from signalbox.readiness import tell_serving, wait_ready
from signalbox.ring import Ring
from signalbox.supervisor import Supervisor

T = TypeVar("T")


class LocalRing:
    """Runs `ring` in processes of their own."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._log_dir = Path(tempfile.mkdtemp(prefix="signalbox-bench-"))
        self._supervisor = Supervisor(ring.stages(), self._log_dir, warn)

    async def use(self, work: Callable[[], Awaitable[T]]) -> T:
        """Starts the ring, awaits `work` when it is ready, and stops it. Raises UnavailableError with its last words
        when a service ends meanwhile; the logs are kept then."""
        results: list[T] = []

        async def run() -> None:
            await self._wait_until_ready()
            self._supervisor.ready = True
            results.append(await work())

        keep_logs = False
        try:
            self._supervisor.start()
            await first_of(self._supervisor.watch(), run())
        except SignalboxError:
            keep_logs = True
            raise
        finally:
            await self._supervisor.stop()
            if keep_logs:
                warn(f"the services' logs are in {self._log_dir}")
            else:
                shutil.rmtree(self._log_dir, ignore_errors=True)
        return results[0]

    def cpu_s(self) -> dict[str, float]:
        """Processor time of each service so far, in seconds; empty where the kernel is not Linux."""
        pids = self._supervisor.pids()
        return {name: cpu for name, pid in pids.items() if (cpu := _cpu_of(pid)) is not None}

    def move(self, name: str, core: int) -> None:
        """Has a service run on one core."""
        pinning.move(self._supervisor.pids()[name], core)

    async def _wait_until_ready(self) -> None:
        ring = self._ring
        workers = {f"worker-{index}": address for index, address in enumerate(ring.workers)}
        await tell_serving({"scheduler": ring.scheduler, **workers}, lambda name: None)
        await wait_ready(ring.http)


def free_addresses(count: int) -> list[str]:
    """Addresses on this machine that nobody listens on now. All are held until all are found, so they differ."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


def _cpu_of(pid: int) -> float | None:
    """User and system time of a process with all its threads."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
