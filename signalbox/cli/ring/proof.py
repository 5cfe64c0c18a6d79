"""What a ring that is ready generates first, for everybody to see: always the same, as no chance is involved."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from signalbox.api_keys import key_from_environment
from signalbox.cli.ring.supervisor import split_address
from signalbox.client import Client
from signalbox.errors import UnavailableError
from signalbox.runtime.start import streams

PROMPT = "def quicksort("
QUESTION = "What is the capital of France?"
"""Question for a model that chats."""
NUM_TOKENS = 80
REPETITION_PENALTY = 1.2
"""Penalty of the completion: small models fall into loops without one."""
TIMEOUT_S = 300.0


def say(text: str, end: str = "\n") -> None:
    """Writes a line to stdout; a reader that has gone must not keep us from stopping the services."""
    try:
        print(text, end=end, flush=True)
    except OSError:
        streams.silence_stdout()


async def complete(grpc_address: str) -> None:
    """Streams one completion to stdout."""
    penalty = REPETITION_PENALTY
    say(f"\nready; a first completion (greedy, repetition penalty {penalty}, up to {NUM_TOKENS} tokens):\n")
    started = time.monotonic()
    async with Client(grpc_address) as client:
        generation = client.generate(
            PROMPT,
            max_tokens=NUM_TOKENS,
            temperature=0,
            repetition_penalty=penalty,
            timeout_s=TIMEOUT_S,
        )
        say(PROMPT, end="")
        async for delta in generation:
            say(delta.text, end="")
        result = await generation.result()
    _say_count(result.finished.num_output_tokens, started)


async def answer(http_address: str, model: str) -> None:
    """Streams the answer to one question to stdout. Raises UnavailableError when there is none."""
    say(f"\nready; a first answer (greedy, up to {NUM_TOKENS} tokens):\n\n> {QUESTION}")
    started = time.monotonic()
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": NUM_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    num_tokens = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            async for event in _events(http_address, "/v1/chat/completions", body):
                for choice in event["choices"]:
                    say(choice["delta"].get("content") or "", end="")
                num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
    except (OSError, ValueError, TimeoutError) as error:
        raise UnavailableError(f"the first answer broke off: {error!r}") from None
    if num_tokens is None:
        raise UnavailableError("the first answer broke off")
    _say_count(num_tokens, started)


async def _events(address: str, path: str, body: dict[str, Any]) -> AsyncIterator[Any]:
    """The events of a stream, as they come; closing the iterator closes the connection."""
    reader, writer = await asyncio.open_connection(*split_address(address))
    content = json.dumps(body).encode()
    headers = [f"POST {path} HTTP/1.1", f"Host: {address}", "Connection: close"]
    headers += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    if key := key_from_environment():
        headers.append(f"Authorization: Bearer {key}")
    try:
        writer.write("\r\n".join([*headers, "", ""]).encode() + content)
        status = (await reader.readline()).split()
        if status[1:2] != [b"200"]:
            said = (await reader.read()).partition(b"\r\n\r\n")[2].decode(errors="replace").strip()
            raise UnavailableError(f"the first question was refused: {said}")
        # Heads and the sizes of chunks are lines too, and none of them begins so: an event is written in one piece.
        async for line in reader:
            data = line.removeprefix(b"data: ").strip()
            if line.startswith(b"data: {"):
                yield json.loads(data)
    finally:
        writer.close()


def _say_count(num_tokens: int, started: float) -> None:
    say(f"\n\n({num_tokens} tokens in {time.monotonic() - started:.2f} s)")
