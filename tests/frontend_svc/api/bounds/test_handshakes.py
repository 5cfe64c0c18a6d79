"""Connections that have not come to their TLS yet, within the bounds of the others (AK1)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from frontend_svc.api.http.server import HttpServer
from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import Role
from tests.frontend_svc.api.bounds.served import BOUNDS, HEAD, Served, status_of, until_served
from tests.signalbox.links.tls.certificates import Certificates

ASK = HEAD + b"Connection: close\r\nContent-Length: 1\r\n\r\na"


@pytest.fixture
async def encrypted(tmp_path: Path) -> AsyncIterator[Served]:
    cert, key, _ = Certificates.make(tmp_path).files(Role.FRONTEND)
    served = Served()
    server = HttpServer(
        served, bounds=BOUNDS, on_refused=served.refused.append, identity=Identity(cert, key, None)
    )
    served.port = await server.start("127.0.0.1:0")
    yield served
    await server.stop()


async def ask_at_once(port: int) -> bytes:
    """The answer to a request that comes in one piece with the end of the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await _more(reader))
    tls.write(ASK)
    writer.write(outgoing.read())
    answer = b""
    while not answer.endswith(b"\r\n\r\n1"):
        incoming.write(await _more(reader))
        with suppress(ssl.SSLWantReadError):
            while record := tls.read(65536):
                answer += record
    writer.close()
    return answer


async def _more(reader: asyncio.StreamReader) -> bytes:
    """What comes next. ConnectionError at the end."""
    more = await asyncio.wait_for(reader.read(65536), 10)
    if not more:
        raise ConnectionResetError("the server has closed the connection")
    return more


async def test_a_request_right_behind_its_handshake_is_served(encrypted: Served) -> None:
    assert status_of(await ask_at_once(encrypted.port)) == 200
    assert encrypted.bodies == [1]


@pytest.mark.parametrize(
    "said", [b"", b"\x16\x03\x01\x02\x00", ASK], ids=["nothing", "half a hello", "no TLS"]
)
async def test_a_handshake_that_does_not_end_is_closed(encrypted: Served, said: bytes) -> None:
    """Before, such a connection was open for 60 s."""
    with suppress(ConnectionError):  # what it said was not read
        assert b"HTTP" not in await encrypted.send(said)
    assert not encrypted.bodies


async def test_handshakes_are_counted_among_connections(encrypted: Served) -> None:
    """Before, they were counted by nobody until they had ended."""
    others = [
        await asyncio.open_connection("127.0.0.1", encrypted.port) for _ in range(BOUNDS.max_connections)
    ]
    reader, writer = await asyncio.open_connection("127.0.0.1", encrypted.port)
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    assert encrypted.refused == ["connections"]
    for _, other in (*others, (reader, writer)):
        other.close()
    await until_served(lambda: ask_at_once(encrypted.port))
