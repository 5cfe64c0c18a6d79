"""`signalbox bench serve`: its own ring, its figures, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

SMALL = ("--streams", "1", "4", "--prompt-tokens", "16", "--output-tokens", "24", "--repeat", "2")
COMMAND = (sys.executable, "-m", "signalbox", "bench", "serve")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where processes put their temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_simulated_ring_is_measured() -> None:
    options = ("--runner", "sim", "--worker-set", "sim-base-ms=4", "--json")
    done = subprocess.run(
        [*COMMAND, *SMALL, *options], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    one, four = (json.loads(line) for line in done.stdout.splitlines())
    assert (one["streams"], four["streams"]) == (1, 4)
    for line in (one, four):
        assert line["system"] == "signalbox"
        assert 24 <= line["steps"] <= 60
        assert line["step_execute_ms"] <= line["step_ms"]
        # 24 steps at least make tokens, of 4 ms each; one that only ends requests runs no model.
        assert line["step_execute_ms"] * line["steps"] >= 0.99 * 24 * 4
        assert 0 <= line["worker_idle_share"] <= line["step_else_share"] < 1
        assert line["itl_ms_p50"] >= 3.9
        assert {f"cpu_s_{name}" for name in ("scheduler", "frontend", "worker-0", "client")} <= set(line)
    assert one["output_tok_s"] < 250  # a step takes 4 ms
    assert one["decode_tok_s"] < four["decode_tok_s"]


@pytest.mark.slow
def test_the_http_face_is_measured_with_a_core_for_the_frontend_alone() -> None:
    options = (
        "--runner",
        "sim",
        "--worker-set",
        "sim-base-ms=4",
        "--over",
        "http",
        "--pin-frontend",
        "--json",
    )
    done = subprocess.run(
        [*COMMAND, *SMALL, *options], capture_output=True, text=True, timeout=90, check=False
    )
    if len(os.sched_getaffinity(0)) < 2:
        assert "a core for the frontend alone needs" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    for line in map(json.loads, done.stdout.splitlines()):
        assert line["over"] == "http"
        assert 0.5 < line["messages_per_token"] <= 1
        assert 0 < line["delivery_ms_p50"] <= line["delivery_ms_p99"]
        assert line["frontend_tok_cpu_s"] > 0


@pytest.mark.slow
def test_the_demo_model_is_compared_with_transformers_and_the_machine() -> None:
    options = ("--streams", "2", "--prompt-tokens", "8", "--output-tokens", "12", "--repeat", "1")
    done = subprocess.run(
        [*COMMAND, *options, "--reference", "--dtype", "float32", "--threads", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {line["system"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert list(found) == ["signalbox", "machine", "transformers", "ceiling"]
    assert found["machine"]["param_bytes"] == 4
    assert found["machine"]["read_bytes_s"] > 1e8
    ours = found["signalbox"]["output_tok_s"]
    for other in ("transformers", "ceiling"):
        assert found[other]["output_tok_s_ratio"] == pytest.approx(
            ours / found[other]["output_tok_s"], rel=0.01
        )
    assert found["ceiling"]["output_tok_s_ratio"] < 1


@pytest.mark.slow
def test_what_cannot_be_measured_is_said_and_the_ring_is_stopped(scratch: Path) -> None:
    options = ("--runner", "sim", "--prompt-tokens", "5000")
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "signalbox: a request failed: this model's maximum context length is" in done.stderr
    assert not list(scratch.iterdir())


def test_a_service_that_fails_leaves_its_log(scratch: Path) -> None:
    options = ("--runner", "sim", "--worker-set", "num-blokcs=3")
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (logs,) = scratch.iterdir()
    assert f"the services' logs are in {logs}" in done.stderr
    assert "num-blokcs" in (logs / "worker-0.log").read_text()


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(number: signal.Signals, scratch: Path) -> None:
    options = ("--runner", "sim", "--output-tokens", "2000", "--repeat", "50")
    # A shell that runs the tests in its background has SIGINT ignored, and so would the bench.
    command = ["env", "--default-signal=INT", *COMMAND, *options]
    bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 30
        while len(children := psutil.Process(bench.pid).children()) < 3:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        time.sleep(1)
        bench.send_signal(number)
        assert bench.wait(40) == 128 + number
    finally:
        bench.terminate()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    assert not list(scratch.iterdir())
