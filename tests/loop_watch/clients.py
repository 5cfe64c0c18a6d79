"""Clients of an extreme: many connections, each with a request that is answered as a whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

AT_ONCE = 200
"""Connections that are opened at a time."""


async def post(address: str, path: str, body: bytes, headers: Sequence[str] = ()) -> bytes:
    """The whole answer to one request on a connection of its own; empty when the connection breaks."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    try:
        head = [
            f"POST {path} HTTP/1.1",
            f"Host: {address}",
            "Content-Type: application/json",
            "Connection: close",
        ]
        head += [f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(head).encode() + body)
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


def completion(num_tokens: int, **more: Any) -> bytes:
    """A body for /v1/completions."""
    body = {
        "model": "demo",
        "prompt": [1, 2, 3, 4],
        "max_tokens": num_tokens,
        "ignore_eos": True,
        "temperature": 0,
    }
    return json.dumps(body | more).encode()


class Crowd:
    """Calls that wait for their answers at the same time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._tasks: list[asyncio.Task[bytes]] = []

    async def come(
        self,
        bodies: Sequence[bytes],
        path: str = "/v1/completions",
        headers: Sequence[str] = (),
        keys: Sequence[str] = (),
    ) -> None:
        """Opens a call for each body; returns when all are sent. keys: of the callers, in turn; none: without one."""
        for first in range(0, len(bodies), AT_ONCE):
            for number, body in enumerate(bodies[first : first + AT_ONCE], first):
                own = [f"Authorization: Bearer {keys[number % len(keys)]}"] if keys else []
                call = post(self._address, path, body, [*headers, *own])
                self._tasks.append(asyncio.create_task(call))
            await asyncio.sleep(0.1)

    @property
    def statuses(self) -> dict[bytes, int]:
        """How many were answered with which status so far."""
        counts: dict[bytes, int] = {}
        for task in self._tasks:
            if task.done() and not task.cancelled():
                status = task.result()[9:12]
                counts[status] = counts.get(status, 0) + 1
        return counts

    async def leave(self) -> None:
        """All hang up at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
