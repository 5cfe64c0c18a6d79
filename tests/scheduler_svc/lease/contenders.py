"""Processes that want a lease, as schedulers do, and say when they have it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scheduler_svc.lease.lease import Holder
from scheduler_svc.lease.spec import open_lease, parse_lease
from signalbox.errors import LeaseLostError

START_S = 60.0


class Contender:
    """A process that waits for the lease `spec` and then keeps it."""

    def __init__(self, spec: str, name: str, duration_s: float) -> None:
        command = [sys.executable, "-m", __name__, spec, name, str(duration_s)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._unread = b""

    def waits(self) -> bool:
        """It has loaded everything, and wants the lease."""
        return self._line(START_S) == "waits"

    def leads_within(self, timeout_s: float = START_S) -> int | None:
        """The counter with which it leads; None when it does not in time."""
        said = self._line(timeout_s)
        return None if said is None else int(said)

    def said_in_the_end(self, timeout_s: float = START_S) -> str | None:
        """Its last word when it has lost the lease; None when it has not in time."""
        return self._line(timeout_s)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _line(self, timeout_s: float) -> str | None:
        assert self.process.stdout is not None
        give_up = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(give_up - time.monotonic(), 0)):
                    return None
                said = os.read(self.process.stdout.fileno(), 1000)
                assert said, f"it ended with status {self.process.wait()}"
                self._unread += said
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()


@contextmanager
def contenders(spec: str, *names: str, duration_s: float = 2.0) -> Iterator[list[Contender]]:
    """One process each; the first leads before the others are started."""
    started: list[Contender] = []
    try:
        for name in names:
            started.append(Contender(spec, name, duration_s))
            assert started[-1].waits()
            if len(started) == 1:
                assert started[0].leads_within() is not None
        yield started
    finally:
        for contender in started:
            contender.kill()


def first_to_lead(waiting: list[Contender], timeout_s: float = START_S) -> tuple[Contender, int]:
    """Who of them leads next, and with which counter."""
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        for contender in waiting:
            if (counter := contender.leads_within(0.01)) is not None:
                return contender, counter
    raise AssertionError(f"nobody leads within {timeout_s} s")


@contextmanager
def locked_by_another(path: Path) -> Iterator[None]:
    """The file of a lease is replaced by one that somebody else has locked."""
    other = path.with_name("other")
    with other.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        other.replace(path)
        yield


async def _run(spec: str, name: str, duration_s: float) -> None:
    lease = open_lease(parse_lease(spec), Holder(f"instance-{name}", f"{name}:7300"), duration_s)
    print("waits", flush=True)
    counter = await lease.acquire()
    print(counter, flush=True)
    try:
        await lease.keep()
    except LeaseLostError as error:
        print(error.message, flush=True)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2], float(sys.argv[3])))
