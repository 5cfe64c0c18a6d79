"""A listener with small bounds, and what raw sockets hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from frontend_svc.api.http.bounds import HttpBounds

BOUNDS = HttpBounds(max_connections=3, head_s=0.3, body_grace_s=0.3, body_bytes_s=1000.0)
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


class Served:
    """A server whose application reads each body and tells its size."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.bodies: list[int | None] = []
        self.port = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.bodies.append(None)
                return
            size, more = size + len(message["body"]), message["more_body"]
        self.bodies.append(size)
        answer = str(size).encode()
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def send(self, *parts: bytes, wait_s: float = 0.0) -> bytes:
        """All that the server says to a client that sends these parts with some time between them, as far as it is
        not interrupted by an end. Raises ConnectionError when the server resets the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        said = asyncio.create_task(reader.read())
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(wait_s)
        except ConnectionError:
            pass
        try:
            return await asyncio.wait_for(said, 10)
        finally:
            writer.close()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def until_served(ask: Callable[[], Awaitable[bytes]]) -> None:
    """Returns when `ask` is answered with 200: a connection that was closed is given back a moment later, and until
    then the next one may be closed at once."""
    async with asyncio.timeout(5):
        while True:
            with suppress(ConnectionError):
                if status_of(await ask()) == 200:
                    return
            await asyncio.sleep(0.01)
