"""Rings for end-to-end tests: `signalbox up` as a real process, one per set of options."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.ports import free_ports
from tests.zygote.popen import children_of

MODEL = Path(os.environ.get("SIGNALBOX_TEST_MODEL", DEMO_MODEL))
"""A directory with weights and a tokenizer."""
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 40
SHARED_RINGS = 2
"""How many rings that tests share run at once in one process of tests."""
ENGINE_OPTIONS = ("--threads", "1", "--num-blocks", "512")


@dataclass
class RunningRing:
    """A `signalbox up` and its addresses."""

    process: subprocess.Popen[str]
    http: str
    grpc: str
    scheduler: str
    log_dir: Path
    output: list[str] = field(default_factory=list)
    """Lines of stdout and stderr so far."""
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    def services(self) -> list[psutil.Process]:
        """The processes that it has started, without their helpers."""
        return children_of(self.process.pid)

    def children(self) -> list[psutil.Process]:
        return children_of(self.process.pid, recursive=True)

    def wait_for(self, words: str) -> None:
        """Returns when a line of the output has `words`."""
        give_up = time.monotonic() + START_TIMEOUT_S
        while not any(words in line for line in self.output):
            assert not self.ended.is_set(), "".join(self.output)
            assert time.monotonic() < give_up, "".join(
                [f"{words!r} did not come\n", *self.output, self.logs()]
            )
            time.sleep(0.05)

    def wait_for_end(self) -> int:
        """Exit status, with all output read."""
        status = self.process.wait(STOP_TIMEOUT_S)
        assert self.ended.wait(STOP_TIMEOUT_S)
        return status

    def stop(self) -> int:
        """Ctrl-C; the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.wait_for_end()

    def logs(self) -> str:
        """Of all services, for the message of a failed test."""
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in self.log_dir.glob("*.log"))


Launch = Callable[..., RunningRing]
StartRing = Callable[..., RunningRing]


def launch(log_dir: Path, *options: str) -> RunningRing:
    """Starts `signalbox up` on free ports and returns at once."""
    scheduler, grpc, http, *workers = (f"127.0.0.1:{port}" for port in free_ports(8))
    log_dir.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "signalbox", "up", "--log-dir", str(log_dir), *ENGINE_OPTIONS]
    command += ["--scheduler", scheduler, "--grpc", grpc, "--http", http, "--worker-listen", workers[0]]
    if "--model" not in options:
        command += ["--model", str(MODEL), "--served-model-name", "demo"]
    pipe = subprocess.PIPE
    process = subprocess.Popen([*command, *options], stdout=pipe, stderr=subprocess.STDOUT, text=True)
    ring = RunningRing(process, http, grpc, scheduler, log_dir)
    threading.Thread(target=_read, args=(ring,), daemon=True).start()
    return ring


def _read(ring: RunningRing) -> None:
    assert ring.process.stdout
    for line in ring.process.stdout:
        ring.output.append(line)
    ring.ended.set()


@pytest.fixture
def launch_ring(tmp_path: Path) -> Iterator[Launch]:
    """Starts rings of the test's own, which may end in any way."""
    rings: list[RunningRing] = []

    def launch_one(*options: str) -> RunningRing:
        rings.append(launch(tmp_path / f"ring-{len(rings)}", *options))
        return rings[-1]

    yield launch_one
    for ring in rings:
        if ring.process.poll() is None:
            ring.stop()


def shared_rings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRing]:
    """What gives a ready ring with these options of `signalbox up`, shared by the tests that ask for the same ones
    next. Only the SHARED_RINGS that were asked for last are left running: an idle one takes a twentieth of a core."""
    rings: dict[tuple[str, ...], RunningRing] = {}

    def end(options: tuple[str, ...]) -> None:
        ended = rings.pop(options)
        assert ended.stop() == 0, "".join(ended.output)

    def start(*options: str) -> RunningRing:
        ring = rings.pop(options, None)
        if ring is None or ring.process.poll() is not None:
            if len(rings) >= SHARED_RINGS:
                end(next(iter(rings)))
            ring = launch(tmp_path_factory.mktemp("ring"), "--no-proof", *options)
        rings[options] = ring
        ring.wait_for("signalbox is up")
        return ring

    yield start
    failures = [ring for ring in rings.values() if ring.stop() != 0]
    assert not failures, "".join(failures[0].output)


start_ring = pytest.fixture(scope="package", name="start_ring")(shared_rings)


@pytest.fixture
def ring(start_ring: StartRing) -> RunningRing:
    """The ring that most tests share."""
    return start_ring()
