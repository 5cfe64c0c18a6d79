"""`signalbox up` from start to end: the proof, a clean stop, and what it says when something is wrong."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import MODEL, Launch, RunningRing
from tests.ports import free_ports
from tools.packages import SERVICES

SIM = ("--no-proof", "--runner", "sim")
"""Where it does not matter what the worker runs."""


def kill_and_name(ring: RunningRing, package: str) -> None:
    """SIGKILL for the first service of that package."""
    (victim,) = [child for child in ring.services() if package in child.cmdline()]
    victim.kill()


def wait_for_children(ring: RunningRing, count: int) -> list[psutil.Process]:
    give_up = time.monotonic() + 20
    while len(ring.children()) < count:
        assert time.monotonic() < give_up
        time.sleep(0.02)
    return ring.children()


def assert_gone(children: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []


def test_up_proves_itself_and_stops_cleanly(launch_ring: Launch) -> None:
    ring = launch_ring()
    ring.wait_for("Ctrl-C stops everything")
    children = ring.children()
    assert ring.stop() == 0
    output = "".join(ring.output)
    assert "\ndef quicksort(" in output
    made = re.search(r"\((\d+) tokens in ", output)
    assert made and 10 < int(made.group(1)) <= 80
    assert output.endswith("stopped\n")
    assert "killed" not in output
    assert_gone(children)


@pytest.mark.sampled
@pytest.mark.parametrize("delay_s", [0.0, pytest.param(1.0, marks=pytest.mark.fresh)])
def test_ctrl_c_during_the_start_leaves_nothing(launch_ring: Launch, delay_s: float) -> None:
    """A fresh worker starts for seconds, a fork might be ready after one."""
    ring = launch_ring()
    children = wait_for_children(ring, 3)
    time.sleep(delay_s)
    assert ring.stop() == 128 + signal.SIGINT
    assert_gone(children)


@pytest.mark.sampled
@pytest.mark.parametrize("package", SERVICES)
def test_the_death_of_any_service_ends_the_ring(launch_ring: Launch, package: str) -> None:
    ring = launch_ring(*SIM)
    ring.wait_for("signalbox is up")
    children = ring.children()
    kill_and_name(ring, package)
    assert ring.wait_for_end() == 1
    assert any("was ended by SIGKILL" in line for line in ring.output)
    assert_gone(children)


def copy_model(folder: Path) -> Path:
    return Path(shutil.copytree(MODEL, folder / "model"))


def break_nothing_there(folder: Path) -> Path:
    return folder / "nowhere"


def break_empty(folder: Path) -> Path:
    (folder / "model").mkdir()
    return folder / "model"


def break_truncated(folder: Path) -> Path:
    model = copy_model(folder)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    return model


def break_pickled(folder: Path) -> Path:
    model = copy_model(folder)
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    return model


@pytest.mark.sampled
@pytest.mark.parametrize("damage", [break_nothing_there, break_empty, break_truncated, break_pickled])
def test_a_model_that_cannot_be_loaded(launch_ring: Launch, tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    model = damage(tmp_path)
    ring = launch_ring("--model", str(model))
    assert ring.wait_for_end() == 1
    errors = [line for line in ring.output if line.startswith("signalbox: ")]
    assert len(errors) == 1
    assert str(model) in errors[0]
    assert not any("Traceback" in line for line in ring.output)


def test_a_second_ring_on_the_same_ports(launch_ring: Launch) -> None:
    ring = launch_ring(*SIM)
    ring.wait_for("signalbox is up")
    options = ["--scheduler", ring.scheduler, "--grpc", ring.grpc, "--http", ring.http, "--model", str(MODEL)]
    command = [sys.executable, "-m", "signalbox", "up", *options]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    port = ring.scheduler.rpartition(":")[2]
    assert (
        second.stderr == f"signalbox: port {port} on 127.0.0.1 is in use; choose another with --scheduler\n"
    )


@pytest.mark.parametrize(("number", "leaves_logs"), [(signal.SIGTERM, False), (signal.SIGKILL, True)])
def test_the_logs_of_a_ring_that_was_stopped_are_not_kept_those_of_one_that_failed_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, leaves_logs: bool
) -> None:
    """SIGTERM is for the ring, SIGKILL for one of its services."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    http, grpc, scheduler, worker = (f"127.0.0.1:{port}" for port in free_ports(4))
    command = [sys.executable, "-m", "signalbox", "up", *SIM, "--http", http, "--grpc", grpc]
    command += ["--scheduler", scheduler, "--worker-listen", worker]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    lines = iter(process.stdout.readline, "")
    assert any("signalbox is up" in line for line in lines)
    victim = psutil.Process(process.pid).children()[0] if leaves_logs else process
    victim.send_signal(number)
    rest = "".join(lines)
    assert process.wait(60) == int(leaves_logs), rest
    left = list(tmp_path.iterdir())
    assert len(left) == leaves_logs
    assert not leaves_logs or str(left[0]) in rest


def test_an_unknown_setting_is_refused(launch_ring: Launch) -> None:
    ring = launch_ring("--worker-set", "num-blokcs=3")
    assert ring.wait_for_end() == 1
    assert any("--num-blokcs=3" in line for line in ring.output)
