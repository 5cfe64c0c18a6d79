"""A client that has sent all it has to say gets its answer; one that is gone is noticed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from frontend_svc.api.http import half_close
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.helpers import serve_text, until
from tests.frontend_svc.scripted_cluster import Cluster, Row

Dial = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest.fixture
def dial(frontend: Frontend) -> Dial:
    """Sends a completion over a connection of its own."""

    async def dial_one(
        *, stream: bool = False, version: str = "1.1", cut: int = 0
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        body = json.dumps({"prompt": [5, 6, 7], "stream": stream, "max_tokens": 50}).encode()
        lines = (f"POST /v1/completions HTTP/{version}", "Host: localhost", "Content-Type: application/json")
        head = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", ""))
        reader, writer = await asyncio.open_connection("127.0.0.1", frontend.http_port)
        request = head.encode() + body
        writer.write(request[: len(request) - cut])
        return reader, writer

    return dial_one


async def read_times(reader: asyncio.StreamReader, part: bytes, count: int) -> bytes:
    """What comes until `part` has come so often."""
    async with asyncio.timeout(5):
        return b"".join([await reader.readuntil(part) for _ in range(count)])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_half_closed_client_gets_its_answer(
    dial: Dial, cluster: Cluster, tokenizer: Tokenizer, stream: bool
) -> None:
    """The end of its bytes is not its own."""
    serve_text(cluster, tokenizer, "the lazy dog")
    reader, writer = await dial(stream=stream)
    writer.write_eof()
    answer = (await asyncio.wait_for(reader.read(), 5)).decode()
    probes, _, rest = answer.rpartition("HTTP/1.1 200 OK\r\n")
    assert probes in ("", "HTTP/1.1 100 Continue\r\n\r\n")
    assert "connection: close\r\n" in rest
    assert ("[DONE]" if stream else '"finish_reason":"stop"') in rest
    writer.close()


async def test_it_is_waited_for_as_long_as_it_takes(
    dial: Dial, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_close, "ASK_EVERY_S", 0.1)
    reader, writer = await dial()
    writer.write_eof()
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    asked = await read_times(reader, b"HTTP/1.1 100 Continue\r\n\r\n", 3)
    cluster.worker.emit(Row(attempt, 0, [9], 1))
    answer = (asked + await asyncio.wait_for(reader.read(), 5)).decode()
    assert answer.startswith("HTTP/1.1 100 Continue")
    assert answer.count("200 OK") == 1
    writer.close()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_that_closed_is_noticed(dial: Dial, cluster: Cluster, version: str) -> None:
    """It sends the same end of bytes, and resets the connection when something is written to it. Nothing may be written
    to one that speaks HTTP/1.0: the end of its bytes is its own."""
    _, writer = await dial(version=version)
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    writer.close()
    assert (await cluster.scheduler.next("cancel")).ref.attempt == attempt


async def test_a_client_that_closes_its_other_half_later_is_noticed(
    dial: Dial, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_close, "ASK_EVERY_S", 0.1)
    _, writer = await dial()
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    writer.write_eof()
    await asyncio.sleep(0.2)
    writer.close()
    assert (await cluster.scheduler.next("cancel")).ref.attempt == attempt


async def test_a_half_closed_stream_goes_on_between_comments(
    dial: Dial, cluster: Cluster, frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_close, "ASK_EVERY_S", 0.1)
    reader, writer = await dial(stream=True)
    submit = await cluster.scheduler.next("submit")
    cluster.scheduler.place(submit.ref)
    await reader.readuntil(b"\r\n\r\n")
    writer.write_eof()
    comments = await read_times(reader, b"3\r\n:\n\n\r\n", 2)
    cluster.worker.emit(Row(submit.ref.attempt, 0, [9], 1))
    answer = (comments + await asyncio.wait_for(reader.read(), 5)).decode()
    assert answer.startswith("3\r\n:\n\n\r\n")
    assert answer.endswith("data: [DONE]\n\n\r\n0\r\n\r\n")
    writer.close()


async def test_a_client_that_leaves_a_stream_is_noticed_without_output(
    dial: Dial, cluster: Cluster, frontend: Frontend
) -> None:
    reader, writer = await dial(stream=True)
    submit = await cluster.scheduler.next("submit")
    cluster.scheduler.place(submit.ref)
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert (await cluster.scheduler.next("cancel")).ref == submit.ref
    await until(lambda: not len(frontend.table))


async def test_half_a_request_is_none(dial: Dial, cluster: Cluster, frontend: Frontend) -> None:
    reader, writer = await dial(cut=3)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 5) == b""
    assert (len(frontend.table), cluster.scheduler.operations.empty()) == (0, True)
    writer.close()
