"""Clients that read their answer slowly, or not at all, hold it for a bounded time (AK13)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from frontend_svc.api.http.half_close import say_events
from frontend_svc.api.http.patience import Patience
from frontend_svc.api.http.server import HttpServer
from tests.frontend_svc.api.bounds.served import BOUNDS, HEAD, Served
from tests.frontend_svc.helpers import until

ANSWER_BYTES = 24 << 20
"""More than the kernel takes of an answer at both ends."""
ASK = HEAD + b"Connection: %b\r\nContent-Length: 0\r\n\r\n"
PATIENT = replace(BOUNDS, stall_s=0.4, answer_bytes_s=1.0)


class Large:
    """Answers with many bytes at once, as JSON, or as a stream of events."""

    def __init__(self, *, is_stream: bool = False, num_bytes: int = ANSWER_BYTES) -> None:
        self.is_stream, self.num_bytes = is_stream, num_bytes
        self.num_open = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.num_open += 1
        try:
            if self.is_stream:
                say_events(scope)
            size = str(self.num_bytes).encode()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
            part = bytes(1 << 16) if self.is_stream else bytes(self.num_bytes)
            for left in range(self.num_bytes, 0, -len(part)):
                await send({"type": "http.response.body", "body": part, "more_body": left > len(part)})
        finally:
            self.num_open -= 1


@asynccontextmanager
async def asked(
    app: Large, bounds: Any, keep: bytes = b"keep-alive"
) -> AsyncIterator[tuple[HttpServer, Served, asyncio.StreamReader]]:
    """A client that has asked, and reads what the test reads."""
    served = Served()
    server = HttpServer(app, bounds=bounds, on_refused=served.refused.append)
    port = await server.start("127.0.0.1:0")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 12)
    writer.write(ASK % keep)
    try:
        yield server, served, reader
    finally:
        writer.transport.abort()
        await server.stop()


def connections_of(server: HttpServer) -> int:
    return len(server._server.server_state.connections)


@pytest.mark.parametrize("keep", [b"close", b"keep-alive"])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_that_reads_nothing_is_ended(keep: bytes, is_stream: bool) -> None:
    """Before, connection and answer stayed for as long as the client did."""
    app = Large(is_stream=is_stream)
    async with asked(app, PATIENT, keep) as (server, served, _):
        await until(lambda: connections_of(server) == 1)
        await until(lambda: connections_of(server) == 0)
        assert served.refused == ["slow_reader"]
        await until(lambda: app.num_open == 0)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_that_reads_too_slowly_is_ended_unless_it_is_a_stream(is_stream: bool) -> None:
    """All of an answer that is no stream is in memory: a trickle of it must not keep it there."""
    bounds = replace(PATIENT, answer_bytes_s=float(ANSWER_BYTES))  # in a second
    async with asked(Large(is_stream=is_stream), bounds) as (server, served, reader):
        await until(lambda: connections_of(server) == 1)
        num_read = 0
        for _ in range(40):
            num_read += len(await reader.read(1 << 15))
            await asyncio.sleep(0.05)
            if served.refused:
                break
        assert served.refused == ([] if is_stream else ["slow_reader"])
        assert num_read < ANSWER_BYTES


async def test_a_client_that_reads_on_gets_all_of_it() -> None:
    async with asked(Large(), PATIENT, b"close") as (_, served, reader):
        await asyncio.sleep(0.2)
        num_read = 0
        while data := await reader.read(1 << 20):
            num_read += len(data)
        assert num_read > ANSWER_BYTES and not served.refused


def test_patience() -> None:
    patience = Patience(since_s=10.0, first_taken=100, stall_s=5.0, least_bytes_s=10.0)
    assert not patience.is_over(14.9, 100)
    assert patience.is_over(15.0, 100)
    patience = Patience(since_s=10.0, first_taken=100, stall_s=5.0, least_bytes_s=10.0)
    assert not patience.is_over(14.0, 110)  # until 16.0, then
    assert not patience.is_over(15.9, 110)
    assert patience.is_over(16.0, 110)
    patience = Patience(since_s=10.0, first_taken=-100, stall_s=5.0, least_bytes_s=0.0)
    assert not any(patience.is_over(10.0 + 4.0 * n, -100 + n) for n in range(100))
