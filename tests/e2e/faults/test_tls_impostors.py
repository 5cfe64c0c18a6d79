"""Servers with a wrong certificate, or none, where a service of the ring should be: who dials them uses none (TL3)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from signalbox.links.tls import identity as identities
from signalbox.links.tls.roles import Role
from signalbox.v1 import shared_pb2, to_frontend_pb2
from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from tests.e2e.faults.streams import Streams
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import ScriptedScheduler, ScriptedWorker
from tests.signalbox.links.tls.certificates import Certificates
from tests.signalbox.links.tls.impostors import FIND_LEADER, Impostor, standing, standing_for

pytestmark = pytest.mark.timeout(300)

NUM_STREAMS = 8
MODEL_ENTRY = shared_pb2.ModelEntry(
    model="toy", max_model_len=256, block_size=16, max_request_tokens=200, vocab_size=320
)


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    identities.take_on(None)


def assert_all_dialled_and_none_believed(impostors: dict[str, Impostor], num_dialling: int) -> None:
    """Each by so many processes at least."""
    assert {name: impostor.calls for name, impostor in impostors.items() if impostor.calls} == {}
    assert all(impostor.num_dials >= num_dialling for impostor in impostors.values())


async def test_no_service_takes_an_impostor_for_its_scheduler_or_relay(
    ours: Certificates, theirs: Certificates, tmp_path: Path
) -> None:
    """A relay, a worker and a frontend find impostors first where they look for the scheduler, and a worker where it
    looks for its relay. All say that they lead. A standby with a right certificate beside them is asked, and believed
    that it does not lead."""
    async with AsyncExitStack() as stack:
        found, standbys = {}, {}
        for name, role in (("scheduler", Role.SCHEDULER), ("relay", Role.RELAY)):
            found[name] = await stack.enter_async_context(standing_for(role, ours, theirs))
            standbys[name] = await stack.enter_async_context(standing(ours.identity(role), leads=False))
        fronts = {
            name: ",".join(
                [*(each.address for each in found[name].values()), standbys[name].address, "{own}"]
            )
            for name in found
        }
        ring = RelayedRing(tmp_path, ours.folder, fronts)
        try:
            for name in (*WORKERS, "frontend"):
                ring.start(name)
            # A leader that answers first is taken before the others are asked: it comes when they were.
            await until(lambda: all(standby.calls for standby in standbys.values()), 60)
            for name in ("scheduler", "relay"):
                ring.start(name)
            identities.take_on(ours.identity(Role.OPERATOR))
            await ring.ready()
            await ring.attached(*WORKERS)
            await Streams(ring.client(), NUM_STREAMS).assert_all_end_once()
        finally:
            statuses = ring.stop()
        assert set(statuses.values()) == {0}, statuses
        assert_all_dialled_and_none_believed(found["scheduler"], num_dialling=3)
        assert_all_dialled_and_none_believed(found["relay"], num_dialling=1)
        assert all(set(standby.calls) == {FIND_LEADER} for standby in standbys.values())


async def test_a_frontend_takes_no_impostor_for_a_worker(ours: Certificates, theirs: Certificates) -> None:
    """Though its scheduler names them beside a true one."""
    identities.take_on(ours.identity(Role.SCHEDULER))
    scheduler = ScriptedScheduler()
    identities.take_on(ours.identity(Role.WORKER))
    worker = ScriptedWorker()
    async with standing_for(Role.WORKER, ours, theirs) as impostors:
        addresses = {name: each.address for name, each in impostors.items()}
        addresses["true"] = f"127.0.0.1:{await worker.server.start('127.0.0.1:0')}"
        scheduler.directory = to_frontend_pb2.WorkerDirectory(
            workers=[
                to_frontend_pb2.WorkerEntry(
                    worker_id=name, worker_instance=f"process-{name}", address=address, model=MODEL_ENTRY
                )
                for name, address in addresses.items()
            ]
        )
        worker.instance = "process-true"
        port = await scheduler.server.start("127.0.0.1:0")
        identities.take_on(ours.identity(Role.FRONTEND))
        frontend = Frontend(
            FrontendSettings(scheduler=f"127.0.0.1:{port}", http="127.0.0.1:0", grpc="127.0.0.1:0", drain_s=0)
        )
        await frontend.start()
        try:
            await until(lambda: frontend.is_ready, 30)
            await until(lambda: all(each.num_dials > 1 for each in impostors.values()), 30)
            links = {each.worker_id: frontend.workers.is_open(each) for each in frontend.directory.workers}
        finally:
            await frontend.stop()
            await asyncio.gather(scheduler.server.stop(0), worker.server.stop(0))
        assert {name for name, is_open in links.items() if is_open} == {"true"}
        assert_all_dialled_and_none_believed(impostors, num_dialling=1)
