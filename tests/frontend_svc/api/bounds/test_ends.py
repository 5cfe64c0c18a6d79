"""How connections end: an answer is never lost to a reset, and nobody waits for an idle one (AK2, AK3)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from frontend_svc.api.http.bounds import HttpBounds
from frontend_svc.api.http.server import HttpServer
from tests.frontend_svc.api.bounds.served import BOUNDS, HEAD, Served, status_of
from tests.frontend_svc.helpers import until

ONE = HEAD + b"Content-Length: 1\r\n\r\na"
LAST = HEAD + b"Connection: close\r\nContent-Length: 1\r\n\r\na"
USUAL_IDLE_S = 60.0
"""What nginx and the balancers of AWS keep an idle connection for."""


@asynccontextmanager
async def serving(app: Any, bounds: HttpBounds) -> AsyncIterator[Served]:
    served = Served()
    server = HttpServer(app or served, bounds=bounds, on_refused=served.refused.append)
    served.port = await server.start("127.0.0.1:0")
    yield served
    await server.stop()


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """Answers without a look at the body, as 401, 413 and 415 do."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    writer.write(ONE)
    answer = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(1)
    return status_of(answer)


def test_idle_connections_outlive_those_of_usual_clients() -> None:
    """Before, httpx and the server both gave up after 5 s, and a request in that moment was lost."""
    assert HttpBounds(max_connections=1).idle_s > USUAL_IDLE_S


async def test_an_idle_connection_is_closed_in_the_end() -> None:
    async with serving(None, replace(BOUNDS, idle_s=0.2)) as served:
        assert (await served.send(ONE)).endswith(b"1")
        assert not served.refused


async def test_idle_connections_make_room() -> None:
    """Before, connections that nobody used kept everybody else out."""
    async with serving(None, BOUNDS) as served:
        idle = [
            await asyncio.open_connection("127.0.0.1", served.port) for _ in range(BOUNDS.max_connections)
        ]
        for connection in idle:
            assert await ask(*connection) == 200
        assert await ask(*idle[0]) == 200  # the second one is idle for longest now
        assert status_of(await served.send(LAST)) == 200
        assert await idle[1][0].read() == b""
        assert [await ask(*idle[index]) for index in (0, 2)] == [200, 200]
        assert not served.refused
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("num_bytes", [1 << 20, 4 << 20])
async def test_a_refusal_is_heard_while_the_body_comes(num_bytes: int) -> None:
    """Before, what nobody had read reset the connection, and the answer with it."""
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % num_bytes
    async with serving(refuse, BOUNDS) as served:
        answer = await served.send(head + b"a" * num_bytes)
        assert status_of(answer) == 401 and answer.endswith(b"no")


async def test_a_bound_is_heard_while_the_rest_comes(served: Served) -> None:
    answer = await served.send(HEAD + b"X: " + b"a" * (4 << 20))
    assert status_of(answer) == 431


async def test_nobody_lingers_for_long() -> None:
    """Neither in time nor in bytes, nor many at once."""
    head = HEAD + b"Connection: close\r\nContent-Length: 1000000\r\n\r\n"
    async with serving(refuse, replace(BOUNDS, linger_s=0.2)) as served:
        await _sent_until_closed(served, head, b"a")
    async with serving(refuse, replace(BOUNDS, linger_s=60.0, linger_bytes=1000)) as served:
        await _sent_until_closed(served, head, b"a" * 100)
    async with serving(refuse, replace(BOUNDS, linger_s=60.0, max_lingering=0)) as served:
        await _sent_until_closed(served, head, b"a" * 100)


async def test_a_body_behind_its_answer_is_bounded_and_then_idle() -> None:
    """Before, a connection whose body came behind the answer stayed open for ever, and took bytes without end."""
    bounds = replace(BOUNDS, linger_bytes=1000, idle_s=0.2)
    head = HEAD + b"Content-Length: %d\r\n\r\n"
    async with serving(refuse, bounds) as served:
        answer = await served.send(head % 500, b"a" * 250, b"a" * 250, wait_s=0.1)
        assert answer.count(b"401") == 1 and not served.refused
        await _sent_until_closed(served, head % 10_000_000, b"a" * 100)
        answer = await served.send(head % 500, b"a" * 250, wait_s=0.1)
        assert answer.count(b"HTTP/1.1") == 1 and served.refused == ["slow_body"]


async def test_the_next_request_behind_an_early_answer_is_served() -> None:
    async with serving(refuse, BOUNDS) as served:
        more = HEAD + b"Content-Length: 500\r\n\r\n"
        answer = await served.send(more, b"a" * 500, more, b"a" * 500, LAST, wait_s=0.1)
        assert answer.count(b"HTTP/1.1 401") == 3 and not served.refused


async def _sent_until_closed(served: Served, head: bytes, part: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(head)
    async with asyncio.timeout(10):
        with pytest.raises(ConnectionError):
            while True:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
    writer.close()


async def test_a_client_that_is_gone_when_it_is_refused_leaves_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before, two stacks for each: what was written to it reset the connection, the end failed halfway, and an answer
    was written behind it."""
    async with serving(refuse, BOUNDS) as served:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", served.port)) as client:
                await asyncio.sleep(0.05)  # it is accepted
                client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nnone\r\n")
        await until(lambda: len(served.refused) == 3)
        assert served.refused == ["malformed"] * 3
    assert not caplog.records
