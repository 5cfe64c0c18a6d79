"""Clients of the public ports that are broken or mean harm: nobody else loses a stream, and memory stays bounded.

A frontend with a key file: some of them have a key, as anybody may who is given one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import httpx
import pytest

from signalbox.api_keys import NewKey, make_key
from signalbox.client import Client
from tests.contract.odd_heads import OddHeads
from tests.contract.test_hostile_peers import MOST_GROWTH_BYTES, SIM, TOKENS, memory_of
from tests.contract.test_openai_sdk import assert_empty
from tests.e2e.conftest import RunningRing, StartRing
from tests.e2e.faults.test_sim_failures import VOCAB_SIZE, make_prompts, run
from worker_svc.runner.sim.model import continuation

SCALE = int(os.environ.get("SIGNALBOX_FUZZ", "1"))
NUM_CONNECTIONS = 1000 * SCALE
AT_ONCE = 8
LIMIT_S = 20
"""Whoever said all that they had to say has an answer by then, or is left: what comes is bounded by `head_s`."""
HONEST, ODD = make_key(), make_key()
"""Of two tenants."""
Attack = Callable[[int], Awaitable[int]]
"""Gets a number, and returns how many answers it got."""


@pytest.fixture(scope="module")
def ring(start_ring: StartRing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRing]:
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys.write_text("".join(_line(key, tenant) for key, tenant in ((HONEST, "honest"), (ODD, "odd"))))
    return start_ring(*SIM, "--frontend-set", f"key-file={keys}")


def _line(key: NewKey, tenant: str) -> str:
    return f'"{key.key_id}" = {{ hash = "{key.hash}", tenant = "{tenant}" }}\n'


async def use(ring: RunningRing, until: asyncio.Event) -> int:
    """Honest clients of both faces; returns how many were served. Asserts that each got what it should."""
    prompts, served = make_prompts(8), 0
    headers = {"authorization": f"Bearer {HONEST.text}"}
    async with (
        Client(ring.grpc, api_key=HONEST.text) as client,
        httpx.AsyncClient(base_url=ring.url, headers=headers, timeout=60) as http,
    ):
        while not until.is_set():
            results = await asyncio.gather(*(run(client, prompt, TOKENS) for prompt in prompts[:4]))
            told = [list(result.token_ids) for result in results]
            told += await asyncio.gather(*(stream(http, prompt) for prompt in prompts[4:]))
            assert told == [continuation(prompt, TOKENS, VOCAB_SIZE) for prompt in prompts]
            served += len(told)
    return served


async def stream(http: httpx.AsyncClient, prompt: list[int]) -> list[int]:
    """The tokens of a stream over HTTP, which has to end as it should."""
    body = {"model": "demo", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    tokens: list[int] = []
    async with http.stream(
        "POST", "/v1/completions", json=body | {"stream": True, "return_token_ids": True}
    ) as answer:
        assert answer.status_code == 200, await answer.aread()
        events = [line.removeprefix("data: ") async for line in answer.aiter_lines() if line]
    for event in events[:-1]:
        tokens += json.loads(event)["choices"][0]["token_ids"]
    assert events[-1] == "[DONE]"
    return tokens


async def attack(one: Attack, count: int, until: asyncio.Event) -> int:
    """Makes `count` attacks, some at a time; returns how many answers they got."""
    numbers = iter(range(count))

    async def go_on() -> int:
        return sum([await one(number) for number in numbers])

    try:
        return sum(await asyncio.gather(*(go_on() for _ in range(AT_ONCE))))
    finally:
        until.set()


async def check_harmless(ring: RunningRing, one: Attack, count: int) -> None:
    before, until = memory_of(ring), asyncio.Event()
    served, answers = await asyncio.gather(use(ring, until), attack(one, count, until))
    assert served, "nobody was served meanwhile"
    assert answers >= count // 4, "what nobody hears attacks nothing"
    assert_empty(ring)
    after = memory_of(ring)
    assert after.keys() == before.keys(), f"a service has ended\n{ring.logs()}"
    grown = {pid: after[pid] - before[pid] for pid in before}
    assert max(grown.values()) < MOST_GROWTH_BYTES, grown
    assert "Traceback" not in ring.logs(), ring.logs()


# ---- HTTP

HEADER = re.compile(rb"[\w-]+: [\x20-\x7e]*")


async def say(address: str, parts: list[bytes], *, leaves: bool) -> bytes:
    """All that is answered to a client that says this and no more; nothing to one that `leaves` at once. Fails where
    the connection is not ended in time."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    heard = b""
    with suppress(OSError):  # an end that the server has made already
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if leaves:
            writer.transport.abort()
            return b""
        writer.write_eof()
    with suppress(ConnectionError):
        async with asyncio.timeout(LIMIT_S):
            while data := await reader.read(65536):
                heard += data
    writer.close()
    return heard


def check_answers(heard: bytes, said: list[bytes]) -> int:
    """How many answers there are. Asserts that none is an error of ours, or has a header that the client has made."""
    count = 0
    for head in re.findall(rb"(?:\A|(?<=[^\r\n]))HTTP/1\.1 .*?\r\n\r\n", heard, re.DOTALL):
        status, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        assert re.fullmatch(rb"HTTP/1\.1 [1-4]\d\d [\w -]+", status), (said, heard)
        assert all(HEADER.fullmatch(header) for header in headers), (said, heard)
        assert not any(header.lower().startswith(b"x-injected") for header in headers), (said, heard)
        count += 1
    assert count or not heard, (said, heard)
    return count


@pytest.mark.timeout(120 * SCALE)
async def test_heads_and_bodies(ring: RunningRing) -> None:
    async def one(number: int) -> int:
        odd = OddHeads(number, [ODD.text])
        parts = odd.make()
        heard = await say(ring.http, parts, leaves=odd.rng.random() < 0.1)
        return check_answers(heard, parts)

    await check_harmless(ring, one, NUM_CONNECTIONS)
