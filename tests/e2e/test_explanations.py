"""`signalbox status REQUEST` and refusals say why: with real processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import httpx
import pytest

from signalbox.client import Client, Generation
from signalbox.errors import CancelledError, ResourceExhaustedError
from tests.e2e.conftest import RunningRing, StartRing

OPTIONS = (
    *("--runner", "sim", "--worker-set", "sim-base-ms=50"),
    *("--scheduler-set", "max-num-seqs=1", "--scheduler-set", "max-waiting=2"),
)
GIVE_UP_S = 60


@pytest.fixture
def ring(start_ring: StartRing) -> RunningRing:
    return start_ring(*OPTIONS)


def ask(ring: RunningRing, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "signalbox", "status", *arguments, "--scheduler", ring.scheduler]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def explained(ring: RunningRing, name: str) -> list[dict[str, Any]]:
    """What is said of the requests of that name; nothing when there is none."""
    answer = await asyncio.to_thread(ask, ring, name, "--json")
    requests: list[dict[str, Any]] = json.loads(answer.stdout)["requests"] if answer.stdout else []
    assert answer.returncode == (0 if requests else 1)
    return requests


async def wait_for(ring: RunningRing, name: str, reason: str | None) -> list[dict[str, Any]]:
    """Returns when that is why the requests of that name wait; None: when there is none."""
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            found = await explained(ring, name)
            if [each["reason"] for each in found[:1]] == ([reason] if reason else []):
                return found


def generate(client: Client, name: str, **options: Any) -> Generation:
    prompt = list(range(20))
    return client.generate(prompt, request_id=name, max_tokens=900, ignore_eos=True, **options)


@pytest.mark.slow
async def test_a_request_behind_a_full_batch_is_told_so_until_it_runs(ring: RunningRing) -> None:
    async with Client(ring.grpc) as client:
        first = generate(client, "first")
        await anext(first)
        second = generate(client, "second")
        waiting = asyncio.create_task(anext(second))
        (told,) = await wait_for(ring, "second", "no_place")
        assert (told["status"], told["num_ahead"], told["worker_id"]) == ("waiting", 0, "")
        assert told["sentence"] == "all 1 places of worker-0 are taken (max_num_seqs 1)"
        assert told["waiting_ms"] > 0 and told["num_prompt_tokens"] == 20
        lines = (await asyncio.to_thread(ask, ring, "second")).stdout.splitlines()
        assert lines[0] == "request second"
        assert lines[1].startswith("  status    waiting, waits for ")
        assert lines[2:4] == [
            "  why       no_place: all 1 places of worker-0 are taken (max_num_seqs 1)",
            "  in line   first",
        ]
        (running,) = await explained(ring, "first")
        assert (running["status"], running["reason"], running["waiting_ms"]) == ("running", "runs", None)
        assert running["worker_id"] == "worker-0" and running["max_output_tokens"] == 900
        first.cancel()
        await wait_for(ring, "second", "runs")
        await waiting
        second.cancel()
        await wait_for(ring, "second", None)


@pytest.mark.slow
async def test_all_choices_of_a_call_are_found_by_its_id(ring: RunningRing) -> None:
    async with Client(ring.grpc) as client:
        call = generate(client, "many", n=2)
        await anext(call)
        names = [each["request_id"] for each in await explained(ring, "many")]
        assert names == ["many", "many.1"]
        call.cancel()
        await wait_for(ring, "many", None)


def test_an_unknown_request_is_an_exit_status_of_its_own(ring: RunningRing) -> None:
    done = ask(ring, "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "signalbox: the scheduler knows no request 'nobody': it has ended, was refused, or has not come there\n"
    )


async def test_a_refusal_names_the_limit_and_when_to_try_again(ring: RunningRing) -> None:
    words = "max_waiting: 2 of 2 requests for 'demo' wait already; try again in 1 s"
    async with Client(ring.grpc) as client, httpx.AsyncClient(base_url=ring.url) as http:
        first = generate(client, "first")
        await anext(first)
        second = generate(client, "second", n=2)
        waiting = asyncio.create_task(anext(second))
        await wait_for(ring, "second.1", "no_place")
        with pytest.raises(ResourceExhaustedError) as caught:
            await generate(client, "third").result()
        assert (caught.value.message, caught.value.retry_after_s) == (words, 1)
        answer = await http.post("/v1/completions", json={"prompt": "a"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["message"] == words
        for call in (first, second):
            call.cancel()
        with pytest.raises(CancelledError):
            await waiting
