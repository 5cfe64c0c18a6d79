"""Whether anything listens at an address: evidence that a process is gone (docs/liveness.md, E3 and E9)."""

from __future__ import annotations

import asyncio
import socket

ANSWER_S = 0.25
"""A machine that is there refuses at once; one that says nothing proves nothing."""


async def refuses(address: str) -> bool:
    """Nothing listens at `host:port`: a connect is refused. False for a place that nobody answers for, and for what is
    no address: that proves nothing."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    is_refused = False
    try:
        async with asyncio.timeout(ANSWER_S):
            for found in await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
                try:
                    await _connect(loop, found[0], found[4])
                except ConnectionRefusedError:
                    is_refused = True
                else:
                    return False
    except (OSError, TimeoutError, ValueError):
        pass
    return is_refused


async def _connect(loop: asyncio.AbstractEventLoop, family: int, address: tuple[object, ...]) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
