"""A port for probes alone: whether the process works, and whether a request would be served, by plain HTTP.

It stands apart from the ports of clients, so that nothing they do keeps a probe out, and no client has to reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from http import HTTPStatus

from signalbox.errors import StartupError

MAX_HEAD_BYTES = 4096
MAX_CONNECTIONS = 16
"""At a time; one more is closed at once."""
ANSWER_S = 5.0
"""Until the head of a request is there and its answer is gone."""


class Probes:
    """Answers GET /live and GET /ready, one request for each connection."""

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self._num_open = 0
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> int:
        """Listens on `host:port` (port 0: any) and returns the port. Raises StartupError when it cannot."""
        host, _, port = address.rpartition(":")
        try:
            self._server = await asyncio.start_server(
                self._answer, host.strip("[]"), int(port), limit=MAX_HEAD_BYTES
            )
        except OSError as error:
            raise StartupError(f"cannot listen on {address}: {error.strerror}") from None
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Listens no more."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._num_open += 1
        try:
            if self._num_open <= MAX_CONNECTIONS:
                # What is too long or too late ends the connection.
                with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    async with asyncio.timeout(ANSWER_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                        writer.write(_render(self._status_of(head)))
                        await writer.drain()
        finally:
            self._num_open -= 1
            writer.close()

    def _status_of(self, head: bytes) -> HTTPStatus:
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ", 1)[0]
        if method not in (b"GET", b"HEAD") or path not in (b"/live", b"/ready"):
            return HTTPStatus.NOT_FOUND
        good = path == b"/live" or self._is_ready()
        return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE


def _render(status: HTTPStatus) -> bytes:
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    return head.encode()
