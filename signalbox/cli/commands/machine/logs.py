"""`signalbox logs`: what the services of a ring on this machine have logged."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import BinaryIO

from signalbox.cli.commands.arguments import at_least_one
from signalbox.cli.ring.registry import RunningRing, list_rings
from signalbox.errors import InvalidRequestError, StartupError
from signalbox.runtime.logs import as_text, is_json

EXAMPLE = """\
examples:
  signalbox logs
  signalbox logs worker-0 -f
  signalbox logs frontend --json        # of a ring with --log-format json
  signalbox logs --pid 4711 -n 100      # of one of several rings, by its pid (`signalbox ps`)
"""
POLL_S = 0.2
BLOCK_BYTES = 1 << 16
"""What is read of the end of a log at first; more where lines are long."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("service", nargs="?", metavar="SERVICE", help="such as scheduler, worker-0, frontend (all)")
    add("-f", "--follow", action="store_true", help="go on until the ring ends, or Ctrl-C")
    add("-n", "--lines", type=at_least_one, default=20, metavar="N", help="last lines of each (%(default)s)")
    add("--json", action="store_true", help="lines of JSON as they are, without names of services in front")
    add("--pid", type=int, help="the ring, where there are several (the only one)")


def run(args: argparse.Namespace) -> int:
    """Prints last lines, and further ones if they are wanted."""
    ring = choose_ring(args.pid)
    logs = _choose_logs(Path(ring.log_dir), args.service)
    width = max(len(path.stem) for path in logs) if len(logs) > 1 else 0
    # Kept open: a ring that ends takes its directory away.
    tails = [_Tail(path, width, as_json=args.json) for path in logs]
    for tail in tails:
        tail.print_last(args.lines)
    while args.follow:
        is_running = ring in list_rings()
        for tail in tails:
            tail.print_new()
        if not is_running:
            break
        time.sleep(POLL_S)
    for tail in tails:
        tail.print_rest()
    return 0


def choose_ring(pid: int | None) -> RunningRing:
    """The ring of that pid, or the only one. Raises StartupError when there is none, or several."""
    rings = list_rings()
    if pid is not None:
        rings = [ring for ring in rings if ring.pid == pid]
    if not rings:
        raise StartupError("no ring runs here" + (f" as process {pid}" if pid is not None else ""))
    if len(rings) > 1:
        pids = ", ".join(str(ring.pid) for ring in rings)
        raise StartupError(f"several rings run here; name one with --pid: {pids}")
    return rings[0]


def _choose_logs(log_dir: Path, service: str | None) -> list[Path]:
    logs = sorted(log_dir.glob("*.log"))
    if not logs:
        raise StartupError(f"there are no logs in {log_dir}")
    if service is None:
        return logs
    chosen = [path for path in logs if path.stem == service]
    if not chosen:
        names = ", ".join(path.stem for path in logs)
        raise InvalidRequestError(f"no service is called {service}; there is {names}")
    return chosen


class _Tail:
    """One log and how far it has been printed."""

    def __init__(self, path: Path, width: int, *, as_json: bool = False) -> None:
        """Lines begin with the service's name in so many columns; 0: with nothing. as_json: those of JSON stay so."""
        self._as_json = as_json
        self._file: BinaryIO = path.open("rb")
        self._prefix = f"{path.stem:<{width}} | " if width else ""
        self._partial = b""

    def print_last(self, count: int) -> None:
        size, block = self._file.seek(0, os.SEEK_END), BLOCK_BYTES
        while True:
            start = max(0, size - block)
            self._file.seek(start)
            *lines, self._partial = self._file.read().split(b"\n")
            if start == 0 or len(lines) > count:  # the first one may be the end of a longer one
                break
            block *= 4
        whole = count - 1 if self._partial else count
        self._print(lines[max(0, len(lines) - whole) :])

    def print_new(self) -> None:
        *lines, self._partial = (self._partial + self._file.read()).split(b"\n")
        self._print(lines)

    def print_rest(self) -> None:
        """A last line that has no end: its writer died, or is not done with it."""
        if self._partial:
            self._print([self._partial])

    def _print(self, lines: list[bytes]) -> None:
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            if self._as_json and is_json(text):
                print(text, flush=True)
                continue
            for part in as_text(text).split("\n"):
                print(f"{self._prefix}{part}", flush=True)
