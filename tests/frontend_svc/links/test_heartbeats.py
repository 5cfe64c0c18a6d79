"""Who is silent, gone or out of reach, and who is told (docs/liveness.md, H, E3, E6, F5)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from frontend_svc.links.worker_link import WorkerLink
from frontend_svc.links.worker_links import WorkerLinks
from frontend_svc.requests.sessions.session import Session
from frontend_svc.server import Frontend
from signalbox.protocol.enums import WorkerReach
from signalbox.v1 import from_frontend_pb2, shared_pb2, to_frontend_pb2
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.helpers import until
from tests.frontend_svc.requests.test_sessions import make_request
from tests.frontend_svc.scripted_cluster import Cluster, Row, ScriptedWorker


async def reach_of(cluster: Cluster) -> WorkerReach:
    """What the scheduler is told next, which has to be this."""
    reach = await cluster.scheduler.next("reach")
    assert reach.worker.worker_instance == cluster.worker.instance
    return WorkerReach(reach.state)


async def place(frontend: Frontend, cluster: Cluster, request_id: str = "r") -> Session:
    """An open request that runs on the worker."""
    session = frontend.table.open(make_request(request_id))
    cluster.scheduler.place((await cluster.scheduler.next("submit")).ref)
    await until(lambda: session.worker_id)
    return session


def test_states_are_those_of_the_protocol() -> None:
    ours = {f"WORKER_REACH_STATE_{state.name}": state.value for state in WorkerReach}
    assert ours | {"WORKER_REACH_STATE_UNSPECIFIED": 0} == dict(from_frontend_pb2.WorkerReachState.items())


async def test_both_links_beat(frontend: Frontend, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """H1."""
    heard: Counter[str] = Counter()
    monkeypatch.setattr(cluster.worker, "_acknowledge", lambda request: heard.update(["worker"]))
    await until(lambda: cluster.scheduler.num_heartbeats >= 4 and heard["worker"] >= 4)
    assert len(cluster.scheduler.hellos) == len(cluster.worker.hellos) == 1


async def test_a_silent_scheduler_is_given_up(frontend: Frontend, cluster: Cluster) -> None:
    """H2, H4, H5: the link is closed although nobody ended it, and the frontend says hello again."""
    session = await place(frontend, cluster)
    cluster.scheduler.is_stopped = True
    await until(lambda: not frontend.is_ready)
    cluster.scheduler.is_stopped = False
    await until(lambda: len(cluster.scheduler.hellos) == 2)
    await until(lambda: frontend.is_ready)
    assert [ref.request_id for ref in cluster.scheduler.hellos[1].live] == [session.request_id]


async def test_a_frontend_that_its_scheduler_does_not_hear_says_hello_again(
    frontend: Frontend, cluster: Cluster
) -> None:
    """H4: it hears the scheduler itself; what it waits for comes with the hello."""
    session = await place(frontend, cluster)
    cluster.scheduler.outbox.put_nowait(to_frontend_pb2.AttachFrontendResponse(hears_nothing=True))
    await until(lambda: len(cluster.scheduler.hellos) == 2)
    await until(lambda: frontend.is_ready)
    assert [ref.request_id for ref in cluster.scheduler.hellos[1].live] == [session.request_id]


async def test_a_link_that_ends_is_opened_anew_at_once(frontend: Frontend, cluster: Cluster) -> None:
    """H5: the first retries come within tenths of a second."""
    began = time.monotonic()
    for count in (2, 3):
        cluster.scheduler.break_link()
        await until(lambda count=count: len(cluster.scheduler.hellos) == count)  # type: ignore[misc]
        await until(lambda: frontend.scheduler.connected)
    assert time.monotonic() - began < 3


async def test_a_silent_worker_is_reported_until_it_speaks(frontend: Frontend, cluster: Cluster) -> None:
    """H4, E6, E10: its stream stays."""
    cluster.worker.is_stopped = True
    assert await reach_of(cluster) is WorkerReach.SILENT
    metrics = frontend.metrics.render()[0].decode()
    assert 'signalbox_frontend_worker_reach{state="silent",worker_id="w"} 1.0' in metrics
    cluster.worker.is_stopped = False
    assert await reach_of(cluster) is WorkerReach.HEARD
    assert len(cluster.worker.hellos) == 1


async def test_a_stream_that_stays_silent_is_dialled_anew_and_loses_nothing(
    start: Start, cluster: Cluster
) -> None:
    """H4: its connection may be dead, and the worker not."""
    frontend = await start(key_file=None, unreachable_s=1.2, worker_silence_ms=1000)
    session = await place(frontend, cluster)
    cluster.worker.is_stopped = True
    cluster.worker.emit(Row(session.attempt, 0, [5, 6]))
    await until(lambda: len(cluster.worker.hellos) == 2)
    assert cluster.worker.hellos[1].log_number == cluster.worker.log_number
    cluster.worker.is_stopped = False
    await until(lambda: len(session.output) == 2)
    cluster.worker.emit(Row(session.attempt, 2, [7]))
    await until(lambda: len(session.output) == 3)
    assert session.attempt == 1


def the_link(frontend: Frontend) -> WorkerLink:
    """The only link to a worker."""
    [link] = frontend.workers._links.values()
    return link


async def opened(frontend: Frontend) -> None:
    """Waits until the only worker's stream is open."""
    await until(lambda: len(frontend.workers._links) == 1 and the_link(frontend).is_open)


@pytest.mark.parametrize("reach", [WorkerReach.REFUSED, WorkerReach.SILENT])
async def test_a_process_that_is_listed_again_is_reported_as_heard(
    frontend: Frontend, cluster: Cluster, reach: WorkerReach
) -> None:
    """E10: the scheduler still has the last word about it, of a link that has ended since, and would send no request of
    ours there."""
    await opened(frontend)
    if reach is WorkerReach.REFUSED:
        await cluster.worker.server.grpc.stop(0)
    else:
        cluster.worker.is_stopped = True
    assert await reach_of(cluster) is reach
    cluster.scheduler.send(workers=to_frontend_pb2.WorkerDirectory())
    await until(lambda: not frontend.directory.models)
    for link in frontend.workers._links.values():
        link._given_up.set()
    await until(lambda: not frontend.workers._links)
    if reach is WorkerReach.REFUSED:
        instance, cluster.worker = cluster.worker.instance, ScriptedWorker()
        cluster.worker.instance = instance
        cluster.worker_port = await cluster.worker.server.start("127.0.0.1:0")
    cluster.worker.is_stopped = False
    cluster.scheduler.send(workers=to_frontend_pb2.WorkerDirectory(workers=[cluster.entry()]))
    assert await asyncio.wait_for(reach_of(cluster), 5) is WorkerReach.HEARD
    await opened(frontend)


async def test_a_link_that_a_bug_has_ended_is_reported_as_heard(
    frontend: Frontend, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E10: the next link to a silent worker begins as one that is heard."""
    await opened(frontend)
    cluster.worker.is_stopped = True
    assert await reach_of(cluster) is WorkerReach.SILENT

    def fail(now: float) -> bool:
        raise KeyError("a bug")

    monkeypatch.setattr(the_link(frontend)._silence, "is_silent", fail)
    await until(lambda: not frontend.workers._links)
    cluster.worker.is_stopped = False
    assert await asyncio.wait_for(reach_of(cluster), 5) is WorkerReach.HEARD
    await opened(frontend)


async def test_a_worker_that_nobody_listens_for_is_reported_at_once(
    frontend: Frontend, cluster: Cluster
) -> None:
    """E3: the directory may have dropped it by then."""
    await place(frontend, cluster)
    cluster.scheduler.send(workers=to_frontend_pb2.WorkerDirectory())
    await until(lambda: not frontend.directory.models)
    assert (await cluster.scheduler.next("check")).worker_instance == ""
    began = time.monotonic()
    await cluster.worker.server.grpc.stop(0)
    assert await reach_of(cluster) is WorkerReach.REFUSED
    assert time.monotonic() - began < 1
    await until(lambda: not frontend.workers._links)


async def test_another_process_at_the_address_is_not_the_worker(frontend: Frontend, cluster: Cluster) -> None:
    """E3: whoever it is, the process that was there is not."""
    await place(frontend, cluster)
    instance, cluster.worker.instance = cluster.worker.instance, "worker-process-2"
    cluster.worker.break_link()
    reach = await cluster.scheduler.next("reach")
    assert (reach.worker.worker_instance, WorkerReach(reach.state)) == (instance, WorkerReach.REFUSED)


async def test_a_new_scheduler_hears_how_workers_are_reached(frontend: Frontend, cluster: Cluster) -> None:
    await cluster.worker.server.grpc.stop(0)
    assert await reach_of(cluster) is WorkerReach.REFUSED
    cluster.scheduler.break_link()
    assert await reach_of(cluster) is WorkerReach.REFUSED
    assert len(cluster.scheduler.hellos) == 2


async def test_an_unreachable_worker_is_asked_for_again_and_again(start: Start, cluster: Cluster) -> None:
    """F5: its ends may be lost, and nobody else will say so."""
    frontend = await start(key_file=None, unreachable_s=0.5, worker_silence_ms=1000)
    session = await place(frontend, cluster)

    def accept_nothing(listed: bool) -> None:
        address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        entry = cluster.entry()
        entry.address, entry.worker_instance = address, "worker-process-2"
        cluster.scheduler.send(workers=to_frontend_pb2.WorkerDirectory(workers=[entry] if listed else []))

    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    accept_nothing(True)
    reach = await cluster.scheduler.next("reach")
    assert (reach.worker.worker_instance, WorkerReach(reach.state)) == (
        "worker-process-2",
        WorkerReach.UNREACHABLE,
    )
    for _ in range(3):
        check = await cluster.scheduler.next("check")
        assert (check.ref.attempt, check.worker_id) == (session.attempt, "w")
    silent.close()


@pytest.mark.parametrize("has_other", [False, True])
async def test_requests_leave_a_worker_out_of_reach_when_they_can(
    start: Start, cluster: Cluster, has_other: bool
) -> None:
    """F5: the scheduler hears it, and so leaves them there."""
    frontend = await start(key_file=None, unreachable_s=1.5, worker_silence_ms=1000)
    other = ScriptedWorker()
    other.instance = "other-process"
    if has_other:
        entry = cluster.entry()
        entry.worker_id, entry.worker_instance = "other", other.instance
        entry.address = f"127.0.0.1:{await other.server.start('127.0.0.1:0')}"
        cluster.scheduler.send(workers=to_frontend_pb2.WorkerDirectory(workers=[cluster.entry(), entry]))
        await until(lambda: [link.is_open for link in frontend.workers._links.values()] == [True, True])
    session = await place(frontend, cluster)
    cluster.worker.is_stopped = True
    assert await reach_of(cluster) is WorkerReach.SILENT
    check = await cluster.scheduler.next("check")
    assert check.ref.attempt == 1
    if has_other:
        assert (await cluster.scheduler.next("cancel")).ref == check.ref
        submit = await cluster.scheduler.next("submit")
        assert (submit.ref.attempt, submit.meta.num_losses, submit.meta.num_crashes) == (2, 1, 0)
        await other.server.grpc.stop(0)
    else:
        assert await reach_of(cluster) is WorkerReach.UNREACHABLE, "another stream does not open"
        await cluster.scheduler.next("check")
        assert session.attempt == 1


async def test_outputs_that_a_worker_threw_away_are_asked_for(frontend: Frontend, cluster: Cluster) -> None:
    """F5: the scheduler knows of it, and has forgotten what ended there."""
    session = await place(frontend, cluster)
    ref = shared_pb2.WorkerRef(worker_id="w", worker_instance=cluster.worker.instance)
    cluster.scheduler.send(outputs_lost=[ref])
    check = await cluster.scheduler.next("check")
    assert (check.ref.attempt, check.worker_instance) == (session.attempt, cluster.worker.instance)
    cluster.scheduler.lose(check.ref)
    assert (await cluster.scheduler.next("submit")).meta.num_losses == 1


async def test_a_log_goes_on_where_it_was_read_whatever_link_reads_it(
    frontend: Frontend, cluster: Cluster
) -> None:
    """F5: an unlisted worker whose stream broke is the same process when it is listed again."""
    cluster.worker.emit(Row(77, 0, [1]))
    await until(lambda: cluster.worker.acknowledged == 1)
    cluster.scheduler.send(workers=to_frontend_pb2.WorkerDirectory())
    await until(lambda: not frontend.directory.models)
    cluster.worker.break_link()
    await until(lambda: not frontend.workers._links)
    session = await place(frontend, cluster)
    cluster.scheduler.send(workers=to_frontend_pb2.WorkerDirectory(workers=[cluster.entry()]))
    await until(lambda: len(cluster.worker.hellos) == 2)
    hello = cluster.worker.hellos[1]
    assert (hello.acknowledged, hello.log_number) == (1, cluster.worker.log_number)
    cluster.worker.emit(Row(session.attempt, 0, [5]))
    await until(lambda: session.output)
    assert (session.attempt, cluster.scheduler.operations.empty()) == (1, True)


async def test_hello_names_who_may_have_requests(frontend: Frontend, cluster: Cluster) -> None:
    """T3: a new scheduler waits for those. T1: and its term is above the one before."""
    cluster.scheduler.term = 7
    cluster.scheduler.break_link()
    await until(lambda: len(cluster.scheduler.hellos) == 2)
    assert list(cluster.scheduler.hellos[1].workers) == [], "there are no requests"
    await until(lambda: frontend.scheduler.connected)
    await place(frontend, cluster)
    cluster.scheduler.break_link()
    await until(lambda: len(cluster.scheduler.hellos) == 3)
    hello = cluster.scheduler.hellos[2]
    assert [worker.worker_instance for worker in hello.workers] == [cluster.worker.instance]
    assert (list(hello.num_holders), list(hello.holders)) == ([1], [0])
    assert hello.scheduler_epoch == 7
    await cluster.worker.server.grpc.stop(0)
    assert await reach_of(cluster) is WorkerReach.REFUSED
    cluster.scheduler.break_link()
    await until(lambda: len(cluster.scheduler.hellos) == 4)
    hello = cluster.scheduler.hellos[3]
    assert list(hello.workers) == [], "it is gone"
    assert list(hello.num_holders) == [0], "nobody has it, and that is said"


async def test_the_first_directory_of_a_scheduler_asks_nothing(frontend: Frontend, cluster: Cluster) -> None:
    """J1: its hello has named all that lives; workers come one by one."""
    await place(frontend, cluster)
    directory, cluster.scheduler.directory = cluster.scheduler.directory, to_frontend_pb2.WorkerDirectory()
    cluster.scheduler.break_link()
    await until(lambda: len(cluster.scheduler.hellos) == 2)
    await until(lambda: not frontend.directory.models)
    cluster.scheduler.send(workers=directory)
    await until(lambda: frontend.is_ready)
    assert cluster.scheduler.operations.empty()
    assert len(cluster.worker.hellos) == 1


async def test_processes_whose_place_others_took_are_forgotten(frontend: Frontend, cluster: Cluster) -> None:
    links: WorkerLinks = frontend.workers
    for number in range(2, 6):
        cluster.worker.instance = f"worker-process-{number}"
        cluster.scheduler.send(workers=to_frontend_pb2.WorkerDirectory(workers=[cluster.entry()]))
        cluster.worker.break_link()
        await until(lambda: len(links._links) == 1 and frontend.is_ready)
        await until(lambda: list(links._processes) == [cluster.worker.instance])
