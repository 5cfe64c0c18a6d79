"""Only a refused connect is evidence that nothing listens."""

from __future__ import annotations

import asyncio
import socket

import pytest

from signalbox.links.reach import refuses


def listen(host: str = "127.0.0.1") -> socket.socket:
    listener = socket.create_server((host, 0))
    listener.setblocking(False)
    return listener


async def test_a_listener_does_not_refuse_even_when_it_does_not_accept() -> None:
    """E9: a stopped process does not accept, and is not gone."""
    with listen() as listener:
        assert not await refuses(f"127.0.0.1:{listener.getsockname()[1]}")


async def test_a_closed_port_refuses() -> None:
    """E3."""
    with listen() as listener:
        port = listener.getsockname()[1]
    assert await refuses(f"127.0.0.1:{port}")
    assert await refuses(f"localhost:{port}"), "whatever localhost is here"


async def test_a_place_that_nobody_answers_for_proves_nothing() -> None:
    """E9: a name that is not known, and a listener whose queue is full."""
    assert not await refuses("no-such-name.invalid:1")
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [await asyncio.open_connection("127.0.0.1", port)]
        for _ in range(2):
            await refuses(f"127.0.0.1:{port}")
        assert not await refuses(f"127.0.0.1:{port}")
        waiting[0][1].close()


@pytest.mark.parametrize(
    "address", ["worker-1", "unix:/x", "host:7310:", "a..b:7310", f"{'x' * 64}:1", "host:"]
)
async def test_what_is_no_address_proves_nothing(address: str) -> None:
    """E9: and breaks nobody who asks."""
    assert not await refuses(address)
