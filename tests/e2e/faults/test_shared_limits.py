"""One key at two frontend processes of a ring: together they let in what one would, and one that is killed gives its
loan back."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import psutil

from signalbox.api_keys import make_key
from tests.contract.processes import Process
from tests.e2e.conftest import MODEL, Launch, RunningRing
from tests.ports import free_ports

SIM = ("--no-proof", "--runner", "sim", "--worker-set", "sim-base-ms=100")
GRACE_S = 2.0
NUM_REQUESTS, NUM_TOKENS, NUM_AT_ONCE = 20, 90, 2
LONG = {"model": "demo", "prompt": [1, 2, 3], "max_tokens": 240, "ignore_eos": True, "stream": True}
SHORT = {"model": "demo", "prompt": list(range(1, 10)), "max_tokens": 1}


def write_keys(path: Path, **limits: dict[str, int]) -> dict[str, httpx.Headers]:
    """A key for each name, and the header that says it."""
    keys = {name: make_key() for name in limits}
    path.write_text(
        "".join(
            f'"{key.key_id}" = {{ hash = "{key.hash}", tenant = "{name}"'
            + "".join(f", {field} = {value}" for field, value in limits[name].items())
            + " }\n"
            for name, key in keys.items()
        )
    )
    return {name: httpx.Headers({"authorization": f"Bearer {key.text}"}) for name, key in keys.items()}


def start_second(ring: RunningRing, key_file: Path, log: Path) -> tuple[Process, str]:
    """Another frontend of the ring; its URL."""
    http, grpc = (f"127.0.0.1:{port}" for port in free_ports(2))
    argv = [
        sys.executable,
        "-m",
        "frontend_svc",
        "--scheduler",
        ring.scheduler,
        "--http",
        http,
        "--grpc",
        grpc,
    ]
    argv += ["--model", str(MODEL), "--served-model-name", "demo", "--key-file", str(key_file)]
    process = Process(argv, log)
    process.wait_for(f"http://{http}/ready")
    return process, f"http://{http}"


async def open_stream(stack: AsyncExitStack, client: httpx.AsyncClient, url: str) -> httpx.Response:
    """A request that runs until the stack is closed, or a refusal, read."""
    answer = await stack.enter_async_context(client.stream("POST", f"{url}/v1/completions", json=LONG))
    if answer.status_code == 200:
        body = answer.aiter_bytes()
        await anext(body)
        stack.push_async_callback(body.aclose)  # without somebody who has it the connection is closed
    else:
        await answer.aread()
    return answer


async def test_two_frontends_let_in_what_one_would(launch_ring: Launch, tmp_path: Path) -> None:
    """KB1, KB2, KB3: requests at once and per minute, tokens per minute; one of the two is killed in the middle."""
    key_file = tmp_path / "keys.toml"
    headers = write_keys(
        key_file,
        requests={"requests_at_once": NUM_AT_ONCE, "requests_per_minute": NUM_REQUESTS},
        tokens={"tokens_per_minute": NUM_TOKENS},
    )
    grace = ("--scheduler-set", f"frontend-grace-s={GRACE_S}")
    ring = launch_ring(*SIM, *grace, "--frontend-set", f"key-file={key_file}")
    ring.wait_for("signalbox is up")
    second, second_url = start_second(ring, key_file, tmp_path / "second.log")
    try:
        async with httpx.AsyncClient(headers=headers["tokens"], timeout=20) as client:
            await share_tokens(client, [ring.url, second_url])
        async with httpx.AsyncClient(headers=headers["requests"], timeout=20) as client:
            await share_requests(client, ring.url, second_url, second)
    finally:
        second.stop()


async def share_tokens(client: httpx.AsyncClient, urls: list[str]) -> None:
    """By turns, until one of them refuses; an output of the last moment may not be known to the other (KB6)."""
    began_s, num_served, cost = time.monotonic(), 0, len(SHORT["prompt"]) + 1  # type: ignore[arg-type]
    while True:
        answer = await client.post(f"{urls[num_served % 2]}/v1/completions", json=SHORT)
        if answer.status_code != 200:
            break
        num_served += 1
    assert (answer.status_code, "tokens_per_minute" in answer.text) == (429, True), answer.text
    assert int(answer.headers["retry-after"]) >= 1
    filled = (time.monotonic() - began_s) * NUM_TOKENS / 60
    spare = len(urls) * (NUM_TOKENS // 64)
    assert NUM_TOKENS - spare - cost < num_served * cost <= NUM_TOKENS + filled + spare + 2


async def share_requests(client: httpx.AsyncClient, first_url: str, second_url: str, second: Process) -> None:
    """A place each; the killed one's comes back, and what it has let in stays let in."""
    began_s, num_served = time.monotonic(), NUM_AT_ONCE
    async with AsyncExitStack() as stack:
        lost = AsyncExitStack()
        for each, url in ((stack, first_url), (lost, second_url)):
            answer = await open_stream(each, client, url)
            assert answer.status_code == 200, answer.text
        for url in (first_url, second_url):
            answer = await open_stream(stack, client, url)
            assert (answer.status_code, "requests_at_once" in answer.text) == (429, True), answer.text
        psutil.Process(second.pid).send_signal(signal.SIGKILL)
        with suppress(httpx.TransportError):
            await lost.aclose()
        async with asyncio.timeout(20):
            while (answer := await open_stream(stack, client, first_url)).status_code != 200:
                assert "requests_at_once" in answer.text
                await asyncio.sleep(0.1)
        num_served += 1
    num_served += await use_up(client, first_url)
    filled = (time.monotonic() - began_s) * NUM_REQUESTS / 60
    assert NUM_REQUESTS <= num_served <= NUM_REQUESTS + filled


async def use_up(client: httpx.AsyncClient, url: str) -> int:
    """How many calls are served until the limit per minute is reached."""
    num_served = 0
    while True:
        answer = await client.post(f"{url}/tokenize", json={"model": "demo", "prompt": "the fox"})
        if answer.status_code == 200:
            num_served += 1
        elif "requests_per_minute" in answer.text:
            return num_served
        else:  # the places of the streams are about to come back
            assert "requests_at_once" in answer.text
            await asyncio.sleep(0.05)
