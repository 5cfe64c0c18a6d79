"""The clients: server-sent events read by hand, OpenAI's SDK, and our own over gRPC."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import grpc
import openai

from signalbox.client import Client
from signalbox.errors import SignalboxError
from tests.chaos.kinds import Ask
from tests.chaos.outcome import Outcome
from tests.chaos.ring import Frontend

SILENCE_S = 120.0
"""A stream that says nothing for so long counts as lost."""
SLOW_AFTER_BYTES = 8_000
SLOW_BUFFER_BYTES = 4096
LEAVES_AFTER_BYTES = 12_000
REFUSALS = (429, 503)


async def run_stream(ask: Ask, frontend: Frontend, outcome: Outcome) -> None:
    """One request, from its first byte to its end, whatever that is."""
    face = {"http": _over_http, "sdk": _over_sdk, "grpc": _over_grpc}[ask.face]
    try:
        await face(ask, frontend, outcome)
    except (OSError, EOFError, TimeoutError, ValueError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
    outcome.ended = time.monotonic()


# ---- by hand


async def _over_http(ask: Ask, frontend: Frontend, outcome: Outcome) -> None:
    host, _, port = frontend.http.rpartition(":")
    sock = socket.socket()
    sock.setblocking(False)
    if ask.is_slow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    except OSError as error:
        sock.close()
        outcome.was_refused, outcome.error = True, str(error)
        return
    limit = SLOW_BUFFER_BYTES if ask.is_slow else 1 << 20
    reader, writer = await asyncio.open_connection(sock=sock, limit=limit)
    try:
        body = json.dumps(ask.body).encode()
        head = f"POST {ask.path} HTTP/1.1\r\nHost: {frontend.http}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        data, reads = await _read_all(reader, ask, outcome)
    finally:
        writer.close()
    _take_answer(data, reads, outcome)


async def _read_all(
    reader: asyncio.StreamReader, ask: Ask, outcome: Outcome
) -> tuple[bytes, list[tuple[int, float]]]:
    """All bytes that its client wants, and how many there were when. A broken connection is an end like any other."""
    silent_s = ask.silent_s
    data = bytearray()
    reads: list[tuple[int, float]] = []
    while True:
        await asyncio.sleep(ask.pace_s)
        try:
            async with asyncio.timeout(SILENCE_S):
                piece = await reader.read(1 << 16)
        except OSError:
            piece = b""
        if not piece:
            return bytes(data), reads
        data += piece
        outcome.flows = outcome.flows or b"data: " in data
        reads.append((len(data), time.monotonic()))
        if ask.leaves and len(data) > LEAVES_AFTER_BYTES:
            return bytes(data), reads
        if len(data) > SLOW_AFTER_BYTES:
            await asyncio.sleep(silent_s)
            silent_s = 0.0


def _take_answer(data: bytes, reads: list[tuple[int, float]], outcome: Outcome) -> None:
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        raise EOFError("the connection broke before an answer")
    outcome.times = [at for size, at in reads if size > len(head) + 4]
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if status != 200:
        outcome.was_refused = status in REFUSALS
        outcome.retry_after = headers.get("retry-after")
        outcome.error = f"{status} {rest[:200].decode(errors='replace')}"
        return
    body, is_whole = _dechunk(rest)
    outcome.left = outcome.ask.leaves and not is_whole and len(data) > LEAVES_AFTER_BYTES
    events = body.split(b"\n\n")
    for event in events[:-1]:  # the last one is empty, or was cut off
        if event.startswith(b"data: "):
            _take_event(event[6:], outcome)
    if not is_whole and not outcome.error and not outcome.left:
        outcome.error = "the connection broke"


def _dechunk(data: bytes) -> tuple[bytes, bool]:
    """The body, and whether its end was there."""
    body, at = bytearray(), 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end].partition(b";")[0], 16)
        if size == 0:
            return bytes(body), True
        body += data[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
    return bytes(body), False


def _take_event(data: bytes, outcome: Outcome) -> None:
    if data == b"[DONE]":
        outcome.num_ends += 1
        return
    event = json.loads(data)
    if "error" in event:
        outcome.error = event["error"]["message"]
        return
    if usage := event.get("usage"):
        outcome.usage = usage["prompt_tokens"], usage["completion_tokens"]
    for choice in event["choices"]:
        _take_choice(choice, outcome)


def _take_choice(news: dict[str, Any], outcome: Outcome) -> None:
    choice = outcome.choice(news["index"])
    delta = news.get("delta")
    text = news.get("text", "") if delta is None else delta.get("content") or ""
    for call in (delta or {}).get("tool_calls") or ():
        text += call["function"].get("name") or ""
        text += call["function"].get("arguments") or ""
    if choice.finish_reasons and text:
        choice.is_overrun = True
    choice.text += text
    if logprobs := news.get("logprobs"):
        if delta is None:
            choice.tokens += logprobs["tokens"]
            choice.logprobs += logprobs["token_logprobs"]
        else:
            choice.tokens += [item["token"] for item in logprobs["content"]]
            choice.logprobs += [item["logprob"] for item in logprobs["content"]]
    if reason := news.get("finish_reason"):
        choice.finish_reasons.append(reason)


# ---- OpenAI's SDK


async def _over_sdk(ask: Ask, frontend: Frontend, outcome: Outcome) -> None:
    extra = {name: value for name, value in ask.body.items() if name in ("ignore_eos", "top_k", "request_id")}
    body = {name: value for name, value in ask.body.items() if name not in extra}
    url = f"http://{frontend.http}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=SILENCE_S) as client:
        try:
            stream = await client.chat.completions.create(**body, extra_body=extra)
            async for chunk in stream:
                outcome.times.append(time.monotonic())
                outcome.flows = True
                event = chunk.model_dump()
                if event.get("usage"):
                    outcome.usage = event["usage"]["prompt_tokens"], event["usage"]["completion_tokens"]
                for choice in event["choices"]:
                    _take_choice(choice, outcome)
            outcome.num_ends = (
                1  # it hides [DONE]; without one it raises nothing, but then a reason is missing
            )
        except openai.APIStatusError as error:
            outcome.was_refused = error.status_code in REFUSALS
            outcome.retry_after = error.response.headers.get("retry-after")
            outcome.error = str(error)
        except openai.APIConnectionError as error:
            outcome.was_refused = not outcome.times and "connect" in repr(error.__cause__).lower()
            outcome.error = f"{error!r} {error.__cause__!r}"
        except (openai.OpenAIError, Exception) as error:
            outcome.error = repr(error)


# ---- gRPC


async def _over_grpc(ask: Ask, frontend: Frontend, outcome: Outcome) -> None:
    choice = outcome.choice(0)
    async with Client(frontend.grpc) as client:
        try:
            async with asyncio.timeout(SILENCE_S * 2):
                async for delta in client.generate(ask.body["prompt"], **ask.body["sampling"]):
                    outcome.times.append(time.monotonic())
                    outcome.flows = True
                    choice.is_overrun |= bool(choice.finish_reasons)
                    choice.text += delta.text
                    choice.tokens += delta.token_ids
                    if delta.finished is not None:
                        choice.finish_reasons.append(delta.finished.reason.name)
                        outcome.num_ends += 1
                        done = delta.finished
                        outcome.usage = done.num_prompt_tokens, done.num_output_tokens
        except (SignalboxError, grpc.aio.AioRpcError) as error:
            code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
            is_limit = code in ("UNAVAILABLE", "UnavailableError", "ResourceExhaustedError")
            outcome.was_refused = is_limit and not outcome.times
            outcome.error = f"{code}: {error}"
