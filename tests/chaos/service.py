"""One service of a ring under test: a process that may be killed, stopped, and started again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

POLL_S = 0.02
STOP_TIMEOUT_S = 150.0
"""For a frontend that lets its streams end."""
NO_MORE: Mapping[str, str] = MappingProxyType({})

_WITH_US = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""Has a service end when we are killed. (No `preexec_fn`: gRPC's threads do not survive a fork.)"""


class Service:
    """`python -m MODULE` of the tree under test; the log of an earlier process of the name goes on."""

    def __init__(
        self,
        name: str,
        module: str,
        flags: Sequence[str],
        tree: Path,
        log: Path,
        environment: Mapping[str, str] = NO_MORE,
    ) -> None:
        """environment: beside ours."""
        self.name = name
        self.log = log
        self.settings: Sequence[str] = ()
        """Further flags of the processes that are started from now on."""
        self._environment = environment
        self._command = (*_WITH_US, sys.executable, "-m", module, *flags)
        self._tree = tree
        self._process: subprocess.Popen[bytes] | None = None
        self._relieved: list[subprocess.Popen[bytes]] = []
        """Earlier processes, which end when they have done their work."""

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """It was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it; a no-op while it runs."""
        if self.runs:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                (*self._command, *self.settings),
                cwd=self._tree,
                env=os.environ | {"PYTHONPATH": _python_path(self._tree)} | dict(self._environment),
                stdout=log,
                stderr=log,
            )

    def relieve(self) -> None:
        """Starts another process, and tells the one that runs to end; it may take as long as it needs."""
        if self.runs:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)
            self._relieved.append(self._process)
            self._process = None
        self.start()

    def send(self, number: signal.Signals) -> None:
        """A signal; a no-op when it has ended."""
        if self.runs:
            assert self._process is not None
            self._process.send_signal(number)

    async def ended(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Returns when the process has ended; by force when it does not in time."""
        give_up = time.monotonic() + timeout_s
        while self.runs:
            if time.monotonic() > give_up:
                self.send(signal.SIGKILL)
            await asyncio.sleep(POLL_S)

    async def kill(self) -> None:
        """SIGKILL."""
        for process in self._relieved:
            process.kill()
            process.wait()
        self._relieved.clear()
        self.send(signal.SIGKILL)
        await self.ended()

    async def stop(self) -> None:
        """SIGTERM, until it has ended."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        await self.ended()


def _python_path(tree: Path) -> str:
    """The tree under test behind what is there already, such as a profiler's directory."""
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(tree))))
