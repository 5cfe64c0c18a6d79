"""Certificates and their authority replaced in a ring of processes under streams, all links dialled anew: TL7."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from signalbox.cli.identity import files_of
from signalbox.links import rpc
from signalbox.links.tls import identity as identities
from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import Role
from tests.chaos.proxy import Proxy
from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from tests.e2e.faults.streams import Streams
from tests.ports import free_ports
from tests.signalbox.links.tls.certificates import Certificates

pytestmark = pytest.mark.timeout(300)

NUM_STREAMS, NUM_TOKENS = 32, 250
ROLES = (Role.SCHEDULER, Role.RELAY, Role.WORKER, Role.FRONTEND, Role.OPERATOR)
LISTENING = ("scheduler", "relay", *WORKERS)


class Installed:
    """The folder whose files the ring reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def leaves(self, source: Certificates, name: str) -> None:
        """Replaces each role's key and certificate by new ones of an authority, under the ring's eyes."""
        for role in ROLES:
            cert, key, _ = source.files(role, f"{role.value}-{name}")
            self._replace(f"{role.value}.key", key.read_bytes())
            self._replace(f"{role.value}.crt", cert.read_bytes())

    def believe(self, *sources: Certificates) -> None:
        """Replaces the authority by one or several."""
        self._replace("ca.crt", b"".join((source.folder / "ca.crt").read_bytes() for source in sources))

    def _replace(self, name: str, content: bytes) -> None:
        made = self.folder / f"{name}.new"
        made.write_bytes(content)
        made.replace(self.folder / name)


@asynccontextmanager
async def running(log_dir: Path, certificates: Path) -> AsyncIterator[tuple[RelayedRing, list[Proxy]]]:
    """A ring each of whose links goes through a proxy of ours."""
    fronts = dict(zip(LISTENING, free_ports(len(LISTENING)), strict=True))
    ring = RelayedRing(log_dir, certificates, {name: f"127.0.0.1:{port}" for name, port in fronts.items()})
    proxies = [Proxy(port, int(ring.listening[name].rpartition(":")[2])) for name, port in fronts.items()]
    for proxy in proxies:
        await proxy.start()
    for name in (*LISTENING, "frontend"):
        ring.start(name)
    try:
        await ring.ready()
        await ring.attached(*WORKERS)
        yield ring, proxies
    finally:
        statuses = ring.stop()
        for proxy in proxies:
            await proxy.close()
    assert set(statuses.values()) == {0}, statuses


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    identities.take_on(None)


async def answers(address: str, role: Role, identity: Identity) -> bool:
    """Whether who listens there takes our certificate, and is of the role and authority that we want."""
    identities.take_on(identity)
    async with rpc.channel(address, role) as channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            return False
    return True


async def assert_who_gets_in(ring: RelayedRing, old: Certificates, new: Certificates) -> None:
    """At every port of the ring: nobody whose certificate is the old authority's, and who is believed by it."""
    cert, key, _ = old.files(Role.OPERATOR)
    stale = Identity(cert, key, new.folder / "ca.crt")
    cert, key, _ = new.files(Role.OPERATOR)
    credulous = Identity(cert, key, old.folder / "ca.crt")
    for name, address in ring.listening.items():
        role = Role(name.partition("-")[0])
        found = [
            await answers(address, role, each) for each in (new.identity(Role.OPERATOR), stale, credulous)
        ]
        assert found == [True, False, False], name


async def test_certificates_and_authority_are_replaced_under_streams(tmp_path: Path) -> None:
    """32 streams run while all leaves are renewed, then the authority: both believed, leaves of the new one, the new
    one alone. Each time all connections of all links are reset, so that they are dialled anew. Nothing is lost, doubled
    or changed; in the end what the old authority has signed gets in nowhere."""
    old, new = Certificates.make(tmp_path / "old"), Certificates.make(tmp_path / "new")
    installed = Installed(tmp_path / "certs")
    installed.believe(old)
    installed.leaves(old, "first")
    steps: list[Callable[[], None]] = [
        lambda: installed.leaves(old, "renewed"),
        lambda: installed.believe(old, new),
        lambda: installed.leaves(new, "of-the-new"),
        lambda: installed.believe(new),
    ]
    identities.take_on(Identity(*files_of(installed.folder, Role.OPERATOR.value)))
    async with running(tmp_path, installed.folder) as (ring, proxies):
        for number, step in enumerate(steps, start=1):
            streams = Streams(ring.client(), NUM_STREAMS, num_tokens=NUM_TOKENS, seed=number)
            await streams.all_run()
            step()
            await streams.all_run()  # what is open goes on
            for proxy in proxies:
                proxy.reset()
            await streams.assert_all_end_once()
            await ring.attached(*WORKERS)
            for name in WORKERS:
                assert ring.log("scheduler").count(f"worker {name} attached") > number
        await assert_who_gets_in(ring, old, new)
