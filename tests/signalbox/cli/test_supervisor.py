"""Children that live and die together; the children are real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from signalbox.cli.ring import supervisor as supervisor_module
from signalbox.cli.ring.supervisor import Service, Supervisor, check_free, dialable, split_address
from signalbox.errors import StartupError, UnavailableError
from signalbox.runtime.logs import LogFormat
from tests.signalbox.cli import fake_services as fake
from tests.signalbox.cli.fake_services import alive, pids, wait_until

Start = Callable[..., Supervisor]


@pytest.fixture
def said() -> list[str]:
    """What the supervisor tells the user."""
    return []


@pytest.fixture
async def start(tmp_path: Path, said: list[str]) -> AsyncIterator[Start]:
    """Starts stages of services; whatever a test leaves is stopped."""
    running: list[Supervisor] = []

    def start_stages(*stages: list[Service]) -> Supervisor:
        running.append(Supervisor(stages, tmp_path, said.append))
        running[-1].start()
        wait_until(lambda: len(pids(tmp_path)) >= sum(map(len, stages)))
        return running[-1]

    yield start_stages
    for supervisor in running:
        supervisor.kill()
        await supervisor.stop()


async def the_end(supervisor: Supervisor) -> str:
    """What `watch` says when a child has died."""
    async with asyncio.timeout(20):
        with pytest.raises(UnavailableError) as error:
            await supervisor.watch()
    return error.value.message


async def test_a_service_that_cannot_start_is_quoted(start: Start, tmp_path: Path) -> None:
    sentence = "worker: the model directory /nowhere does not exist"
    supervisor = start([fake.patient("scheduler")], [fake.refusing("worker-0", sentence)])
    assert await the_end(supervisor) == (
        f"worker-0 ended with status 1: {sentence}\n(log: {tmp_path / 'worker-0.log'})"
    )
    await supervisor.stop()
    assert alive(tmp_path) == []


async def test_the_last_lines_of_a_crash_are_shown(start: Start) -> None:
    message = await the_end(start([fake.crashing("worker-0")]))
    assert message.startswith("worker-0 ended with status 1; its last lines:\n")
    assert "ValueError: a bug" in message


async def test_a_signal_is_named(start: Start) -> None:
    assert "worker-0 was ended by SIGKILL, perhaps for want of memory" in await the_end(
        start([fake.killed("worker-0")])
    )


async def test_ending_without_being_asked_is_a_failure(start: Start) -> None:
    assert "ended with status 0: worker: done" in await the_end(
        start([fake.refusing("worker-0", "worker: done", 0)])
    )


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(("ready", "levels"), [(True, ["WARNING", "ERROR"]), (False, ["ERROR"])])
async def test_what_is_loud_is_passed_on(
    start: Start, said: list[str], ready: bool, levels: list[str], form: LogFormat
) -> None:
    supervisor = start([fake.logging("worker-0", form)])
    supervisor.ready = ready
    watching = asyncio.create_task(supervisor.watch())
    async with asyncio.timeout(20):
        while not said or not said[-1].endswith("its second line"):
            await asyncio.sleep(0.02)
    watching.cancel()
    assert all(line.startswith("worker-0: ") for line in said)
    assert [line.split()[4] for line in said[:-1]] == levels


async def test_stages_stop_in_reverse_order(start: Start, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    stages = [
        [fake.noting("scheduler", notes)],
        [fake.noting("worker-0", notes), fake.noting("worker-1", notes)],
        [fake.noting("frontend", notes)],
    ]
    await start(*stages).stop()
    first, *workers, last = notes.read_text().split()
    assert (first, sorted(workers), last) == ("frontend", ["worker-0", "worker-1"], "scheduler")
    assert alive(tmp_path) == []


async def test_who_does_not_stop_is_killed(
    start: Start, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_GRACE_S", 0.3)
    supervisor = start([fake.stubborn("worker-0")])
    wait_until(lambda: "deaf" in (tmp_path / "worker-0.log").read_text())
    await supervisor.stop()
    assert alive(tmp_path) == []
    assert "worker-0 did not stop" in said[0]


async def test_helpers_of_a_service_end_with_it(start: Start, tmp_path: Path) -> None:
    supervisor = start([fake.with_helper("worker-0")])
    wait_until(lambda: len(pids(tmp_path)) == 2)
    await supervisor.stop()
    wait_until(lambda: not alive(tmp_path))


def in_group(service: Service) -> Service:
    return replace(service, group="schedulers")


async def test_a_service_with_a_stand_in_is_started_again(
    start: Start, said: list[str], tmp_path: Path
) -> None:
    """B1: as often as it ends, and its log goes on."""
    stage = [in_group(fake.patient(f"scheduler-{index}")) for index in range(2)]
    supervisor = start(stage, [fake.patient("worker-0")])
    supervisor.ready = True
    watching = asyncio.create_task(supervisor.watch())
    log, first = tmp_path / "scheduler-0.log", supervisor.pids()
    for count in (2, 3):
        os.kill(supervisor.pids()["scheduler-0"], signal.SIGKILL)
        async with asyncio.timeout(20):
            while len(log.read_text().splitlines()) < count:
                await asyncio.sleep(0.02)
    assert not watching.done() and len(said) == 2
    assert said[0].startswith("scheduler-0 was ended by SIGKILL")
    assert said[0].endswith("\nscheduler-0 is started again")
    changed = {name for name, pid in supervisor.pids().items() if pid != first[name]}
    assert changed == {"scheduler-0"}
    for name in ("scheduler-0", "scheduler-1"):
        os.kill(supervisor.pids()[name], signal.SIGKILL)
    for name in ("scheduler-0", "scheduler-1"):  # whichever is there for a moment longer would stand in
        os.waitid(os.P_PID, supervisor.pids()[name], os.WEXITED | os.WNOWAIT)
    with pytest.raises(UnavailableError, match="was ended by SIGKILL"):
        await asyncio.wait_for(watching, 20)


async def test_a_service_that_is_to_be_is_started_again_without_a_stand_in(
    start: Start, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later and later when it ends early, and not before what it has left behind had time for its work."""
    monkeypatch.setattr(supervisor_module, "RESTART_S", 0.2)
    supervisor = start([replace(fake.with_helper("worker-0"), restarts=True)])
    supervisor.ready = True
    watching = asyncio.create_task(supervisor.watch())
    seconds = []
    for count in (2, 4, 6):
        wait_until(lambda count=count: len(pids(tmp_path)) >= count)  # type: ignore[misc]
        first, ended = supervisor.pids()["worker-0"], time.monotonic()
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(20):
            while supervisor.pids()["worker-0"] == first:
                await asyncio.sleep(0.02)
        seconds.append(time.monotonic() - ended)
    assert not watching.done() and len(said) == 3
    assert min(seconds) >= supervisor_module.BEQUEST_S
    assert [child.num_early_ends for child in supervisor._children()] == [3]
    watching.cancel()


async def test_a_service_that_ends_before_all_are_ready_is_not_started_again(start: Start) -> None:
    """It cannot start, most likely: its sentence is what the user wants to read."""
    sentence = "scheduler: the port is in use"
    stage = [in_group(fake.patient("scheduler-0")), in_group(fake.refusing("scheduler-1", sentence))]
    assert sentence in await the_end(start(stage))


async def test_a_log_that_was_cleaned_away_is_still_read(start: Start, tmp_path: Path) -> None:
    supervisor = start([fake.refusing("worker-0", "worker: no such model")])
    (tmp_path / "worker-0.log").unlink()
    assert "worker: no such model" in await the_end(supervisor)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    supervisor = Supervisor([[Service("worker-0", ("/no/such/program",))]], tmp_path, print)
    with pytest.raises(StartupError, match=r"cannot start worker-0: .*No such file"):
        supervisor.start()


def test_a_port_in_use_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StartupError) as error:
            check_free({"--http": f"127.0.0.1:{port}"})
    assert error.value.message == f"port {port} on 127.0.0.1 is in use; choose another with --http"
    check_free({"--http": f"127.0.0.1:{port}"})


def test_two_services_cannot_share_an_address() -> None:
    with pytest.raises(StartupError, match="--http and --grpc cannot both be"):
        check_free({"--http": "127.0.0.1:7399", "--grpc": "127.0.0.1:7399"})


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(StartupError, match=r"port 80 on 192\.0\.2\.1 is not to be had"):
        check_free({"--http": "192.0.2.1:80"})


@pytest.mark.parametrize(
    ("listened", "dialled"),
    [
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("[::]:80", "[::1]:80"),
        ("[::1]:80", "[::1]:80"),
        ("example.org:80", "example.org:80"),
    ],
)
def test_a_wildcard_is_dialled_at_this_machine(listened: str, dialled: str) -> None:
    assert dialable(listened) == dialled


def test_an_address_is_split_at_its_last_colon() -> None:
    assert split_address("[::1]:8000") == ("::1", 8000)


async def test_nothing_of_ours_runs_between_fork_and_exec(start: Start) -> None:
    """gRPC's handlers of a fork crash now and then where its threads are at work, and with them the service."""
    forks = []
    os.register_at_fork(before=lambda: forks.append("a fork of Python's own"))
    start([fake.patient("scheduler")])
    assert not forks
