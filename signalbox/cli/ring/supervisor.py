"""Child processes that live and die together: start in stages, watch, stop in the reverse order.

Children write to log files, not to pipes: none of them can block on us or die of a broken pipe. They are in
sessions of their own, so that Ctrl-C reaches only the supervisor, and die with it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from errno import EADDRINUSE
from pathlib import Path
from typing import NoReturn

from signalbox.errors import StartupError, UnavailableError
from signalbox.runtime import logs
from signalbox.runtime.process import MEMORY_ENDS, PARENT, SHORT_OF_MEMORY_STATUS

POLL_S = 0.05
STOP_GRACE_S = 40.0
"""Seconds between SIGTERM and SIGKILL, per stage: longer than frontends let requests run on (their drain_s)."""
RESTART_S = 1.0
"""Least seconds between two starts of a service that is started again. Doubled each time that one with `restarts` ends
early."""
LONGEST_RESTART_S = 30.0
SETTLED_S = 60.0
"""A service that ends later has not ended early."""
BEQUEST_S = 1.0
"""How long what a service has left behind in its group, such as a worker's guardian, has for its work."""
TAIL_LINES = 15

_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
"""The format of signalbox/runtime/logs.py, JSON read as text; a line of another (a traceback) belongs to that above."""
_ERRORS = frozenset({"ERROR", "CRITICAL"})
_WARNINGS = _ERRORS | {"WARNING"}


@dataclass(frozen=True)
class Service:
    """A process to run: its name, its command, and where it says that it is ready."""

    name: str
    argv: tuple[str, ...]
    group: str = ""
    """Services of one group stand in for each other: one that ends is started again while another of them runs.
    Empty: it has none."""
    restarts: bool = False
    """Whether the service is started again whenever it ends, whoever else runs. One that has ended in order for want of
    memory is so in any case."""


class Child:
    """A running service and how far its log has been read."""

    def __init__(
        self,
        service: Service,
        log: Path,
        *,
        is_new: bool = True,
        num_early_ends: int = 0,
        memory_ends: int = 0,
    ) -> None:
        """Its log goes on where the one of an earlier process ended, unless it is new. num_early_ends: of the processes
        before it, one behind the other. memory_ends: of those, how many had too little memory."""
        self.service = service
        self.name = service.name
        self.log = log
        self.started_at = time.monotonic()
        self.num_early_ends = num_early_ends
        self._memory_ends = memory_ends
        self._ended_at: float | None = None
        with log.open("wb" if is_new else "ab") as output:
            self._reader = _LogReader(log, service.name)
            self.process = subprocess.Popen(
                service.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, PARENT: str(os.getpid()), MEMORY_ENDS: str(memory_ends)},
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def had_too_little_memory(self) -> bool:
        """Whether the service has ended in order for want of memory."""
        return self.process.poll() == SHORT_OF_MEMORY_STATUS

    @property
    def memory_ends(self) -> int:
        """How many processes of the service have ended so, this one included."""
        return self._memory_ends + self.had_too_little_memory

    @property
    def is_restarted(self) -> bool:
        """Whether the service, which has ended, is started again, whoever else runs."""
        return self.service.restarts or self.had_too_little_memory

    @property
    def ended_at(self) -> float:
        """When the service, which does not run, was first seen so, in seconds of the monotonic clock."""
        if self._ended_at is None:
            self._ended_at = time.monotonic()
        return self._ended_at

    @property
    def is_alone(self) -> bool:
        """Whether the service has ended, and nobody is left of its group."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the whole process group: a service may have helpers of its own."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def new_lines(self) -> list[tuple[str, str]]:
        """(level, line) since the last call; the level of a line that has none is that of the line above."""
        return self._reader.new_lines()

    def exit_report(self) -> str:
        """How the service ended, and the last lines of its log."""
        self._reader.new_lines()
        said = self._reader.last_lines() or f" without a word{_why_silent(self.log)}"
        return f"{self.name} {_ending(self.process.returncode)}{said}\n(log: {self.log})"


class _LogReader:
    """Follows a log: its last lines, and the sentence of a service that refuses to start (`worker: ...`)."""

    def __init__(self, path: Path, name: str) -> None:
        # Kept open: a cleaner of temporary files may take the log away while the service runs.
        self._file = path.open("rb")
        self._file.seek(0, os.SEEK_END)
        self._sentence = re.compile(re.escape(name.partition("-")[0]) + ": .")
        self._reason = ""
        self._partial = b""
        self._level = ""
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def new_lines(self) -> list[tuple[str, str]]:
        lines = [line for line in self._read() if line.strip()]
        return [(self._take(line), line) for line in lines]

    def _take(self, line: str) -> str:
        self._tail.append(line)
        if self._sentence.match(line):
            self._reason = line
        if match := _LOG_LINE.match(line):
            self._level = match[1]
        return self._level

    def last_lines(self) -> str:
        """The one sentence of a service that could not start, or the last lines of one that crashed; empty: none."""
        if self._reason:
            return f": {self._reason}"
        lines = [*self._tail, self._partial.decode(errors="replace")]
        lines = [line for line in lines if line.strip()]
        if not lines:
            return ""
        crashed = any(line.startswith("Traceback") for line in lines)
        if not crashed and not _LOG_LINE.match(lines[-1]):
            return f": {lines[-1]}"
        return "; its last lines:\n" + "\n".join(f"  {line}" for line in lines)

    def _read(self) -> list[str]:
        *lines, self._partial = (self._partial + self._file.read()).split(b"\n")
        texts = [logs.as_text(line.decode(errors="replace").rstrip()) for line in lines]
        return [line for text in texts for line in text.splitlines()]


class Supervisor:
    """Runs stages of services. `say` gets lines for the user: the services' errors, with their name.

    Once `ready` is set it gets their warnings too; before, they warn that they do not find each other yet. From then on
    services with a stand-in, and those that are to be, are started again.
    """

    def __init__(
        self, stages: Sequence[Sequence[Service]], log_dir: Path, say: Callable[[str], None]
    ) -> None:
        self.log_dir = log_dir
        self.ready = False
        self._services = stages
        self._say = say
        self._stages: list[list[Child]] = []

    def start(self) -> None:
        """Starts everything at once, in the order of the stages. They find each other by themselves."""
        for stage in self._services:
            self._stages.append([])
            for service in stage:
                self._stages[-1].append(self._start(service))

    def pids(self) -> dict[str, int]:
        """Process id of each service, by name."""
        return {child.name: child.process.pid for child in self._children()}

    async def watch(self) -> NoReturn:
        """Passes on what is loud; raises UnavailableError as soon as a child ends that nobody stands in for."""
        while True:
            loud = _WARNINGS if self.ready else _ERRORS
            for stage in self._stages:
                for index, child in enumerate(stage):
                    running = child.running
                    for level, line in child.new_lines():
                        if level in loud:
                            self._say(f"{child.name}: {line}")
                    if not running:
                        stage[index] = self._start_again(child)
            await asyncio.sleep(POLL_S)

    def _start(self, service: Service, **before: int) -> Child:
        """before: what Child is told of the processes before it; nothing: it is the first."""
        log = self.log_dir / f"{service.name}.log"
        try:
            return Child(service, log, is_new=not before, **before)
        except OSError as error:
            raise StartupError(f"cannot start {service.name}: {error}") from None

    def _start_again(self, child: Child) -> Child:
        """The next process of a service that has ended; the same one while it has to wait. Raises UnavailableError."""
        is_replaced = self.ready and (child.service.restarts or self._has_stand_in(child))
        # A client may fill a frontend's memory before the other services are ready.
        if not (is_replaced or child.had_too_little_memory):
            raise UnavailableError(child.exit_report())
        ended, now = child.ended_at, time.monotonic()
        doubled = child.num_early_ends if child.is_restarted else 0
        if now - child.started_at < min(RESTART_S * 2**doubled, LONGEST_RESTART_S):
            return child
        if child.is_restarted and not child.is_alone and now - ended < BEQUEST_S:
            return child
        self._say(f"{child.exit_report()}\n{child.name} is started again")
        child.send(signal.SIGKILL)  # for what it left behind in its group
        num_early_ends = child.num_early_ends + 1 if ended - child.started_at < SETTLED_S else 0
        return self._start(child.service, num_early_ends=num_early_ends, memory_ends=child.memory_ends)

    def _has_stand_in(self, child: Child) -> bool:
        group = child.service.group
        return bool(group) and any(
            other.running for other in self._children() if other.service.group == group
        )

    async def stop(self) -> None:
        """Ends the stages, last one first: SIGTERM, a bounded wait, SIGKILL. Nothing is left running."""
        for stage in reversed(self._stages):
            for child in stage:
                if child.running:
                    child.send(signal.SIGTERM)
            await self._wait(stage)
            for child in stage:
                if child.running:
                    self._say(f"{child.name} did not stop within {STOP_GRACE_S:.0f} s and was killed")
                # Also for what a child left behind in its group.
                child.send(signal.SIGKILL)
                child.process.wait()

    def kill(self) -> None:
        """Ends everything at once; `stop` then has nothing to wait for."""
        for child in self._children():
            child.send(signal.SIGKILL)

    async def _wait(self, stage: Sequence[Child]) -> None:
        give_up = time.monotonic() + STOP_GRACE_S
        while any(child.running for child in stage) and time.monotonic() < give_up:
            await asyncio.sleep(POLL_S)

    def _children(self) -> list[Child]:
        return [child for stage in self._stages for child in stage]


def check_free(addresses: dict[str, str]) -> None:
    """Raises StartupError when one of the `host:port` cannot be listened on; the keys are their flags."""
    owners: dict[str, str] = {}
    for flag, address in addresses.items():
        if address in owners:
            raise StartupError(f"{owners[address]} and {flag} cannot both be {address}")
        owners[address] = flag
        host, port = split_address(address)
        try:
            family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(target)
        except OSError as error:
            what = "in use" if error.errno == EADDRINUSE else f"not to be had ({error.strerror})"
            raise StartupError(f"port {port} on {host} is {what}; choose another with {flag}") from None


def free_addresses(count: int) -> tuple[str, ...]:
    """Addresses on this machine that nobody listens on now. All are held until all are found, so they differ."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return tuple(f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, brackets of IPv6 removed."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def dialable(address: str) -> str:
    """Where to reach a server that listens on `address`: a wildcard is not a place."""
    host, port = split_address(address)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why_silent(log: Path) -> str:
    """A reason why nothing is in the log, as far as one can be seen."""
    if os.statvfs(log).f_bavail:
        return ""
    return f": the disk of {log.parent} is full; make room, or name another place with --log-dir"


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name
    return f"was ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
