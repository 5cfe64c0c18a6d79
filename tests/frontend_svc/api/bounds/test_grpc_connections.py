"""gRPC connections that ask for too much, or say nothing, before anybody knows whose they are (AK1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from frontend_svc.api.grpc.bounds import GrpcBounds
from signalbox.client import Client
from signalbox.links import rpc
from tests.contract.odd_frames import END_HEADERS, HEADERS, PREFACE, REQUEST, SETTINGS, field, frame
from tests.frontend_svc.guarded import KeyRing, Start

BOUNDS = GrpcBounds(max_connections=4, max_streams=3, handshake_s=0.3, idle_s=0.3)
OPENING = PREFACE + frame(SETTINGS, 0, 0)
GOAWAY_TYPE = 7
WATCH = "/grpc.health.v1.Health/Watch"


def head(path: str, stream: int = 1) -> bytes:
    """The headers of a call, without its message."""
    fields = [(name, path.encode() if name == b":path" else value) for name, value in REQUEST]
    return frame(HEADERS, END_HEADERS, stream, b"".join(field(*each) for each in fields))


async def say(port: int, data: bytes) -> bytes:
    """All that the server says to a client that says this, and waits."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def kinds_of(heard: bytes) -> list[int]:
    """The kinds of the frames in it."""
    kinds = []
    while heard:
        kinds.append(heard[3])
        heard = heard[9 + int.from_bytes(heard[:3], "big") :]
    return kinds


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = rpc.Server([], is_link=False, options=BOUNDS.options)
    yield await server.start("127.0.0.1:0")
    await server.stop(0)


@pytest.mark.parametrize("data", [b"", PREFACE[:5], PREFACE], ids=["nothing", "half a line", "no settings"])
async def test_who_does_not_come_to_the_point_is_left(port: int, data: bytes) -> None:
    """Before, after grpc's own two minutes."""
    assert GOAWAY_TYPE in kinds_of(await say(port, data))


async def test_an_idle_connection_is_closed(port: int) -> None:
    """Before, it was open for as long as the client liked."""
    assert GOAWAY_TYPE in kinds_of(await say(port, OPENING))


async def test_a_client_that_was_idle_dials_again(port: int) -> None:
    async with rpc.channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest())
        async with asyncio.timeout(10):
            while channel.get_state() is grpc.ChannelConnectivity.READY:
                await asyncio.sleep(0.05)
        await stub.Check(health_pb2.HealthCheckRequest())


async def test_a_call_keeps_its_connection(port: int) -> None:
    """However long nothing is said in it."""
    async with rpc.channel(f"127.0.0.1:{port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        await asyncio.sleep(4 * BOUNDS.idle_s)
        assert not watch.done() and channel.get_state() is grpc.ChannelConnectivity.READY
        watch.cancel()


async def test_connections_are_counted(port: int) -> None:
    """Those above are closed, those below go on."""
    async with rpc.channel(f"127.0.0.1:{port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        heard = await asyncio.gather(*(say(port, OPENING) for _ in range(3 * BOUNDS.max_connections)))
        assert heard.count(b"") >= 2 * BOUNDS.max_connections
        assert not watch.done()
        watch.cancel()


async def test_streams_of_a_connection_are_counted(port: int) -> None:
    """A client that keeps to what it was told waits; one that does not is refused each stream above it."""
    heard = await say_for(port, OPENING + b"".join(head(WATCH, 2 * number + 1) for number in range(10)))
    assert kinds_of(heard).count(3) >= 10 - BOUNDS.max_streams


async def say_for(port: int, data: bytes) -> bytes:
    """What the server says meanwhile to a client that does not wait for its settings."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    heard = b""
    async with asyncio.timeout(10):
        while kinds_of(heard).count(3) < 10 - BOUNDS.max_streams:
            heard += await reader.read(65536)
    writer.close()
    return heard


async def test_who_has_no_key_is_refused_without_a_message(start: Start) -> None:
    """Before, a call without key and message stayed open for as long as its client liked."""
    guarded = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", guarded.grpc_port)
    writer.write(OPENING + head("/signalbox.v1.GenerationService/Generate"))
    heard = b""
    async with asyncio.timeout(10):
        while b"AuthenticationError" not in heard:
            data = await reader.read(65536)
            assert data, heard
            heard += data
    writer.close()


async def test_a_frontend_has_these_bounds(start: Start, ring: KeyRing) -> None:
    guarded = await start(max_grpc_connections=3)
    async with Client(f"127.0.0.1:{guarded.grpc_port}", api_key=ring.keys["acme"].text) as client:
        assert await client.tokenize("the")
        others = [await asyncio.open_connection("127.0.0.1", guarded.grpc_port) for _ in range(6)]
        closed = [reader for reader, _ in others if await ends_at_once(reader)]
        assert len(closed) >= 4
        assert await client.tokenize("the")
        for _, writer in others:
            writer.close()


async def ends_at_once(reader: asyncio.StreamReader) -> bool:
    """No for one that goes on until its handshake is due, whom the server greets."""
    async with asyncio.timeout(10):
        try:
            return not await reader.read(1)
        except ConnectionError:
            return True
