"""Connections that ask for too much, or take too long, before anybody knows whose they are (AK1)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from frontend_svc.api.http.bounds import GRPC_SHARE, RESERVED_FILES, connections_for
from frontend_svc.api.http.server import HttpServer
from tests.frontend_svc.api.bounds.served import BOUNDS, HEAD, Served, status_of, until_served


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"X: " + b"a" * (4 << 20),
        HEAD + b"X: " + b"a" * (65 << 10) + b"\r\n\r\n",
        HEAD + b"X: a\r\n" * 500 + b"\r\n",
        b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + b"T: a\r\n" * 500 + b"\r\n",
    ],
    ids=["one header without end", "one header", "many headers", "path", "trailers"],
)
async def test_a_head_has_bounds(served: Served, head: bytes) -> None:
    """Before, 48 MiB in one header were kept and served, without a key."""
    answer = await served.send(head)
    assert status_of(answer) == 431
    assert "128 headers" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]
    assert served.refused == ["head"]
    assert 200 not in served.bodies


async def test_a_head_within_the_bounds_is_served(served: Served) -> None:
    """On a connection that goes on, each request anew."""
    one = HEAD + b"X: a\r\n" * 100 + b"Y: " + b"a" * 30_000 + b"\r\nContent-Length: 2\r\n\r\nab"
    last = HEAD + b"Connection: close\r\nContent-Length: 1\r\n\r\na"
    answer = await served.send(one, one, last, wait_s=0.1)
    assert answer.count(b"200 OK") == 3
    assert served.bodies == [2, 2, 1]


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "host"),
        (HEAD + b"Host: other\r\nContent-Length: 0\r\n\r\n", "host"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "transfer_encoding"),
        (b"nothing of the kind\r\n\r\n", "malformed"),
    ],
)
async def test_what_proxies_read_otherwise_is_refused(served: Served, head: bytes, word: str) -> None:
    assert status_of(await served.send(head)) == 400
    assert served.refused == [word]
    assert not served.bodies


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ((b"POST / HT",), "slow_head"),
        ((HEAD, b"A: b\r\n", b"C: d\r\n", b"E: f\r\n", b"G: h\r\n"), "slow_head"),
        ((HEAD + b"Content-Length: 10\r\n\r\nabc",), "slow_body"),
        ((HEAD + b"Content-Length: 10\r\n\r\n", *[b"a"] * 9), "slow_body"),
        ((b"\r\n",), "slow_head"),
    ],
    ids=["half a line", "a header at a time", "half a body", "a byte at a time", "an empty line"],
)
async def test_who_takes_long_is_refused(served: Served, parts: tuple[bytes, ...], word: str) -> None:
    """Before, half a request stayed open for as long as its client liked."""
    answer = await served.send(*parts, wait_s=0.1)
    assert status_of(answer) == 408
    assert served.refused == [word]
    assert served.bodies == ([None] if word == "slow_body" else [])


async def test_who_says_nothing_is_left(served: Served) -> None:
    assert await served.send() == b""
    assert not served.refused


async def test_a_body_that_comes_steadily_may_take_its_time(served: Served) -> None:
    """1,000 bytes a second are asked for here, and 2,000 come."""
    parts = [b"a" * 200] * 8
    head = HEAD + b"Connection: close\r\nContent-Length: 1600\r\n\r\n"
    assert status_of(await served.send(head, *parts, wait_s=0.1)) == 200
    assert served.bodies == [1600]


async def test_an_answer_may_take_its_time(served: Served) -> None:
    """Only what a client sends is measured."""
    gate = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await gate.wait()
        await served(scope, receive, send)

    server = HttpServer(slow, bounds=BOUNDS, on_refused=served.refused.append)
    served.port = await server.start("127.0.0.1:0")
    asking = asyncio.create_task(served.send(HEAD + b"Connection: close\r\nContent-Length: 1\r\n\r\na"))
    await asyncio.sleep(0.8)
    gate.set()
    assert status_of(await asking) == 200
    assert not served.refused
    await server.stop()


async def test_connections_are_counted(served: Served) -> None:
    others = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(BOUNDS.max_connections)]
    answer = await served.send()
    assert status_of(answer) == 503
    assert served.refused == ["connections"]
    for _, writer in others:
        writer.close()
    await until_served(lambda: served.send(HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n"))


def test_a_process_has_files_left_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontend_svc.api.http.bounds.resource.getrlimit", lambda which: (4096, 4096))
    assert connections_for(0) + connections_for(0, GRPC_SHARE) == 4096 - RESERVED_FILES
    assert connections_for(10) == connections_for(10, GRPC_SHARE) == 10


@pytest.mark.parametrize("second", [b"nothing of the kind\r\n\r\n", HEAD, HEAD + b"X: a\r\n" * 500], ids=str)
async def test_a_refusal_is_not_the_answer_of_another_request(served: Served, second: bytes) -> None:
    """AK2. Before, a request that was right got 400 or 408 for what came behind it, as behind a proxy that shares
    connections."""
    gate = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await gate.wait()
        await served(scope, receive, send)

    server = HttpServer(slow, bounds=BOUNDS, on_refused=served.refused.append)
    served.port = await server.start("127.0.0.1:0")
    answer = await served.send(HEAD + b"Content-Length: 1\r\n\r\na", second, wait_s=0.1)
    assert answer == b""
    assert len(served.refused) == 1
    gate.set()
    await server.stop()


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"Content-Length: +3\r\n\r\nabc",
        b"Content-Length: 3, 3\r\n\r\nabc",
        b"Content-Length : 3\r\n\r\nabc",
        b"Content-Length: 18446744073709551616\r\n\r\n",
        b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        b"X: a\nContent-Length: 0\r\n\r\n",
        b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    ],
    ids=str,
)
async def test_framing_that_can_be_read_in_two_ways_is_refused(
    served: Served, framing: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing is written of it: anybody could fill the log. Before, each was a line."""
    assert status_of(await served.send(HEAD + framing)) == 400
    assert served.refused == ["malformed"]
    assert not caplog.records


async def test_offers_of_other_protocols_are_passed_over(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, each was two lines of the log."""
    head = HEAD + b"Content-Length: 0\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert status_of(await served.send(head)) == 200
    assert not caplog.records
