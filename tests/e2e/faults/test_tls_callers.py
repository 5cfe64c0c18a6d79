"""Every kind of caller with a wrong certificate, or none, at every port of a ring of processes (TL1, TL2, TL4, TL8)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from signalbox.cli.http_client import HttpClient
from signalbox.errors import UnavailableError
from signalbox.links.tls.client_files import ClientFiles
from signalbox.links.tls.identity import name_options
from signalbox.links.tls.roles import CALLERS, Role
from signalbox.links.tls.scrapes import READERS
from signalbox.v1 import scheduler_pb2
from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from tests.e2e.faults.streams import Streams
from tests.e2e.faults.test_tls import end_of
from tests.signalbox.links.tls.certificates import Certificates
from tests.signalbox.links.tls.impostors import wrong_files
from tests.telemetry.scraped import SAMPLE, believing, scrape

pytestmark = pytest.mark.timeout(300)

SERVICES = ("scheduler", "relay", *WORKERS, "frontend")
LINKS = ("scheduler", "relay", "worker-0")
RELAYED = ("AttachWorker", "FindLeader", "ReportWorkerExit")
NUM_STREAMS = 8
UNAVAILABLE, PERMISSION_DENIED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture(scope="module")
def ring(ours: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedRing]:
    """Metrics of all services, and the faces of clients, ask for certificates, too."""
    ring = RelayedRing(tmp_path_factory.mktemp("ring"), ours.folder, asks_all=True)
    for name in SERVICES:
        ring.start(name)
    try:
        asyncio.run(ring.ready())
        yield ring
        asyncio.run(serves(ring))
    finally:
        statuses = ring.stop()
    assert set(statuses.values()) == {0}, statuses


async def serves(ring: RelayedRing) -> None:
    """Whatever was tried, the ring goes on."""
    await Streams(ring.client(), NUM_STREAMS).assert_all_end_once()


async def code_of(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """How a check of health ends, which every role of the ring may ask for."""
    async with channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def showing(address: str, role: Role, files: tuple[Path, Path, Path] | None, ca: Path) -> grpc.aio.Channel:
    """To a server of a `role`. files: certificate, key and authority of who dials; None: they show none, and believe
    `ca`."""
    if files is None:
        credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    else:
        cert, key, ca = files
        credentials = grpc.ssl_channel_credentials(ca.read_bytes(), key.read_bytes(), cert.read_bytes())
    return grpc.aio.secure_channel(address, credentials, options=name_options(role))


@pytest.mark.parametrize("name", LINKS)
async def test_no_caller_without_a_right_certificate_gets_through_a_link(
    ring: RelayedRing, ours: Certificates, theirs: Certificates, name: str
) -> None:
    """TL1. The check of the same call with the right certificate shows that nothing else was in the way."""
    address, role = ring.listening[name], Role(name.partition("-")[0])
    ca = ours.folder / "ca.crt"
    assert await code_of(grpc.aio.insecure_channel(address)) == UNAVAILABLE
    assert await code_of(showing(address, role, None, ca)) == UNAVAILABLE
    for caller in Role:
        right = await code_of(showing(address, role, ours.files(caller), ca))
        assert right == (PERMISSION_DENIED if caller is Role.MONITOR else grpc.StatusCode.OK), caller
        for wrong, files in wrong_files(ours, theirs, caller).items():
            assert await code_of(showing(address, role, files, ca)) == UNAVAILABLE, (caller, wrong)


async def test_a_relay_answers_no_other_role(ring: RelayedRing, ours: Certificates) -> None:
    """TL4: each of its methods, by every role. Calls end at once: nothing is said."""
    ca = ours.folder / "ca.crt"
    for caller in Role:
        async with showing(ring.relay, Role.RELAY, ours.files(caller), ca) as channel:
            for method in scheduler_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods:
                name = f"/signalbox.v1.SchedulerService/{method.name}"
                code = await end_of(channel, name, method)
                if method.name in RELAYED:
                    assert (code == PERMISSION_DENIED) == (caller not in CALLERS[name]), (caller, name, code)
                else:
                    assert code == grpc.StatusCode.UNIMPLEMENTED, (caller, name, code)


@pytest.mark.parametrize("name", ["scheduler", "relay", "worker-0", "frontend"])
def test_no_reader_without_a_right_certificate_sees_metrics(
    ring: RelayedRing, ours: Certificates, theirs: Certificates, name: str
) -> None:
    """TL8."""
    port, server = int(ring.metrics[name].rpartition(":")[2]), Role(name.partition("-")[0]).dns_name
    for context in (
        believing(ours),
        *(believing(ours, showing=files) for files in wrong_files(ours, theirs, Role.MONITOR).values()),
    ):
        with pytest.raises(ssl.SSLError):
            scrape(port, context, server)
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = b"".join(iter(lambda: plain.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 400 ") and SAMPLE.encode() not in answer
    statuses = {role: scrape(port, believing(ours, showing=ours.files(role)), server).status for role in Role}
    assert statuses == {role: 200 if role in READERS else 403 for role in Role}


async def test_no_client_without_a_right_certificate_gets_to_the_faces(
    ring: RelayedRing, ours: Certificates, theirs: Certificates
) -> None:
    """Whatever is in the certificate beside its authority and its times, it says nothing of keys."""
    right, ca = ours.files(Role.OPERATOR), ours.folder / "ca.crt"
    wrong = wrong_files(ours, theirs, Role.OPERATOR)
    assert await face_code(ring, right, ca) == grpc.StatusCode.OK and get_models(ring, right, ca)
    assert await code_of(grpc.aio.insecure_channel(ring.grpc)) == UNAVAILABLE
    for files in (None, *wrong.values()):
        assert await face_code(ring, files, ca) == UNAVAILABLE
        with pytest.raises(UnavailableError):
            get_models(ring, files, ca)
    with pytest.raises(UnavailableError):
        HttpClient(f"http://{ring.http}").get("/v1/models")


async def face_code(ring: RelayedRing, files: tuple[Path, Path, Path] | None, ca: Path) -> grpc.StatusCode:
    return await code_of(showing(ring.grpc, Role.FRONTEND, files, ca))


def get_models(ring: RelayedRing, files: tuple[Path, Path, Path] | None, ca: Path) -> list[object]:
    cert, key = files[:2] if files else (None, None)
    found = HttpClient(f"https://{ring.http}", files=ClientFiles(ca, cert, key)).get("/v1/models")
    models: list[object] = found["data"]
    return models
