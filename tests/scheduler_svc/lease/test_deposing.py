"""Who may tell a scheduler that another one leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_svc.lease.alone import NoLease
from scheduler_svc.lease.leadership_servicer import LeadershipServicer
from signalbox.links import rpc
from signalbox.links.tls import identity as identities
from signalbox.links.tls.roles import Role
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.signalbox.links.tls.certificates import Certificates


class Told(NoLease):
    """A lease that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.counters: list[int] = []

    def depose(self, counter: int) -> None:
        self.counters.append(counter)


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    identities.take_on(None)


@pytest.mark.parametrize(("role", "counters"), [(Role.WORKER, []), (Role.RELAY, []), (Role.SCHEDULER, [7])])
async def test_only_schedulers_do(role: Role, counters: list[int], tmp_path: Path) -> None:
    """TL6."""
    certificates = Certificates.make(tmp_path)
    identities.take_on(certificates.identity(Role.SCHEDULER))
    servicer, lease = LeadershipServicer(), Told()
    servicer.stand_by(lease)
    server = rpc.Server(["signalbox.v1.SchedulerService"])
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, server.grpc)
    address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    try:
        identities.take_on(certificates.identity(role, "caller"))
        async with rpc.channel(address, Role.SCHEDULER) as channel:
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            await stub.FindLeader(scheduler_pb2.FindLeaderRequest(lease_counter=7), timeout=5)
    finally:
        await server.stop(0)
    assert lease.counters == counters
