"""The proxies between the services of rings under test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.chaos.proxy import CUTS, Cut, SortingProxy, dials_from
from tests.ports import free_ports

HERE = [os.getpid()]


@asynccontextmanager
async def echo(
    pids: list[int],
) -> AsyncIterator[tuple[SortingProxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection through a proxy whose other kind is of these processes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    port, target = free_ports(2)
    server = await asyncio.start_server(answer, "127.0.0.1", target)
    proxy = SortingProxy(port, target, lambda dialling: dials_from(pids, dialling))
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield proxy, reader, writer
    finally:
        writer.close()
        await proxy.close()
        server.close()


@pytest.mark.parametrize("cut", [cut for cut in CUTS if not cut.resets], ids=lambda cut: cut.name)
@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_cut_holds_up_its_own_kind_only_and_loses_nothing(cut: Cut, is_ours: bool) -> None:
    async with asyncio.timeout(20), echo(HERE if is_ours else []) as (proxy, reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        (proxy if is_ours else proxy.other).cut(cut)
        writer.write(b"b")
        assert await reader.readexactly(1) == b"b", "the other kind goes on"
        (proxy.other if is_ours else proxy).cut(cut)
        writer.write(b"c" * 100_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.readexactly(1)
        (proxy.other if is_ours else proxy).heal()
        assert await reader.readexactly(100_000) == b"c" * 100_000


async def test_a_reset_ends_connections() -> None:
    async with asyncio.timeout(20), echo(HERE) as (proxy, reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        proxy.other.cut(CUTS[0])
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
