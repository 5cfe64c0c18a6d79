"""What clients are shown: HTTPS and gRPC by TLS, renewed while streams go on."""

from __future__ import annotations

import asyncio
import gc
import shutil
import socket
import ssl
from asyncio.selector_events import _SelectorSocketTransport
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import httpx
import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from signalbox.client import Client
from signalbox.errors import StartupError, UnavailableError
from signalbox.links.tls.roles import Role
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster, Row
from tests.signalbox.links.tls.certificates import Certificates

Start = Callable[..., Awaitable[Frontend]]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates.make(tmp_path / "ours")


@pytest.fixture
async def start(cluster: Cluster, model_directory: Path) -> AsyncIterator[Start]:
    started: list[Frontend] = []

    async def start(cert: Path, key: Path, ca: Path | None = None) -> Frontend:
        settings = FrontendSettings(
            scheduler=f"127.0.0.1:{cluster.scheduler_port}",
            http="127.0.0.1:0",
            grpc="127.0.0.1:0",
            model=model_directory,
            drain_s=0.2,
            public_tls_cert=cert,
            public_tls_key=key,
            public_tls_ca=ca,
        )
        started.append(Frontend(settings))
        await started[-1].start()
        await until(lambda: started[-1].is_ready)
        return started[-1]

    yield start
    for frontend in started:
        await frontend.stop()


def believing(certificates: Certificates, role: Role | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.folder / "ca.crt"))
    if role is not None:
        cert, key, _ = certificates.files(role)
        context.load_cert_chain(cert, key)
    return context


async def status_of(frontend: Frontend, context: ssl.SSLContext | bool) -> int:
    url = f"https://127.0.0.1:{frontend.http_port}"
    async with httpx.AsyncClient(base_url=url, verify=context, timeout=5) as http:
        return (await http.get("/ready")).status_code


async def models_of(frontend: Frontend, ca: Path) -> list[str]:
    async with Client(f"grpcs://127.0.0.1:{frontend.grpc_port}", ca=ca) as client:
        return [model.id for model in await client.list_models()]


def serial_at(port: int, context: ssl.SSLContext) -> object:
    with (
        socket.create_connection(("127.0.0.1", port), 5) as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as secure,
    ):
        shown = secure.getpeercert()
        assert shown is not None
        return shown["serialNumber"]


async def test_clients_that_believe_our_authority_are_served(
    start: Start, certificates: Certificates
) -> None:
    frontend = await start(*certificates.files(Role.FRONTEND)[:2])
    assert await status_of(frontend, believing(certificates)) == 200
    assert await models_of(frontend, certificates.folder / "ca.crt") == ["toy"]


async def test_others_and_plaintext_get_nothing(
    start: Start, certificates: Certificates, tmp_path: Path
) -> None:
    frontend = await start(*certificates.files(Role.FRONTEND)[:2])
    stranger = Certificates.make(tmp_path / "theirs")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        await status_of(frontend, believing(stranger))
    with pytest.raises(UnavailableError, match="not of the authority"):
        await models_of(frontend, stranger.folder / "ca.crt")
    async with httpx.AsyncClient(timeout=5) as http:
        with pytest.raises(httpx.HTTPError):
            await http.get(f"http://127.0.0.1:{frontend.http_port}/ready")
    with pytest.raises(UnavailableError):
        async with Client(f"127.0.0.1:{frontend.grpc_port}") as client:
            await client.list_models()


async def test_clients_have_to_show_a_certificate_where_it_is_asked_for(
    start: Start, certificates: Certificates
) -> None:
    cert, key, ca = certificates.files(Role.FRONTEND)
    frontend = await start(cert, key, ca)
    assert await status_of(frontend, believing(certificates, Role.OPERATOR)) == 200
    with pytest.raises(httpx.HTTPError):
        await status_of(frontend, believing(certificates))
    with pytest.raises(UnavailableError):
        await models_of(frontend, ca)
    pem = [path.read_bytes() for path in certificates.files(Role.OPERATOR)]
    credentials = grpc.ssl_channel_credentials(pem[2], pem[1], pem[0])
    async with grpc.aio.secure_channel(f"127.0.0.1:{frontend.grpc_port}", credentials) as channel:
        await asyncio.wait_for(channel.channel_ready(), 5)


async def test_a_renewed_certificate_is_shown_and_a_stream_goes_on(
    start: Start, certificates: Certificates, cluster: Cluster, tmp_path: Path
) -> None:
    """gRPC looks at the files first: HTTP must not miss it for that."""
    cert, key = (Path(shutil.copy(path, tmp_path)) for path in certificates.files(Role.FRONTEND)[:2])
    frontend = await start(cert, key)
    context = believing(certificates)
    before = await asyncio.to_thread(serial_at, frontend.http_port, context)
    url = f"https://127.0.0.1:{frontend.http_port}"
    body = {"model": "toy", "prompt": "the fox", "stream": True, "max_tokens": 50}
    async with httpx.AsyncClient(base_url=url, verify=context, timeout=10) as http:
        request = http.build_request("POST", "/v1/completions", json=body)
        asking = asyncio.create_task(http.send(request, stream=True))
        ref = (await cluster.scheduler.next("submit")).ref
        cluster.worker.emit(Row(ref.attempt, 0, [9]))
        answer = await asking
        lines = (line async for line in answer.aiter_lines() if line)
        assert (await anext(lines)).startswith("data: ")
        renewed = certificates.files(Role.FRONTEND, "renewed")
        shutil.copy(renewed[1], key)
        shutil.copy(renewed[0], cert)
        await models_of(frontend, certificates.folder / "ca.crt")
        async with asyncio.timeout(10):
            while await asyncio.to_thread(serial_at, frontend.http_port, context) == before:
                await asyncio.sleep(0.1)
        cluster.worker.emit(Row(ref.attempt, 1, [9]))
        assert (await anext(lines)).startswith("data: ")
        await answer.aclose()


async def test_half_a_pair_is_refused(certificates: Certificates, model_directory: Path) -> None:
    cert, _, ca = certificates.files(Role.FRONTEND)
    for wrong in ({"public_tls_cert": cert}, {"public_tls_ca": ca}):
        with pytest.raises(
            StartupError, match="--public-tls-cert and --public-tls-key must be given together"
        ):
            Frontend(FrontendSettings(model=model_directory, **wrong))
    with pytest.raises(StartupError, match=r"--public-tls-cert .*worker\.key"):
        worker_key = certificates.files(Role.WORKER)[1]
        Frontend(FrontendSettings(model=model_directory, public_tls_cert=cert, public_tls_key=worker_key))


async def test_a_connection_that_ended_is_freed_without_a_collection(
    start: Start, certificates: Certificates
) -> None:
    """Also the transport of its socket, which stands below that of TLS."""
    frontend = await start(*certificates.files(Role.FRONTEND)[:2])
    gc.collect()
    gc.disable()
    try:
        before = num_transports()
        for _ in range(3):
            await asyncio.to_thread(serial_at, frontend.http_port, believing(certificates))
        await until(lambda: num_transports() <= before)
    finally:
        gc.enable()


def num_transports() -> int:
    """How many sockets of the event loop are in memory, open or not."""
    return sum(type(each) is _SelectorSocketTransport for each in gc.get_objects())
