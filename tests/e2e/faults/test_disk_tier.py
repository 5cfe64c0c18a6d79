"""The disk tier through all services: what was computed before everything was stopped, or killed, is there again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from signalbox.client import Client
from signalbox.protocol.model_identity import ModelIdentity
from tests.e2e.conftest import Launch, RunningRing
from worker_svc.runner.sim.model import continuation

VOCAB_SIZE = 4096
WEIGHTS = ModelIdentity("first")
PROMPT = [7 * i % 4000 for i in range(600)]
WAIT_S = 20.0


def options(directory: Path, *others: str) -> list[str]:
    """Of a ring whose model takes its time to compute."""
    settings = [
        "num-blocks=400",
        "sim-weights=first",
        "sim-base-ms=1",
        "sim-token-ms=1",
        f"kv-disk={directory}",
    ]
    sets = [word for each in (*settings, *others) for word in ("--worker-set", each)]
    return ["--no-proof", "--runner", "sim", "--block-size", "4", *sets]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*/*.kv"))


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


async def ask(
    ring: RunningRing, prompt: list[int], max_tokens: int = 8, weights: ModelIdentity = WEIGHTS
) -> int:
    """Tokens of the prompt that needed no computing; the answer is what an undisturbed run gives."""
    async with Client(ring.grpc) as client:
        call = client.generate(prompt, max_tokens=max_tokens, temperature=0, ignore_eos=True)
        result = await call.result()
    assert list(result.token_ids) == continuation(prompt, max_tokens, VOCAB_SIZE, weights)
    return result.finished.num_cached_tokens


def start(launch_ring: Launch, *words: str) -> RunningRing:
    ring = launch_ring(*words)
    ring.wait_for("signalbox is up")
    return ring


def kill(ring: RunningRing) -> None:
    """All services at once, without a word."""
    children = ring.children()
    ring.process.send_signal(signal.SIGKILL)
    for child in children:
        child.kill()
    ring.wait_for_end()


@pytest.mark.slow
@pytest.mark.parametrize("end", [kill, RunningRing.stop])
async def test_a_conversation_from_before_a_restart_of_everything_hits(
    launch_ring: Launch, tmp_path: Path, end: Callable[[RunningRing], object]
) -> None:
    """DT1, DT2, DT4."""
    words, disk = options(tmp_path / "kv"), tmp_path / "kv"
    ring = start(launch_ring, *words)
    assert await ask(ring, PROMPT) == 0
    wait_until(lambda: sum(path.stat().st_size for path in segments(disk)) >= 150 * 32)
    end(ring)
    ring = start(launch_ring, *words)
    first_answer = continuation(PROMPT, 8, VOCAB_SIZE, WEIGHTS)
    assert await ask(ring, [*PROMPT, *first_answer, 1, 2, 3]) >= 600
    ring.stop()


@pytest.mark.slow
async def test_damaged_files_are_computed_anew_and_others_weights_are_not_taken(
    launch_ring: Launch, tmp_path: Path
) -> None:
    """DT1, DT2, DT5: with the tokens of an undisturbed run."""
    words, disk = options(tmp_path / "kv"), tmp_path / "kv"
    ring = start(launch_ring, *words)
    await ask(ring, PROMPT)
    wait_until(lambda: sum(path.stat().st_size for path in segments(disk)) >= 150 * 32)
    ring.stop()
    for path in segments(disk):
        raw = bytearray(path.read_bytes())
        raw[len(raw) * 3 // 4] ^= 1  # a block in the middle of the prompt
        path.write_bytes(raw)
    ring = start(launch_ring, *words)
    assert await ask(ring, [*PROMPT, 1, 2, 3]) < 600
    ring.stop()
    others = ["sim-weights=second" if word == "sim-weights=first" else word for word in words]
    ring = start(launch_ring, *others)
    assert await ask(ring, PROMPT, weights=ModelIdentity("second")) == 0
    ring.stop()


@pytest.mark.slow
async def test_a_directory_that_is_none_costs_no_request(launch_ring: Launch, tmp_path: Path) -> None:
    """DT5: a file stands in its place. A process of root's can write anywhere, so that is not tried."""
    (tmp_path / "kv").write_text("a file")
    ring = start(launch_ring, *options(tmp_path / "kv"))
    for _ in range(2):
        await ask(ring, PROMPT)
    wait_until(lambda: "nothing is stored for a while" in ring.logs())
    assert await ask(ring, [*PROMPT, 5]) >= 596  # of the device
    ring.stop()


@pytest.mark.slow
async def test_two_workers_share_a_directory_of_few_bytes(launch_ring: Launch, tmp_path: Path) -> None:
    """DT2, DT8: each finds what the other has written, and both keep the bound. A disk that was slow once is left
    alone for some seconds (DT5): so prompts are asked again until one hits."""
    disk, most, num_prompts = tmp_path / "kv", 1 << 20, 12
    words = [*options(disk, f"kv-disk-bytes={most}"), "--workers", "2"]
    ring = start(launch_ring, *words)
    for number in range(num_prompts):
        await ask(ring, [number, *PROMPT])
    wait_until(lambda: sum(path.stat().st_size for path in segments(disk)) >= num_prompts * 150 * 32)
    kill(ring)
    assert sum(path.stat().st_size for path in segments(disk)) <= most
    ring = start(launch_ring, *words)
    for number in range(num_prompts):
        if await ask(ring, [number, *PROMPT, 9]):
            break
        time.sleep(1)
    else:
        raise AssertionError(f"nothing was found again:\n{ring.logs()}")
    ring.stop()
