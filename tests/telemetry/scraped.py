"""A port with metrics over TLS, and clients of it by Python's own TLS."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import DOMAIN, Role
from signalbox.links.tls.scrapes import ScrapeGuard
from signalbox.telemetry.metrics_server import MetricsServer
from tests.ports import free_ports
from tests.signalbox.links.tls.certificates import Certificates

SAMPLE = "process_cpu_seconds_total"


@dataclass(frozen=True)
class Files:
    """What a port with metrics reads: certificate and key, and the authority of those who may; None: anybody may."""

    cert: Path
    key: Path
    ca: Path | None = None
    domain: str = DOMAIN

    def guard(self) -> ScrapeGuard:
        return ScrapeGuard(Identity(self.cert, self.key, self.ca, "--metrics-tls", domain=self.domain))


def place(certificates: Certificates, folder: Path, *, asks: bool = False, name: str = "") -> Files:
    """Files of a worker, under names that stay when others take their places. asks: for certificates of clients."""
    folder.mkdir(exist_ok=True)
    files = Files(folder / "tls.crt", folder / "tls.key", folder / "ca.crt" if asks else None)
    for new, old in zip(
        certificates.files(Role.WORKER, name), (files.cert, files.key, files.ca), strict=True
    ):
        if old is not None:
            shutil.copy(new, old.with_suffix(".new"))
            old.with_suffix(".new").rename(old)
    return files


@contextmanager
def serving(files: Files) -> Iterator[int]:
    """The port of a server of this process's own metrics."""
    (port,) = free_ports(1)
    server = MetricsServer()
    server.start(f"127.0.0.1:{port}", files.guard())
    try:
        yield port
    finally:
        asyncio.run(server.stop())


def believing(*believed: Certificates, showing: tuple[Path, ...] = ()) -> ssl.SSLContext:
    """A client's context. showing: certificate and key of its own; empty: it shows none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for certificates in believed:
        context.load_verify_locations(certificates.folder / "ca.crt")
    if showing:
        context.load_cert_chain(showing[0], showing[1])
    return context


def unverified() -> ssl.SSLContext:
    """As the kubelet's probes: it shows nothing, and takes whatever it is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    text: str
    shown: bytes
    """The server's certificate."""


def scrape(
    port: int, context: ssl.SSLContext, name: str = "worker.signalbox", path: str = "/metrics"
) -> Answer:
    """What a client gets that expects a server of this name, and that TLS ends before the connection does."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname=name, suppress_ragged_eofs=False) as link,
    ):
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        answer = HTTPResponse(link)
        answer.begin()
        text = answer.read().decode()
        assert link.recv(1) == b""
        return Answer(answer.status, text, link.getpeercert(True) or b"")
