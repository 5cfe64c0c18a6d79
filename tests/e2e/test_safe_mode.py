"""`signalbox safe-mode` and `signalbox reload-tenants`, before real services."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signalbox.client import Client, Generation
from signalbox.errors import InvalidRequestError
from tests.e2e.conftest import Launch, RunningRing

SIM = ("--no-proof", "--runner", "sim", "--worker-set", "sim-base-ms=5")
TIMEOUT_S = 60.0


async def signalbox(ring: RunningRing, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "signalbox", *arguments, "--scheduler", ring.scheduler]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


async def safe_mode_of(ring: RunningRing) -> dict[str, Any]:
    status = json.loads((await signalbox(ring, "status", "--json")).stdout)
    return dict(status["safe_mode"])


async def wait_until(holds: Callable[[dict[str, Any]], bool], ring: RunningRing) -> None:
    give_up = time.monotonic() + TIMEOUT_S
    while not holds(found := await safe_mode_of(ring)):
        assert time.monotonic() < give_up, found


def generate(client: Client, count: int, priority: int) -> Generation:
    return client.generate(
        list(range(20)), max_tokens=count, temperature=0, ignore_eos=True, priority=priority
    )


@pytest.mark.slow
async def test_an_operator_suspends_a_class_and_lets_it_go_on(launch_ring: Launch) -> None:
    ring = launch_ring(*SIM, "--scheduler-set", "policy=priority")
    ring.wait_for("signalbox is up")
    assert (await signalbox(ring, "safe-mode", "status")).stdout == "safe mode is off\n"
    async with Client(ring.grpc) as client:
        running = generate(client, 1000, priority=2)
        await anext(running)
        told = await signalbox(ring, "safe-mode", "on", "--level", "1")
        assert told.stdout == (
            "safe mode: priority numbers above 1 are suspended by an operator; 0 requests wait, 1 is paused\n"
        )
        waiting = asyncio.create_task(generate(client, 5, priority=2).result())
        await wait_until(lambda mode: mode["num_waiting"] == 1, ring)
        kept = await generate(client, 50, priority=1).result()
        assert kept.finished.num_output_tokens == 50, "those that are kept go on"
        assert not waiting.done()
        mode = await safe_mode_of(ring)
        assert (mode["operator_level"], mode["budget_level"], mode["num_paused"]) == (1, None, 1)
        assert "1 is paused" in (await signalbox(ring, "status")).stdout
        assert (await signalbox(ring, "safe-mode", "off")).stdout == "safe mode is off\n"
        assert (await waiting).finished.num_output_tokens == 5
        assert (await running.result()).finished.num_output_tokens == 1000


@pytest.mark.slow
async def test_late_first_tokens_suspend_the_lower_class_until_they_are_over(launch_ring: Launch) -> None:
    settings = ("policy=priority", "safe-mode-ttft-ms=1", "safe-mode-window-s=3", "safe-mode-lift-s=0.5")
    ring = launch_ring(*SIM, *(part for setting in settings for part in ("--scheduler-set", setting)))
    ring.wait_for("signalbox is up")
    async with Client(ring.grpc) as client:
        running = generate(client, 1000, priority=2)
        await anext(running)
        for _ in range(6):  # a step takes 5 ms, and 1 is promised
            await generate(client, 1, priority=0).result()
        await wait_until(lambda mode: mode["budget_level"] == 0, ring)
        await wait_until(lambda mode: mode["budget_level"] is None, ring)
        assert (await running.result()).finished.num_output_tokens == 1000
    assert "safe mode by the error budget is lifted" in ring.logs()


async def test_a_policy_without_classes_says_so(launch_ring: Launch, tmp_path: Path) -> None:
    """And the file of tenants is read when an operator says so."""
    path = tmp_path / "tenants.toml"
    path.write_text("[tenants.acme]\nweight = 2\n")
    ring = launch_ring(*SIM, "--scheduler-set", f"tenants={path}")
    ring.wait_for("signalbox is up")
    refused = await signalbox(ring, "safe-mode", "on", "--level", "0")
    assert refused.returncode == 1
    assert refused.stderr == "signalbox: safe mode suspends classes, and the policy 'fcfs' has none\n"
    path.write_text("[default]\nbest_priority = 3\n[tenants.acme]\n[tenants.other]\n")
    assert (await signalbox(ring, "reload-tenants")).stdout == (
        "the limits of 2 named tenants are in force\n"
    )
    path.write_text("[default]\nbest_priority = 3\n[tenants.acme\n")
    wrong = await signalbox(ring, "reload-tenants")
    assert wrong.returncode == 1
    assert "line 3" in wrong.stderr and "the limits stay as they are" in wrong.stderr
    path.write_text("[tenants.acme]\nweight = -1\n")
    assert "tenants.acme.weight" in (await signalbox(ring, "reload-tenants")).stderr
    async with Client(ring.grpc) as client:
        with pytest.raises(InvalidRequestError, match="may ask for 3 or more"):
            await generate(client, 1, priority=2).result()
