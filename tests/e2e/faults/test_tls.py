"""A ring under mutual TLS: it serves, operators see it, and strangers on its ports get nothing."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from signalbox.client import Client
from signalbox.links import rpc
from signalbox.links.tls import identity as identities
from signalbox.links.tls.roles import CALLERS, Role
from signalbox.v1 import (
    admin_pb2,
    from_worker_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from tests.e2e.conftest import Launch, RunningRing, StartRing
from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from tests.ports import free_ports
from tests.signalbox.links.tls.certificates import Certificates
from tests.telemetry.scraped import believing, scrape

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    certificates = Certificates.make(tmp_path_factory.mktemp("certs"))
    for role in Role:
        certificates.files(role)
    return certificates


@pytest.fixture
def ring(start_ring: StartRing, certificates: Certificates) -> RunningRing:
    return start_ring("--runner", "sim", "--tls", str(certificates.folder))


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    identities.take_on(None)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "signalbox", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def generate(ring: RunningRing) -> int:
    async with Client(ring.grpc) as client:
        result = await client.generate([1, 2, 3], max_tokens=8, ignore_eos=True).result()
    return len(result.token_ids)


async def test_it_serves_and_operators_see_it(ring: RunningRing, certificates: Certificates) -> None:
    assert await generate(ring) == 8
    status = command("status", "--scheduler", ring.scheduler, "--tls", str(certificates.folder))
    assert "worker-0" in status.stdout, status
    without = command("status", "--scheduler", ring.scheduler)
    assert without.returncode == 1 and "--tls" in without.stderr, without
    nowhere = command("status", "--scheduler", ring.scheduler, "--tls", str(certificates.folder / "no"))
    assert nowhere.returncode == 1 and "there is no operator.crt" in nowhere.stderr


def test_metrics_of_each_service_are_over_tls(start_ring: StartRing, certificates: Certificates) -> None:
    """TL8: by the certificate of its role, and at the scheduler for monitors only."""
    folder, ports = certificates.folder, free_ports(3)
    flags = ["--runner", "sim", "--tls", str(folder), "--metrics", f"127.0.0.1:{ports[0]}"]
    start_ring(*flags, "--scheduler-set", f"metrics-tls-ca={folder / 'ca.crt'}")
    nobody = believing(certificates)
    monitor = believing(certificates, showing=certificates.files(Role.MONITOR))
    for port, role in zip(ports, (Role.SCHEDULER, Role.WORKER, Role.FRONTEND), strict=True):
        assert f"signalbox_{role.value}_" in scrape(port, monitor, role.dns_name).text
    assert scrape(ports[1], nobody, Role.WORKER.dns_name).status == 200
    with pytest.raises(ssl.SSLError, match="certificate required"):
        scrape(ports[0], nobody, Role.SCHEDULER.dns_name)


async def test_a_stranger_attaches_as_nobody(
    ring: RunningRing, certificates: Certificates, tmp_path: Path
) -> None:
    """TL5. Once anybody who reached the port became `worker-0` and got prompts."""
    hello = from_worker_pb2.AttachWorkerRequest()
    hello.hello.worker_id = "worker-0"
    stranger = Certificates.make(tmp_path / "theirs")
    attempts = [
        (None, None, False, "UNAVAILABLE"),
        (stranger.identity(Role.WORKER), Role.SCHEDULER, False, "UNAVAILABLE"),
        (certificates.identity(Role.FRONTEND), Role.SCHEDULER, False, "PERMISSION_DENIED"),
        (
            certificates.identity(Role.WORKER, "other", instance="worker-7"),
            Role.SCHEDULER,
            True,
            "PERMISSION_DENIED",
        ),
    ]
    for identity, role, says_hello, expected in attempts:
        identities.take_on(identity)
        async with rpc.channel(ring.scheduler, role) as channel:
            call = scheduler_pb2_grpc.SchedulerServiceStub(channel).AttachWorker(timeout=10)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                if says_hello:  # what is written to a call that was refused is an error of its own
                    await call.write(hello)
                await call.read()
            assert error.value.code().name == expected, (identity, error.value)
    identities.take_on(None)
    assert await generate(ring) == 8


async def test_a_certificate_of_another_role_may_call_nothing(
    ring: RunningRing, certificates: Certificates
) -> None:
    """TL4, on real services: every method of every descriptor, by every role. Calls end at once: nothing is said."""
    for address, served_by, file in (
        (ring.scheduler, Role.SCHEDULER, scheduler_pb2.DESCRIPTOR),
        (ring.scheduler, Role.SCHEDULER, admin_pb2.DESCRIPTOR),
        (f"127.0.0.1:{worker_port(ring)}", Role.WORKER, worker_pb2.DESCRIPTOR),
    ):
        methods = [
            (f"/{service.full_name}/{method.name}", method)
            for service in file.services_by_name.values()
            for method in service.methods
        ]
        for role in Role:
            identities.take_on(certificates.identity(role))
            async with rpc.channel(address, served_by) as channel:
                for name, method in methods:
                    code = await end_of(channel, name, method)
                    is_refused = code == grpc.StatusCode.PERMISSION_DENIED
                    assert is_refused == (role not in CALLERS[name]), (role, name, code)
    identities.take_on(None)
    assert await generate(ring) == 8


async def end_of(channel: grpc.aio.Channel, name: str, method: MethodDescriptor) -> grpc.StatusCode:
    """How a call ends that says nothing, or a request that cannot be read; OK where it does not end by itself."""
    try:
        async with asyncio.timeout(5):
            if method.client_streaming:
                call = channel.stream_stream(name)()
                await call.done_writing()
                await call.read()
                return grpc.StatusCode.OK
            if method.server_streaming:
                await channel.unary_stream(name)(b"\xff").read()
                return grpc.StatusCode.OK
            await channel.unary_unary(name)(b"\xff")
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_worker_reports_the_end_of_no_other(ring: RunningRing, certificates: Certificates) -> None:
    """TL5. Once any worker's certificate was enough to have another's requests moved away."""
    report = scheduler_pb2.ReportWorkerExitRequest(exit=scheduler_pb2.WORKER_EXIT_CRASHED)
    report.worker.worker_id, report.worker.worker_instance = "worker-0", "any"
    identities.take_on(certificates.identity(Role.WORKER, "other", instance="worker-7"))
    async with rpc.channel(ring.scheduler, Role.SCHEDULER) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.ReportWorkerExit(report, timeout=5)
        assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED
        report.worker.worker_id = "worker-7"
        await stub.ReportWorkerExit(report, timeout=5)
    identities.take_on(None)
    assert await generate(ring) == 8


async def test_a_frontend_reads_no_other_frontend_s_outputs(
    ring: RunningRing, certificates: Certificates
) -> None:
    """Once the UUID of a frontend, which its metrics told everybody, was enough."""
    log = next(ring.log_dir.glob("scheduler*.log")).read_text()
    uuid = next(
        line.split("frontend ")[1].split()[0] for line in log.splitlines() if " attached with " in line
    )
    assert uuid not in urllib.request.urlopen(f"{ring.url}/metrics", timeout=10).read().decode()
    worker = f"127.0.0.1:{worker_port(ring)}"
    for identity, says_hello in (
        (certificates.identity(Role.WORKER), False),
        (certificates.identity(Role.FRONTEND, "f2", instance="other"), True),
    ):
        identities.take_on(identity)
        async with rpc.channel(worker, Role.WORKER) as channel:
            call = worker_pb2_grpc.WorkerServiceStub(channel).StreamOutputs(timeout=10)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                if says_hello:
                    await call.write(worker_pb2.StreamOutputsRequest(frontend_instance=uuid))
                await call.read()
            assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED
    identities.take_on(None)
    assert await generate(ring) == 8


async def test_workers_behind_a_relay(certificates: Certificates, tmp_path: Path) -> None:
    """TL5: a relay passes on no worker under another's id than its certificate's, and is no scheduler by its own. Its
    metrics are over TLS, too (TL8)."""
    ring = RelayedRing(tmp_path, certificates.folder)
    for name in ("scheduler", "relay", *WORKERS, "frontend"):
        ring.start(name)
    try:
        identities.take_on(certificates.identity(Role.OPERATOR))
        await ring.ready()
        await ring.attached(*WORKERS)
        port = int(ring.metrics["relay"].rpartition(":")[2])
        page = await asyncio.to_thread(scrape, port, believing(certificates), Role.RELAY.dns_name)
        assert "signalbox_relay_attached" in page.text
        hello = from_worker_pb2.AttachWorkerRequest()
        hello.hello.worker_id = "worker-0"
        other = certificates.identity(Role.WORKER, "other", instance="worker-7")
        for identity, role, says_hello, expected in (
            (other, Role.RELAY, True, "PERMISSION_DENIED"),
            (certificates.identity(Role.WORKER), Role.SCHEDULER, False, "UNAVAILABLE"),
            (certificates.identity(Role.FRONTEND), Role.RELAY, False, "PERMISSION_DENIED"),
        ):
            identities.take_on(identity)
            async with rpc.channel(ring.relay, role) as channel:
                call = scheduler_pb2_grpc.SchedulerServiceStub(channel).AttachWorker(timeout=10)
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    if says_hello:  # what is written to a call that was refused is an error of its own
                        await call.write(hello)
                    await call.read()
                assert error.value.code().name == expected, error.value
        report = scheduler_pb2.ReportWorkerExitRequest(exit=scheduler_pb2.WORKER_EXIT_CRASHED)
        report.worker.worker_id, report.worker.worker_instance = "worker-0", "any"
        identities.take_on(other)
        async with rpc.channel(ring.relay, Role.RELAY) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await scheduler_pb2_grpc.SchedulerServiceStub(channel).ReportWorkerExit(report, timeout=10)
        assert error.value.code().name == "PERMISSION_DENIED"
        async with Client(ring.grpc) as client:
            result = await client.generate([1, 2, 3], max_tokens=8, ignore_eos=True).result()
        assert len(result.token_ids) == 8
    finally:
        statuses = ring.stop()
    assert set(statuses.values()) == {0}


def worker_port(ring: RunningRing) -> str:
    for process in ring.services():
        line = process.cmdline()
        if "worker_svc" in line:
            return next(each for each in line if each.startswith("--listen=")).rpartition(":")[2]
    raise AssertionError("there is no worker")


def test_faces_that_ask_for_certificates_come_up(
    launch_ring: Launch, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` asks them whether they are ready, as this user."""
    cert, key, ca = certificates.files(Role.FRONTEND)
    monkeypatch.setenv("SIGNALBOX_CLIENT_CERT", str(certificates.files(Role.OPERATOR)[0]))
    monkeypatch.setenv("SIGNALBOX_CLIENT_KEY", str(certificates.files(Role.OPERATOR)[1]))
    flags = (f"public-tls-cert={cert}", f"public-tls-key={key}", f"public-tls-ca={ca}")
    options = [word for flag in flags for word in ("--frontend-set", flag)]
    launch_ring("--no-proof", "--runner", "sim", *options).wait_for("signalbox is up")
