"""Two releases side by side (R10): who speaks no version of the protocol that the other speaks is refused by name, at
both ends, and its neighbours go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from signalbox import __version__
from signalbox.client import Client
from signalbox.errors import InvalidRequestError
from signalbox.links import versions
from signalbox.v1 import generation_pb2
from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from tests.e2e.faults.test_sim_failures import VOCAB_SIZE, make_prompts, run
from worker_svc.runner.sim.model import continuation

NEXT = """
import runpy, sys
from signalbox.links import versions
versions.NEWEST = versions.OLDEST = 4
versions.__version__ = "9.9.9"
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""
"""Runs a service as a release would that speaks version 4 alone."""
OURS, THEIRS = f"speaks versions 1 to 3 (release {__version__})", "speaks version 4 (release 9.9.9)"
TOKENS = 30
SERVICES = ("scheduler", "relay", "frontend", *WORKERS)


def said(newest: int, oldest: int = 0) -> generation_pb2.ProtocolVersions:
    return generation_pb2.ProtocolVersions(newest=newest, oldest=oldest)


@pytest.mark.parametrize(
    ("ours", "theirs", "is_taken"),
    [
        ((1, 1), said(0), True),
        ((1, 1), said(1), True),
        ((1, 1), said(2, 1), True),
        ((1, 1), said(2), False),
        ((2, 1), said(0), True),
        ((2, 2), said(0), False),
        ((3, 2), said(5, 3), True),
        ((3, 2), said(5, 4), False),
        ((2, 1), said(1, 2), False),
        ((1, 1), said(2**32 - 1, 2**32 - 1), False),
    ],
)
def test_one_version_has_to_be_spoken_by_both(
    ours: tuple[int, int],
    theirs: generation_pb2.ProtocolVersions,
    is_taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R10. Who does not say it speaks version 1."""
    monkeypatch.setattr(versions, "NEWEST", ours[0])
    monkeypatch.setattr(versions, "OLDEST", ours[1])
    if is_taken:
        versions.check_versions(theirs, "they", "we")
        return
    with pytest.raises(InvalidRequestError, match="no version of the protocol is spoken by both") as error:
        versions.check_versions(theirs, "they", "we")
    assert error.value.field == "protocol" and "they speaks" in error.value.message


async def until(condition: Callable[[], bool], what: str, logs: Callable[[], str]) -> None:
    try:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what}\n{logs()}") from None


class NextRing(RelayedRing):
    """A ring in which some services are of the next release."""

    def start_next(self, name: str) -> None:
        """Starts a service that speaks version 4 alone."""
        module, options = self._commands[name]
        with (self._log_dir / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-c", NEXT, module, *options]
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)


async def serve_right(ring: RelayedRing) -> None:
    prompts = make_prompts(6)
    async with Client(ring.grpc) as client:
        results = await asyncio.gather(*(run(client, prompt, TOKENS) for prompt in prompts))
    for prompt, result in zip(prompts, results, strict=True):
        assert list(result.token_ids) == continuation(prompt, TOKENS, VOCAB_SIZE)


async def one_worker(ring: RelayedRing) -> None:
    async with asyncio.timeout(60), Client(ring.grpc) as client:
        while True:
            try:
                if (await client.list_models(timeout_s=2))[0].num_workers == 1:
                    return
            except Exception:
                await asyncio.sleep(0.1)


@pytest.mark.timeout(120)
async def test_a_worker_of_the_next_release_is_refused_and_its_neighbours_go_on(tmp_path: Path) -> None:
    """R10: worker-0 behind the relay, which carries it unread."""
    ring = NextRing(tmp_path)
    for name in ("scheduler", "relay", "frontend", WORKERS[1]):
        ring.start(name)
    try:
        await one_worker(ring)
        ring.start_next(WORKERS[0])
        sentence = f"worker 'worker-0' {THEIRS}, this scheduler {OURS}"
        for name in ("scheduler", WORKERS[0]):
            await until(
                lambda name=name: ring.log(name).count(sentence) >= 2,
                name,
                lambda name=name: ring.log(name),  # type: ignore[misc]
            )
        await serve_right(ring)
        assert set(await ring.workers()) == {WORKERS[1]}
        assert all(process.poll() is None for process in ring.processes().values()), (
            "it waits for its scheduler"
        )
    finally:
        assert set((await asyncio.to_thread(ring.stop)).values()) == {0}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["relay", "frontend", "scheduler"])
async def test_others_of_the_next_release_are_refused_by_name(tmp_path: Path, name: str) -> None:
    """R10: both logs name both versions. The next scheduler is refused by all, as it refuses all."""
    ring = NextRing(tmp_path)
    for each in SERVICES:
        (ring.start_next if each == name else ring.start)(each)
    try:
        await until(lambda: all(map(ring.log, SERVICES)), "a service says nothing", lambda: "")
        seen_by = {"relay": ["relay"], "frontend": ["frontend"], "scheduler": ["relay", "frontend"]}[name]
        for each in ("scheduler", *seen_by):
            await until(
                lambda each=each: OURS in ring.log(each) and THEIRS in ring.log(each),  # type: ignore[misc]
                each,
                lambda: "\n".join(ring.log(one) for one in ("scheduler", "relay", "frontend")),
            )
        assert all(process.poll() is None for process in ring.processes().values())
        assert "Traceback" not in "".join(
            ring.log(each) for each in ("scheduler", "relay", "frontend", *WORKERS)
        )
    finally:
        assert set((await asyncio.to_thread(ring.stop)).values()) == {0}
