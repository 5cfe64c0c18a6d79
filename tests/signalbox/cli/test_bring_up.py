"""A whole run of `signalbox up` over stand-ins for the services: output, exit status, what it leaves."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from signalbox.cli.ring.bring_up import next_steps
from signalbox.cli.ring.ring import Ring
from tests.ports import free_ports
from tests.signalbox.cli.fake_services import alive, pids, wait_until

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[[int, str], subprocess.Popen[str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Starts a ring in a process of its own."""
    processes: list[subprocess.Popen[str]] = []

    def start(port: int, worker: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.signalbox.cli.fake_ring", str(tmp_path), str(port), worker]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """The output up to the line with `words`."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"{words!r} did not come in {lines}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_ready_ring_in_order(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    process = run(free_ports(2)[0], "noting")
    output = read_until(process, "Ctrl-C stops everything")
    assert "frontend is ready" in output
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("stopped\n")
    assert (tmp_path / "notes").read_text().split() == ["worker-0", "scheduler"]
    assert alive(tmp_path) == []


def test_ctrl_c_during_the_start_leaves_nothing(run: Run, tmp_path: Path) -> None:
    process = run(0, "noting")
    wait_until(lambda: len(pids(tmp_path)) == 3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert alive(tmp_path) == []


def test_a_second_ctrl_c_does_not_wait(run: Run, tmp_path: Path) -> None:
    process = run(0, "stubborn")
    wait_until(lambda: len(pids(tmp_path)) == 3 and "deaf" in (tmp_path / "worker-0.log").read_text())
    process.send_signal(signal.SIGINT)
    read_until(process, "stopping")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert alive(tmp_path) == []


def test_a_worker_that_cannot_start_ends_everything(run: Run, tmp_path: Path) -> None:
    _, err = run(0, "refusing").communicate(timeout=30)
    assert err.startswith(
        "signalbox: worker-0 ended with status 1: worker: the model directory /nowhere does not exist\n"
    )
    assert alive(tmp_path) == []


def test_a_service_that_dies_later_ends_everything(run: Run, tmp_path: Path) -> None:
    process = run(free_ports(2)[0], "noting")
    read_until(process, "Ctrl-C stops everything")
    log = tmp_path / "worker-0.log"
    wait_until(lambda: len(log.read_text().split()) > 1)
    pid = int(log.read_text().split()[1])
    subprocess.run(["kill", "-9", str(pid)], check=True)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "worker-0 was ended by SIGKILL" in err
    assert alive(tmp_path) == []


def test_the_services_do_not_outlive_a_killed_supervisor(run: Run, tmp_path: Path) -> None:
    process = run(0, "noting")
    wait_until(lambda: len(pids(tmp_path)) == 3)
    process.kill()
    wait_until(lambda: not alive(tmp_path))


def test_next_steps_name_the_addresses_that_are_not_default() -> None:
    ring = Ring(Path("/m"), "demo", "127.0.0.1:7300", "0.0.0.0:8001", "127.0.0.1:7301", ())
    text = next_steps(ring)
    both = next_steps(replace(ring, standby="127.0.0.1:7302"))
    assert "status --scheduler 127.0.0.1:7300,127.0.0.1:7302\n" in both
    assert "chat --url http://127.0.0.1:8001\n" in text
    assert "status\n" in text
    assert "generate 'def quicksort('\n" in text
