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

import grpc
import httpx
import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from signalbox.api_keys import NewKey, make_key
from signalbox.client import Client
from signalbox.v1 import frontend_pb2
from signalbox.vllm import control_pb2, engine_pb2, inference_pb2
from tests.contract.odd_calls import call_once, methods_of, odd_metadata
from tests.contract.odd_frames import OddFrames
from tests.contract.odd_heads import OddHeads
from tests.contract.odd_messages import OddMessages
from tests.contract.test_hostile_peers import MOST_GROWTH_BYTES, SIM, TOKENS, memory_of
from tests.contract.test_openai_sdk import assert_empty
from tests.e2e.conftest import RunningRing, StartRing
from tests.e2e.faults.test_sim_failures import VOCAB_SIZE, make_prompts, run
from worker_svc.runner.sim.model import continuation

SCALE = int(os.environ.get("SIGNALBOX_FUZZ", "1"))
NUM_CONNECTIONS, NUM_CALLS = 1000 * SCALE, 100 * SCALE
"""The latter for each method."""
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
    settings = {"key-file": keys, "files-dir": keys.parent / "files", "vllm-faces": "true"}
    flags = [flag for name, value in settings.items() for flag in ("--frontend-set", f"{name}={value}")]
    return start_ring(*SIM, *flags)


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
    assert "Traceback" not in ring.logs() and ".cc:" not in ring.logs(), ring.logs()


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


# ---- gRPC

METHODS = methods_of(
    frontend_pb2.DESCRIPTOR,
    inference_pb2.DESCRIPTOR,
    control_pb2.DESCRIPTOR,
    engine_pb2.DESCRIPTOR,
    health_pb2.DESCRIPTOR,
    reflection_pb2.DESCRIPTOR,
)
RIGHT: tuple[Message, ...] = (
    frontend_pb2.GenerateRequest(text="hi", sampling={"max_tokens": 3}),
    frontend_pb2.EmbedRequest(inputs=[{"text": "hi"}, {"token_ids": {"ids": [5, 6]}}]),
    frontend_pb2.TokenizeRequest(text="hi"),
    frontend_pb2.DetokenizeRequest(token_ids=[5, 6]),
    inference_pb2.GenerateRequest(text="hi", stopping={"max_new_tokens": 3}),
    engine_pb2.GenerateRequest(text="hi", sampling_params={"max_tokens": 3}, stream=True),
)
"""Requests that are served; a part of the odd ones are these with a few fields changed."""
KNOWN = {
    "model": ("", "demo", "other"),
    "request_id": ("a", "b", "a.1", "w" * 129),
    "request_ids": ("a", "b", "w" * 70_000),
    "service": ("", "signalbox.v1.GenerationService", "liveness"),
    "ids": (5, 6, 4095, 4096),
    "token_ids": (5, 6, 4095, 4096),
    "input_ids": (5, 6, 4095, 4096),
}
OURS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS)
"""What only a fault of ours would be."""


def odd_message(odd: OddMessages, made: type[Message]) -> bytes:
    right = [message for message in RIGHT if isinstance(message, made)]
    if not right or odd.rng.random() < 0.4:
        return odd.bytes_of(odd.make(made()))
    message = made()
    message.CopyFrom(right[0])
    return odd.bytes_of(message if odd.rng.random() < 0.2 else odd.damage(message))


@pytest.mark.timeout(120 * SCALE)
@pytest.mark.parametrize("service", sorted({name.split("/")[1] for name in METHODS}))
async def test_calls(ring: RunningRing, service: str) -> None:
    """Of every method of every service on the port; most with a key."""
    methods = [name for name in METHODS if name.split("/")[1] == service]
    async with grpc.aio.insecure_channel(ring.grpc) as channel:

        async def one(number: int) -> int:
            name = methods[number % len(methods)]
            odd = OddMessages(f"{name} {number}", KNOWN)
            made = message_factory.GetMessageClass(METHODS[name].input_type)
            data = [odd_message(odd, made) for _ in range(3)]
            if odd.rng.random() < 0.1:
                data = [odd.rng.randbytes(odd.rng.randrange(64))]
            metadata = odd_metadata(odd.rng)
            if odd.rng.random() < 0.9:
                metadata = (*metadata, ("authorization", f"Bearer {ODD.text}"))
            status = await call_once(channel, name, METHODS[name], data, metadata, timeout_s=0.2)
            assert status not in OURS, (name, data, metadata)
            return status is not None

        await check_harmless(ring, one, NUM_CALLS * len(methods))


@pytest.mark.timeout(120 * SCALE)
async def test_frames(ring: RunningRing) -> None:
    """Of HTTP/2, and bytes that are none, at the port of gRPC."""

    async def one(number: int) -> int:
        odd = OddFrames(number)
        return bool(await say(ring.grpc, odd.make(), leaves=odd.rng.random() < 0.1))

    await check_harmless(ring, one, NUM_CONNECTIONS // 4)
