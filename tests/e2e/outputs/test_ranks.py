"""A worker of two processes in a ring (RK): the answers of one, what is told of it, and that nothing stays behind."""

from __future__ import annotations

import subprocess
import sys

import httpx
import psutil
import pytest

from tests.e2e.conftest import Launch
from tests.e2e.test_ring import complete, read_status
from tests.ports import free_ports

PROMPTS = ("def quicksort(items):\n", "class Worker:\n    def __init__(self", "import os\n\n\ndef ")

PLAIN: list[str] = []
"""The answers of one process, once a test has asked it."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "parts", [pytest.param("tensor-parallel=2", marks=pytest.mark.fresh), "pipeline-parallel=2"]
)
async def test_a_ring_with_a_worker_of_two_ranks(launch_ring: Launch, parts: str) -> None:
    """RK6, RK12."""
    (port,) = free_ports(1)
    settings = ("--worker-set", parts, "--worker-set", "threads=1")
    ring = launch_ring("--dtype", "float32", *settings, "--worker-set", f"metrics=127.0.0.1:{port}")
    ring.wait_for("signalbox is up")
    outputs = [(await complete(ring, prompt)).text for prompt in PROMPTS]
    assert outputs == [(await complete(ring, prompt)).text for prompt in PROMPTS]

    (worker,) = read_status(ring)["workers"]
    assert worker["num_ranks"] == 2
    command = [sys.executable, "-m", "signalbox", "status", "--scheduler", ring.scheduler]
    assert "2 ranks" in subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    for rank in (0, 1):
        assert f'signalbox_worker_rank_seconds_total{{part="collectives",rank="{rank}"}}' in text

    ranks = [child for child in ring.children() if "worker_svc.ranks" in child.cmdline()]
    assert len(ranks) == 1
    ring.stop()
    _, outliving = psutil.wait_procs(ranks, timeout=10)
    assert not outliving, "a rank outlives its worker"

    if not PLAIN:
        plain = launch_ring("--dtype", "float32")
        plain.wait_for("signalbox is up")
        PLAIN.extend([(await complete(plain, prompt)).text for prompt in PROMPTS])
    assert outputs == PLAIN
