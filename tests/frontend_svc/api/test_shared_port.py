"""Several processes may listen on one port (`reuse_port`): one that leaves takes no connection with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from frontend_svc.api.http.server import HttpServer
from tests.ports import free_ports


class NamedServer:
    """An HTTP server that answers with its name."""

    def __init__(self, name: str, *, reuse_port: bool = True) -> None:
        self._name = name.encode()
        self.server = HttpServer(self, reuse_port=reuse_port)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self._name})


@pytest.fixture
async def servers() -> AsyncIterator[tuple[NamedServer, NamedServer, str]]:
    """One that is to leave, another one, and their address."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    old, new = NamedServer("old"), NamedServer("new")
    await old.server.start(address)
    await new.server.start(address)
    yield old, new, address
    await old.server.stop()
    await new.server.stop()


async def ask(address: str) -> str:
    """Who answers a new connection."""
    async with httpx.AsyncClient() as http:
        return (await http.get(f"http://{address}/", timeout=10)).text


async def test_no_connection_breaks_when_one_of_two_leaves(
    servers: tuple[NamedServer, NamedServer, str],
) -> None:
    old, _, address = servers
    answers: list[str] = []

    async def keep_asking() -> None:
        while not old_left.is_set():
            answers.append(await ask(address))

    old_left = asyncio.Event()
    askers = [asyncio.create_task(keep_asking()) for _ in range(8)]
    while set(answers) != {"old", "new"}:
        await asyncio.sleep(0.01)
    await old.server.leave()
    await asyncio.sleep(0.2)
    old_left.set()
    await asyncio.gather(*askers)
    assert {await ask(address) for _ in range(20)} == {"new"}


async def test_what_waits_to_be_accepted_is_served(servers: tuple[NamedServer, NamedServer, str]) -> None:
    """The kernel has shared them out before; closing the port would break those of whoever leaves."""
    old, _, address = servers
    host, port = address.split(":")
    dialling = [asyncio.open_connection(host, int(port)) for _ in range(40)]
    connections = asyncio.gather(*dialling)
    await asyncio.sleep(0)
    await old.server.leave()
    answers = []
    for reader, writer in await connections:
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answers.append((await reader.read()).rpartition(b"\r\n")[0][-12:])
        writer.close()
    assert len(answers) == 40
    assert all(answers), "a connection was broken"


async def test_an_open_connection_ends_with_its_next_answer() -> None:
    face = NamedServer("only", reuse_port=False)
    port = await face.server.start("127.0.0.1:0")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        assert "connection" not in (await http.get("/")).headers
        await face.server.leave()
        assert (await http.get("/")).headers["connection"] == "close"
        assert (await http.get("/")).text == "only", "a port of our own is still served"
    await face.server.stop()
