"""A worker's guardian, in real processes: it tells how the worker ended, and goes (E2)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from signalbox.protocol.enums import WorkerExit
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.ports import free_ports
from worker_svc.config import WorkerSettings
from worker_svc.guardian.guarded import GuardedService
from worker_svc.guardian.step_mark import StepMark

WAIT_S = 30
CRASHES = (
    "import os, sys; from worker_svc.guardian import guardian; from worker_svc.guardian.telling import Ward; "
    "words = guardian.start(Ward('w', 'i', tuple(sys.argv[1].split(','))), is_parent=sys.argv[2] == 'parent'); "
)


class Listener(scheduler_pb2_grpc.SchedulerServiceServicer):
    """A scheduler that takes workers and hears of their ends."""

    def __init__(self) -> None:
        self.instances: asyncio.Queue[str] = asyncio.Queue()
        self.exits: asyncio.Queue[scheduler_pb2.ReportWorkerExitRequest] = asyncio.Queue()

    async def FindLeader(self, request: Any, context: Any) -> Any:  # noqa: N802
        return scheduler_pb2.FindLeaderResponse(is_leader=True)

    async def AttachWorker(self, requests: Any, context: Any) -> None:  # noqa: N802
        async for message in requests:
            if message.HasField("hello"):
                self.instances.put_nowait(message.hello.worker_instance)
                await context.send_initial_metadata(())

    async def ReportWorkerExit(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.exits.put_nowait(request)
        return scheduler_pb2.ReportWorkerExitResponse()

    async def exit(self) -> scheduler_pb2.ReportWorkerExitRequest:
        """The next."""
        return await asyncio.wait_for(self.exits.get(), WAIT_S)


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[tuple[Listener, str]]:
    """The scheduler and its address."""
    listener, server = Listener(), grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(listener, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield listener, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def start(command: list[str]) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX")}
    return subprocess.Popen([sys.executable, *command], env=environment, start_new_session=True)


@asynccontextmanager
async def worker() -> AsyncIterator[tuple[Listener, subprocess.Popen[bytes], str]]:
    """A worker that has said hello, and where it listens."""
    async with listening() as (listener, scheduler):
        address = f"127.0.0.1:{free_ports(1)[0]}"
        process = start(
            ["-m", "worker_svc", "--runner=sim", f"--listen={address}", f"--scheduler={scheduler}"]
        )
        try:
            await asyncio.wait_for(listener.instances.get(), WAIT_S)
            yield listener, process, address
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def members(group: int) -> list[int]:
    """Processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                found.append(int(path.parent.name))
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.mark.fresh
@pytest.mark.parametrize(
    ("number", "exit_", "status"),
    [
        (signal.SIGKILL, WorkerExit.KILLED, -signal.SIGKILL),
        (signal.SIGSEGV, WorkerExit.CRASHED, -signal.SIGSEGV),
        (signal.SIGTERM, WorkerExit.STOPPED, 0),
    ],
)
async def test_the_end_of_a_worker_is_told_and_its_guardian_goes(
    number: signal.Signals, exit_: WorkerExit, status: int
) -> None:
    """E2: the signal hits the worker, whose pid is the one that it was started with."""
    async with worker() as (listener, process, address):
        assert len(members(process.pid)) == 2
        process.send_signal(number)
        told = await listener.exit()
        assert (told.exit, told.worker.worker_id) == (exit_, "worker-0")
        assert told.worker.worker_instance and told.reason
        assert await asyncio.to_thread(process.wait, WAIT_S) == status
        host, port = address.split(":")
        with socket.socket() as probe:  # the guardian holds no port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
        await until(lambda: not members(process.pid))


async def test_a_whole_group_ends_in_good_order_and_a_killed_one_leaves_nobody() -> None:
    """A supervisor signals groups: the guardian waits for the worker, and stays behind in no case."""
    async with worker() as (listener, process, _):
        os.killpg(process.pid, signal.SIGTERM)
        assert (await listener.exit()).exit == WorkerExit.STOPPED
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0
    async with worker() as (_, process, _):
        os.killpg(process.pid, signal.SIGKILL)
        assert await asyncio.to_thread(process.wait, WAIT_S) == -signal.SIGKILL
        await until(lambda: not members(process.pid))


async def test_a_stopped_worker_has_not_ended() -> None:
    async with worker() as (listener, process, _):
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.5)
        assert listener.exits.empty()
        process.send_signal(signal.SIGCONT)
        process.kill()
        assert (await listener.exit()).exit == WorkerExit.KILLED


@pytest.mark.parametrize("who", ["child", "parent"])
@pytest.mark.parametrize(
    ("end", "exit_", "status", "reason"),
    [
        ("os._exit(3)", WorkerExit.CRASHED, 3, "status 3"),
        ("os.abort()", WorkerExit.CRASHED, -signal.SIGABRT, "Aborted"),
        ("os.kill(os.getpid(), 9)", WorkerExit.KILLED, -signal.SIGKILL, "killed|SIGKILL"),
    ],
)
async def test_both_arrangements_tell_the_same(
    who: str, end: str, exit_: WorkerExit, status: int, reason: str
) -> None:
    """The guardian as child of the worker, and as the first process of a container, where it ends as the worker did."""
    async with listening() as (listener, scheduler):
        process = start(["-c", CRASHES + end, scheduler, who])
        assert await asyncio.to_thread(process.wait, WAIT_S) == status
        told = await listener.exit()
        if who == "child" and end.startswith("os._exit") and told.exit == WorkerExit.KILLED:
            pytest.skip("this kernel does not show the status of a process that is not a child")
        assert told.exit == exit_
        assert any(part in told.reason for part in reason.split("|"))
        await until(lambda: not members(process.pid))


async def test_a_guardian_in_front_hands_signals_on_and_reaps() -> None:
    end = "import signal, time; signal.signal(15, lambda *_: os._exit(7)); os.fork() or os._exit(0); time.sleep(60)"
    async with listening() as (listener, scheduler):
        process = start(["-c", CRASHES + end, scheduler, "parent"])
        await until(lambda: len(members(process.pid)) == 2)
        await asyncio.sleep(0.3)
        process.terminate()
        assert await asyncio.to_thread(process.wait, WAIT_S) == 7
        assert (await listener.exit()).exit == WorkerExit.CRASHED


async def test_the_step_that_ran_is_told() -> None:
    """S1: it is set behind the fork, and the process ends the moment after."""
    run = (
        "import os, sys; from worker_svc.guardian import guardian; "
        "from worker_svc.guardian.step_mark import StepMark; from worker_svc.guardian.telling import Ward; "
        "mark = StepMark(); ward = Ward('w', 'i', (sys.argv[1],), mark=mark); "
        "guardian.start(ward, is_parent=False); mark.set(7, 1000); mark.set(2**62, 1000); os.abort()"
    )
    async with listening() as (listener, scheduler):
        process = start(["-c", run, scheduler])
        assert (await listener.exit()).step_id == 2**62
        await asyncio.to_thread(process.wait, WAIT_S)
        await until(lambda: not members(process.pid))


@pytest.mark.parametrize("role", ["child", "parent"])
async def test_a_worker_whose_step_is_over_its_limit_is_ended_as_by_a_crash(role: str) -> None:
    """U9: also where every thread is held up. A worker that has nothing to do is left alone."""
    hang = (
        "import sys, time; from worker_svc.guardian import guardian; "
        "from worker_svc.guardian.step_mark import StepMark; from worker_svc.guardian.telling import Ward; "
        "mark = StepMark(); ward = Ward('w', 'i', (sys.argv[1],), mark=mark); "
        "guardian.start(ward, is_parent=sys.argv[2] == 'parent'); mark.set(6, 300); mark.set(6, 0); "
        "time.sleep(1); mark.set(7, 300); time.sleep(3600)"
    )
    async with listening() as (listener, scheduler):
        process = start(["-c", hang, scheduler, role])
        told = await listener.exit()
        assert (told.exit, told.step_id) == (WorkerExit.CRASHED, 7)
        assert "step 7 hung" in told.reason and "0.3 s" in told.reason
        assert await asyncio.to_thread(process.wait, WAIT_S) == -signal.SIGKILL
        await until(lambda: not members(process.pid))


async def test_one_scheduler_of_a_list_is_enough() -> None:
    """The other may be a standby that is not there."""
    async with listening() as (listener, scheduler):
        addresses = f"127.0.0.1:{free_ports(1)[0]},{scheduler}"
        process = start(["-c", CRASHES + "os.abort()", addresses, "child"])
        assert (await listener.exit()).exit == WorkerExit.CRASHED
        await asyncio.to_thread(process.wait, WAIT_S)
        await until(lambda: not members(process.pid))


async def test_a_standby_says_where_the_leader_is_that_has_to_be_told() -> None:
    """B3: the address that a worker has may be a name behind which both stand."""

    class Standby(scheduler_pb2_grpc.SchedulerServiceServicer):
        async def FindLeader(self, request: Any, context: Any) -> Any:  # noqa: N802
            return scheduler_pb2.FindLeaderResponse(leader_address=leader)

        async def ReportWorkerExit(self, request: Any, context: Any) -> Any:  # noqa: N802
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"this scheduler stands by; {leader} leads")

    server = grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(Standby(), server)
    standby = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    async with listening() as (listener, leader):
        await server.start()
        process = start(["-c", CRASHES + "os.abort()", standby, "child"])
        told = await listener.exit()
        assert (told.worker.worker_instance, told.exit) == ("i", WorkerExit.CRASHED)
        process.wait(WAIT_S)
        await server.stop(0)


async def test_a_scheduler_that_is_away_for_a_moment_is_told_when_it_is_back() -> None:
    port = free_ports(1)[0]
    process = start(["-c", CRASHES + "os.abort()", f"127.0.0.1:{port}", "child"])
    await asyncio.to_thread(process.wait, WAIT_S)
    async with listening(port) as (listener, _):
        assert (await listener.exit()).exit == WorkerExit.CRASHED
    await until(lambda: not members(process.pid))


@pytest.mark.slow
async def test_a_guardian_that_reaches_nobody_goes_all_the_same() -> None:
    process = start(["-c", CRASHES + "os.abort()", f"127.0.0.1:{free_ports(1)[0]}", "child"])
    await asyncio.to_thread(process.wait, WAIT_S)
    await until(lambda: not members(process.pid))


async def test_a_system_that_has_no_handles_of_processes_has_no_guardian(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in some sandboxes: the worker runs all the same."""

    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    async def serve(settings: WorkerSettings, stop: asyncio.Event, instance: str, mark: StepMark) -> None:
        stop.set()

    monkeypatch.setattr(os, "pidfd_open", refuse)
    service, stop = GuardedService(lambda: serve), asyncio.Event()
    service.prepare(WorkerSettings())
    await service.serve(WorkerSettings(), stop)
    assert stop.is_set() and "no guardian" in caplog.text
