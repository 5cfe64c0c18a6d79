"""A ring on a machine that is not as a developer's, with everything at once that a start there may meet."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.signalbox.cli.environments import (
    NAMELESS,
    OWN_MOUNTS,
    SIGNALBOX,
    can_unshare,
    homeless,
    hostile_directory,
)

pytestmark = [
    pytest.mark.fresh,
    pytest.mark.skipif(sys.platform != "linux", reason="it is about users, mounts and limits of Linux"),
]
PROXY = "http://127.0.0.1:9"
"""Nothing listens there."""
LIMITS = "ulimit -Sn 96; ulimit -Hn 192; umask 077; "
FULL = 'mount -t tmpfs -o size=16k none "$0"; head -c 20000 /dev/zero > "$0/filler" 2> /dev/null || true; '
"""Begins a script whose first argument is a directory: makes it that of a full disk."""


@dataclass
class Machine:
    """What every command on it is started with."""

    folder: Path
    here: Path
    """A working directory with a hostile file for each module."""
    full: Path
    """Directory that is on a full disk, where this machine lets us make one."""
    environment: dict[str, str]
    prefix: tuple[str, ...]

    def start(self, *command: str) -> subprocess.Popen[str]:
        """The command with closed stdin, and with stdout and stderr in one pipe."""
        words = ["sh", "-ec", LIMITS + 'exec "$@" <&-', "sh", *self.prefix, *command]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            words,
            cwd=self.here,
            env=self.environment,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            encoding="ascii",
        )

    def run(self, *command: str) -> str:
        """What a command says that must not fail."""
        process = self.start(*command)
        said, _ = process.communicate(timeout=100)
        assert process.returncode == 0, said
        return said


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """No home, no name, a full disk, proxies, long paths, few files, ASCII, and a terminal that can do nothing."""
    full, temporary = tmp_path / "full", tmp_path / ("long-" * 25)
    full.mkdir()
    temporary.mkdir()
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "ALL_PROXY"), PROXY)
    on_full = dict.fromkeys(("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"), str(full))
    terminal = {"TERM": "dumb", "COLUMNS": "20", "LINES": "5"}
    letters = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    environment = homeless(TMPDIR=str(temporary), **proxies, **on_full, **terminal, **letters)
    prefix: tuple[str, ...] = ()
    if can_unshare():
        prefix = (*OWN_MOUNTS, FULL + 'exec "$@"', str(full), *NAMELESS)
    return Machine(tmp_path, hostile_directory(tmp_path), full, environment, prefix)


@dataclass
class Ring:
    """A `signalbox up` on such a machine."""

    process: subprocess.Popen[str]
    http: str
    grpc: str
    scheduler: str


@pytest.fixture
def ring(machine: Machine) -> Iterator[Ring]:
    """Comes up, or the test fails with what it says."""
    web, grpc, scheduler, worker = (f"127.0.0.1:{port}" for port in free_ports(4))
    places = ["--http", web, "--grpc", grpc, "--scheduler", scheduler, "--worker-listen", worker]
    process = machine.start(
        SIGNALBOX, "up", "--runner", "sim", "--no-proof", "--log-dir", str(machine.full), *places
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if "Ctrl-C stops everything" in line:
                break
        assert "signalbox is up:\n" in said, "".join(said)
        assert any(f"curl --noproxy '*' http://{web}/v1" in line for line in said)
        yield Ring(process, web, grpc, scheduler)
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        process.wait(100)


def complete(ring: Ring, more: dict[str, object]) -> tuple[int, Any]:
    """Status and body of a completion."""
    body = {"model": "demo", "prompt": "hi", "max_tokens": 4} | more
    connection = http.client.HTTPConnection(ring.http, timeout=100)
    with closing(connection):
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.load(response)


def test_a_ring_serves_on_a_machine_that_has_next_to_nothing(machine: Machine, ring: Ring) -> None:
    """Commands, an answer over HTTP, a form that another process refuses, and an end in order without a reader."""
    assert "1 worker" in machine.run(SIGNALBOX, "status", "--scheduler", ring.scheduler)
    assert machine.run(SIGNALBOX, "generate", "hi", "--max-tokens", "40", "--address", ring.grpc)
    assert "worker-0" in machine.run(SIGNALBOX, "top", "--once", "--scheduler", ring.scheduler)
    assert complete(ring, {})[0] == 200
    status, answer = complete(ring, {"guided_regex": "("})
    assert (status, answer["error"]["param"]) == (400, "guided_regex")
    ring.process.send_signal(signal.SIGINT)
    assert ring.process.stdout is not None
    ring.process.stdout.close()
    assert ring.process.wait(100) == 0
    assert not (machine.folder / "ran").exists()
