"""Who gets through a link: real servers and channels on loopback, each side with files of its own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from signalbox.errors import StartupError
from signalbox.links import rpc
from signalbox.links.tls import identity as identities
from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import CALLERS, Role, instance_of, roles_of
from signalbox.links.tls.trouble import trouble_of
from signalbox.v1 import (
    admin_pb2,
    from_worker_pb2,
    frontend_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
    to_worker_pb2,
    transfer_pb2,
    worker_pb2,
)
from tests.ports import free_ports
from tests.signalbox.links.tls.certificates import Certificates


class Scheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Answers, and says each number back on a stream."""

    async def FindLeader(self, request: Any, context: Any) -> scheduler_pb2.FindLeaderResponse:  # noqa: N802
        return scheduler_pb2.FindLeaderResponse(is_leader=True)

    async def AttachWorker(self, requests: Any, context: Any) -> None:  # noqa: N802
        async for message in requests:
            await context.write(
                to_worker_pb2.AttachWorkerResponse(scheduler_epoch=message.hello.scheduler_epoch)
            )


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates.make(tmp_path / "ours")


@pytest.fixture(autouse=True)
def nobody() -> Any:
    yield
    identities.take_on(None)


@asynccontextmanager
async def serving(identity: Identity | None) -> AsyncIterator[str]:
    identities.take_on(identity)
    server = rpc.Server(["signalbox.v1.SchedulerService"])
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(Scheduler(), server.grpc)
    try:
        yield f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    finally:
        await server.stop(0)


async def ask(address: str, identity: Identity | None, role: Role | None = Role.SCHEDULER) -> Any:
    identities.take_on(identity)
    async with rpc.channel(address, role) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        return await stub.FindLeader(scheduler_pb2.FindLeaderRequest(), timeout=5)


async def refused(
    address: str, identity: Identity | None, role: Role | None = Role.SCHEDULER
) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await ask(address, identity, role)
    code = error.value.code()
    assert isinstance(code, grpc.StatusCode)
    return code


async def test_a_caller_of_the_ring_gets_through(certificates: Certificates) -> None:
    """TL1. A monitor is none: it reads metrics, and asks nothing (TL8)."""
    async with serving(certificates.identity(Role.SCHEDULER)) as address:
        for role in set(Role) - {Role.MONITOR}:
            assert (await ask(address, certificates.identity(role))).is_leader
        assert (
            await refused(address, certificates.identity(Role.MONITOR)) == grpc.StatusCode.PERMISSION_DENIED
        )


def test_a_monitor_may_call_no_method() -> None:
    """TL8."""
    assert [method for method, roles in CALLERS.items() if Role.MONITOR in roles] == []


async def test_no_wrong_and_expired_certificates_are_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    stranger = Certificates.make(tmp_path / "theirs")
    async with serving(certificates.identity(Role.SCHEDULER)) as address:
        assert await refused(address, None, None) == grpc.StatusCode.UNAVAILABLE
        assert await refused(address, stranger.identity(Role.WORKER)) == grpc.StatusCode.UNAVAILABLE
        # Signed by a stranger, who believes our server: it is the server that refuses.
        cert, key, _ = stranger.files(Role.WORKER)
        mixed = Identity(cert, key, certificates.folder / "ca.crt")
        assert await refused(address, mixed) == grpc.StatusCode.UNAVAILABLE
        old = certificates.identity(Role.WORKER, "old", days=1, ago=2)
        assert await refused(address, old) == grpc.StatusCode.UNAVAILABLE
        assert (await ask(address, certificates.identity(Role.WORKER))).is_leader


async def test_a_server_of_another_role_is_not_believed(certificates: Certificates) -> None:
    """TL3. A worker that stands where the scheduler should be gets no worker, and no frontend."""
    async with serving(certificates.identity(Role.WORKER)) as address:
        assert await refused(address, certificates.identity(Role.FRONTEND)) == grpc.StatusCode.UNAVAILABLE
    async with serving(certificates.identity(Role.RELAY)) as address:
        assert await refused(address, certificates.identity(Role.WORKER)) == grpc.StatusCode.UNAVAILABLE
        assert (await ask(address, certificates.identity(Role.WORKER), Role.RELAY)).is_leader


async def test_a_refused_call_leaves_a_line_with_who_and_from_where(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(certificates.identity(Role.SCHEDULER)) as address:
        identities.take_on(certificates.identity(Role.FRONTEND))
        async with rpc.channel(address, Role.SCHEDULER) as channel:
            call = scheduler_pb2_grpc.SchedulerServiceStub(channel).AttachWorker(timeout=5)
            with pytest.raises(grpc.aio.AioRpcError):
                await call.read()
    (line,) = [vars(record) for record in caplog.records if record.name == "signalbox.links.tls.guard"]
    assert (line["message"], line["outcome"]) == ("call refused", "PermissionDeniedError")
    assert line["method"] == "/signalbox.v1.SchedulerService/AttachWorker"
    assert "/frontend" in line["caller"] and line["client"].startswith("ipv4:127.0.0.1:")


async def test_calls_of_another_role_are_refused_by_name(certificates: Certificates) -> None:
    async with serving(certificates.identity(Role.SCHEDULER)) as address:
        for role in Role:
            identities.take_on(certificates.identity(role))
            async with rpc.channel(address, Role.SCHEDULER) as channel:
                call = scheduler_pb2_grpc.SchedulerServiceStub(channel).AttachWorker(timeout=5)
                with_hello = from_worker_pb2.AttachWorkerRequest()
                with_hello.hello.scheduler_epoch = 7
                if role is Role.WORKER:
                    await call.write(with_hello)
                    assert (await call.read()).scheduler_epoch == 7
                    continue
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call.read()
                assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED
                assert f"AttachWorker is for worker, and this caller is {role.value}" in error.value.details()


async def test_a_certificate_of_no_role_may_ask_nothing(certificates: Certificates) -> None:
    """TL2. Of our authority, but not for a ring: another team's, for example."""
    cert, key, ca = certificates.files(Role.SCHEDULER)
    async with serving(Identity(cert, key, ca, domain="other.example")) as address:  # where ours are nobody's
        assert await refused(address, certificates.identity(Role.WORKER)) == grpc.StatusCode.UNAUTHENTICATED


async def test_files_are_read_again_and_streams_go_on(certificates: Certificates, tmp_path: Path) -> None:
    """TL7. Server and client get certificates of a new authority while a stream is open: it goes on, and new links are
    by the new one only."""
    files = [tmp_path / name for name in ("s.crt", "s.key", "s.ca", "w.crt", "w.key", "w.ca")]

    def install(source: Certificates) -> None:
        for path, to in zip([*source.files(Role.SCHEDULER), *source.files(Role.WORKER)], files, strict=True):
            shutil.copy(path, to)

    install(certificates)
    server, worker, before = (
        Identity(*files[:3]),
        Identity(*files[3:]),
        certificates.identity(Role.WORKER, "kept"),
    )
    async with serving(server) as address:
        identities.take_on(worker)
        async with rpc.channel(address, Role.SCHEDULER) as channel:
            call = scheduler_pb2_grpc.SchedulerServiceStub(channel).AttachWorker()
            for number in range(1, 6):
                message = from_worker_pb2.AttachWorkerRequest()
                message.hello.scheduler_epoch = number
                await call.write(message)
                assert (await call.read()).scheduler_epoch == number
                if number == 2:
                    install(Certificates.make(tmp_path / "new"))
                    assert (await ask(address, worker)).is_leader
                    assert await refused(address, before) == grpc.StatusCode.UNAVAILABLE
            call.cancel()


async def test_files_that_do_not_fit_change_nothing(certificates: Certificates, tmp_path: Path) -> None:
    cert, key, ca = (shutil.copy(path, tmp_path) for path in certificates.files(Role.SCHEDULER))
    identity = Identity(Path(cert), Path(key), Path(ca))
    before = identity.pem()
    other = Certificates.make(tmp_path / "other")
    shutil.copy(other.files(Role.SCHEDULER)[0], cert)  # its key is still the old one
    assert identity.pem() == before
    shutil.copy(other.files(Role.SCHEDULER)[1], key)
    assert identity.pem() != before
    with pytest.raises(StartupError, match=r"--tls-cert .*s\.crt with --tls-key"):
        Identity(tmp_path / "s.crt", Path(key), Path(ca))


async def test_health_is_for_everybody_of_the_ring(certificates: Certificates) -> None:
    async with serving(certificates.identity(Role.SCHEDULER)) as address:
        identities.take_on(certificates.identity(Role.OPERATOR))
        async with rpc.channel(address, Role.SCHEDULER) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=5
            )
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_each_method_of_a_link_has_its_callers() -> None:
    """TL4. What is missing would be refused to everybody, and nothing is listed that does not exist."""
    links = [
        file.services_by_name
        for file in (pb2.DESCRIPTOR for pb2 in (scheduler_pb2, worker_pb2, transfer_pb2, admin_pb2))
    ]
    methods = {
        f"/{service.full_name}/{method.name}"
        for services in links
        for service in services.values()
        for method in service.methods
    }
    assert methods == {method for method in CALLERS if method.startswith("/signalbox.")}
    faces = frontend_pb2.DESCRIPTOR.services_by_name["GenerationService"]
    assert not [method for method in CALLERS if faces.full_name in method], "faces of clients have keys"


@pytest.mark.parametrize(
    ("names", "roles", "instance"),
    [
        (["spiffe://signalbox/worker"], {Role.WORKER}, None),
        (["spiffe://signalbox/worker/worker-3"], {Role.WORKER}, "worker-3"),
        (["worker.signalbox", "worker-3.svc"], {Role.WORKER}, None),
        (["relay.signalbox", "scheduler.signalbox"], {Role.RELAY, Role.SCHEDULER}, None),
        (["spiffe://signalbox/relay", "scheduler.signalbox"], {Role.RELAY}, None),
        (["spiffe://other.example/operator"], set(), None),
        (
            ["spiffe://a.example/worker/worker-0", "spiffe://signalbox/worker/worker-7"],
            {Role.WORKER},
            "worker-7",
        ),
        (["worker.signalbox.example.org", "spiffe://signalbox/", "spiffe://worker"], set(), None),
    ],
)
def test_names_say_roles(names: list[str], roles: set[Role], instance: str | None) -> None:
    assert roles_of(names) == roles
    assert instance_of(names, Role.WORKER) == instance


async def test_a_dial_while_the_loop_lives_is_not_blocked_by_files(certificates: Certificates) -> None:
    """Many dials at once, each of which looks at the files."""
    async with serving(certificates.identity(Role.SCHEDULER)) as address:
        identity = certificates.identity(Role.WORKER)
        answers = await asyncio.gather(*(ask(address, identity) for _ in range(20)))
    assert all(answer.is_leader for answer in answers)


async def test_what_went_wrong_is_said(certificates: Certificates, tmp_path: Path) -> None:
    """By the words that gRPC has for it today: when they change, this tells."""
    stranger = Certificates.make(tmp_path / "theirs")
    cert, key, _ = stranger.files(Role.WORKER)
    mixed = Identity(cert, key, certificates.folder / "ca.crt")

    async def told(address: str, identity: Identity | None, role: Role | None = Role.SCHEDULER) -> str:
        identities.take_on(identity)
        async with rpc.channel(address, role) as channel:
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stub.FindLeader(scheduler_pb2.FindLeaderRequest(), timeout=5)
        details = error.value.details() or ""
        return trouble_of(details, "HERE", has_identity=identity is not None) or details

    async with serving(certificates.identity(Role.SCHEDULER)) as address:
        assert "if it wants a certificate, say --tls" in await told(address, None, None)
        assert "HERE does not take our certificate" in await told(address, mixed)
        assert "is not of the authority" in await told(address, stranger.identity(Role.WORKER))
        assert "another role" in await told(address, certificates.identity(Role.FRONTEND), Role.WORKER)
    async with serving(None) as address:
        assert "HERE speaks plaintext" in await told(address, certificates.identity(Role.FRONTEND))
    assert "onnection refused" in await told("127.0.0.1:1", certificates.identity(Role.FRONTEND))


async def test_a_port_of_health_answers_that_and_nothing_else(certificates: Certificates) -> None:
    """In plaintext, for probes that speak no TLS."""
    (port,) = free_ports(1)
    identities.take_on(certificates.identity(Role.SCHEDULER))
    server = rpc.Server(["signalbox.v1.SchedulerService"])
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(Scheduler(), server.grpc)
    await server.start("127.0.0.1:0", health_address=f"127.0.0.1:{port}")
    await server.set_serving(True)
    try:
        async with rpc.channel(f"127.0.0.1:{port}") as channel:
            service = health_pb2.HealthCheckRequest(service="signalbox.v1.SchedulerService")
            answer = await health_pb2_grpc.HealthStub(channel).Check(service, timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert await refused(f"127.0.0.1:{port}", None, None) == grpc.StatusCode.UNIMPLEMENTED
    finally:
        await server.stop(0)
    assert await refused(f"127.0.0.1:{port}", None, None) == grpc.StatusCode.UNAVAILABLE
