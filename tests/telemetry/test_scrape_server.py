"""Scrapes are answered beside clients that only connect, and these cost no more than a few threads."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from signalbox.errors import StartupError
from signalbox.telemetry import scrape_server
from signalbox.telemetry.metrics_server import MetricsServer
from signalbox.telemetry.scrape_server import MOST_CONNECTIONS
from tests.ports import free_ports


@pytest.fixture
def port() -> Iterator[int]:
    (port,) = free_ports(1)
    server = MetricsServer()
    server.start(f"127.0.0.1:{port}")
    yield port
    asyncio.run(server.stop())


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def test_many_that_only_connect_keep_nobody_out(port: int) -> None:
    before = threading.active_count()
    with contextlib.ExitStack() as held:
        for number in range(10 * MOST_CONNECTIONS):
            silent = held.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            with contextlib.suppress(OSError):  # it may be the next to be closed
                silent.sendall(b"GET /metrics HTTP/1.1\r\nHost: " + b"x" * number)
            if number % MOST_CONNECTIONS == 0:
                assert "process_cpu_seconds_total" in scrape(port)
        give_up = time.monotonic() + 10  # threads of connections that were closed end a moment later
        while threading.active_count() - before > MOST_CONNECTIONS + 5:
            assert time.monotonic() < give_up, threading.enumerate()
            time.sleep(0.01)
        assert "process_cpu_seconds_total" in scrape(port)


def test_half_a_request_ends(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape_server._Handler, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", port), 10) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        slow.settimeout(10)
        assert slow.recv(1) == b""


def test_a_port_in_use_is_told(port: int) -> None:
    with pytest.raises(StartupError, match="the port is in use"):
        MetricsServer().start(f"127.0.0.1:{port}")
