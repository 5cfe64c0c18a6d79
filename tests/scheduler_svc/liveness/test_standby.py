"""A scheduler that stands by listens, says who leads, and leads when the lease is its own (docs/liveness.md, B1)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory

from scheduler_svc.config import SchedulerSettings
from scheduler_svc.lease.lease import Holder
from scheduler_svc.lease.spec import open_lease, parse_lease
from scheduler_svc.server import serve
from signalbox.board.link import watch_board
from signalbox.cli.admin_client import admin_client
from signalbox.cli.ring.readiness import tell_serving
from signalbox.errors import LeaseLostError, SignalboxError, StartupError
from signalbox.links.leader import Leader, LeaderSearch
from signalbox.runtime import config
from signalbox.v1 import admin_pb2, scheduler_pb2
from tests.ports import free_ports
from tests.scheduler_svc.attached import dial, dial_admin
from tests.scheduler_svc.lease.contenders import START_S, locked_by_another


@asynccontextmanager
async def scheduler(address: str, lease: Path, *flags: str) -> AsyncIterator[asyncio.Task[None]]:
    """A scheduler that listens; its task ends when it does."""
    arguments = [f"--listen={address}", f"--lease=file:{lease}", *flags]
    stop = asyncio.Event()
    task = asyncio.create_task(serve(config.load(SchedulerSettings, arguments), stop))
    await asyncio.wait_for(tell_serving({"": address}, lambda name: None), START_S)
    try:
        yield task
    finally:
        stop.set()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def addresses() -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(2)]


async def find(*addresses: str) -> Leader:
    search = LeaderSearch(",".join(addresses))
    try:
        return await search.find(START_S)
    finally:
        await search.close()


async def ask(address: str) -> scheduler_pb2.FindLeaderResponse:
    async with dial(address) as stub:
        answer = await stub.FindLeader(scheduler_pb2.FindLeaderRequest(), timeout=5)
    assert isinstance(answer, scheduler_pb2.FindLeaderResponse)
    return answer


async def calls(stub: Any, module: ModuleType, service: str) -> AsyncIterator[tuple[str, str]]:
    """How every call of `service` but FindLeader is refused: method and sentence."""
    for method in module.DESCRIPTOR.services_by_name[service].methods:
        if method.name == "FindLeader":
            continue
        request = message_factory.GetMessageClass(method.input_type)()
        # Nothing is said on a stream: what is written to one that has just been refused is an error of its own.
        call = getattr(stub, method.name)(*([] if method.client_streaming else [request]), timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await (call.read() if method.server_streaming else call)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE, method.name
        yield method.name, refused.value.details() or ""


async def test_a_standby_listens_and_names_the_leader_to_everybody(
    addresses: list[str], tmp_path: Path
) -> None:
    """B1: links and questions alike are refused with its address, and both are alive and ready."""
    first, second = addresses
    async with scheduler(first, tmp_path / "lock"):
        leader = await find(first)
        async with scheduler(second, tmp_path / "lock"), dial(second) as stub:
            while not (answer := await ask(second)).leader_address:
                await asyncio.sleep(0.02)
            assert answer == scheduler_pb2.FindLeaderResponse(leader_address=first)
            refused = {name: text async for name, text in calls(stub, scheduler_pb2, "SchedulerService")}
            async with dial_admin(second) as admin:
                refused |= {name: text async for name, text in calls(admin, admin_pb2, "AdminService")}
            assert set(refused.values()) == {f"this scheduler stands by; {first} leads"}
            assert {"AttachWorker", "AttachWorkers", "AttachFrontend", "GetStatus"} <= set(refused)
            found = await find(second)
    assert (found.address, found.term, found.instance) == (first, leader.term, leader.instance)


async def test_the_standby_leads_with_a_higher_term_when_the_leader_is_told_to_stop(
    addresses: list[str], tmp_path: Path
) -> None:
    """B1: and a scheduler that is started again stands by in turn."""
    first, second = addresses
    async with scheduler(first, tmp_path / "lock"):
        old = await find(*addresses)
        standby = scheduler(second, tmp_path / "lock")
        await standby.__aenter__()
    new = await find(*addresses)
    assert (old.address, new.address) == (first, second) and new.term > old.term
    async with scheduler(first, tmp_path / "lock"):
        assert not (await ask(first)).is_leader
        await standby.__aexit__(None, None, None)
        newest = await find(*addresses)
    assert newest.address == first and newest.term > new.term and newest.instance != old.instance


async def test_a_leader_without_its_lease_ends(addresses: list[str], tmp_path: Path) -> None:
    """B2."""
    first, _ = addresses
    async with scheduler(first, tmp_path / "lock") as task:
        await find(first)
        with locked_by_another(tmp_path / "lock"), pytest.raises(LeaseLostError):
            await asyncio.wait_for(task, START_S)
    with pytest.raises(SignalboxError):
        await LeaderSearch(first).find(timeout_s=0.2)


@pytest.mark.fresh
def test_the_process_says_why_it_ends(addresses: list[str], tmp_path: Path) -> None:
    """One sentence, and not status 0: whatever supervises it starts it again, as a standby."""
    command = [sys.executable, "-m", "scheduler_svc", f"--listen={addresses[0]}"]
    command += [f"--lease=file:{tmp_path / 'lock'}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "leading with term 2" not in process.stderr.readline():
        assert process.poll() is None
    with locked_by_another(tmp_path / "lock"):
        said = process.stderr.read()
    assert process.wait(START_S) == 1 and "Traceback" not in said
    assert said.splitlines()[-1].startswith(f"scheduler: {tmp_path}/lock was removed or replaced")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--listen=0.0.0.0:0", "--insecure", "--lease=file:HERE/lock"],
            "is no address to tell others; add --advertise",
        ),
        (
            ["--listen=127.0.0.1:0", "--lease=file:HERE/nowhere/lock"],
            "cannot lock HERE/nowhere/lock: No such",
        ),
    ],
)
def test_a_lease_that_cannot_be_is_one_sentence(flags: list[str], sentence: str, tmp_path: Path) -> None:
    """B1: nothing else is said: neither that it listens or stands by, nor what breaks when a server is left behind."""
    command = [sys.executable, "-m", "scheduler_svc", *flags]
    command = [word.replace("HERE", str(tmp_path)) for word in command]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert said.startswith("scheduler: ") and sentence.replace("HERE", str(tmp_path)) in said


@pytest.mark.parametrize("address", ["nonsense", "", ":7300", "a:0", "a:70000", "a:1,b:2"])
def test_what_is_no_address_is_not_told_to_others(address: str) -> None:
    with pytest.raises(StartupError, match=r"--advertise .* is not HOST:PORT"):
        config.load(SchedulerSettings, [f"--advertise={address}"])


@pytest.mark.parametrize("lease", ["file:", "flie:x", "kubernetes:x", "kubernetes:A/b", "x"])
def test_what_names_no_lease_is_refused(lease: str) -> None:
    with pytest.raises(StartupError, match=r"--lease .*a lease is file:PATH or kubernetes:NAMESPACE/NAME"):
        config.load(SchedulerSettings, [f"--lease={lease}"])


def test_a_lease_in_etcd_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(StartupError, match=r"the lease etcd: was removed in version 0\.2: use file"):
        config.load(SchedulerSettings, ["--lease=etcd:http://h:2379/key"])


async def test_a_wildcard_is_no_address_to_tell_others(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = [f"--listen=0.0.0.0:{port}", "--insecure", f"--lease=file:{tmp_path / 'lock'}"]
    with pytest.raises(StartupError, match=r"0\.0\.0\.0:\d+ is no address to tell others; add --advertise"):
        await serve(config.load(SchedulerSettings, settings), asyncio.Event())
    loaded = config.load(SchedulerSettings, [*settings, "--advertise=10.0.0.1:7300"])
    assert loaded.address(port) == "10.0.0.1:7300"


async def test_a_lease_of_kubernetes_is_for_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (port,) = free_ports(1)
    settings = [f"--listen=127.0.0.1:{port}", "--lease=kubernetes:here/leader"]
    with pytest.raises(StartupError, match="KUBERNETES_SERVICE_HOST is not set"):
        await serve(config.load(SchedulerSettings, settings), asyncio.Event())


async def test_commands_ask_the_leader_whichever_address_they_have(
    addresses: list[str], tmp_path: Path
) -> None:
    """B3: also the one of the standby alone; and when the leader changes between two of their questions."""
    first, second = addresses
    leader = scheduler(first, tmp_path / "lock")
    await leader.__aenter__()
    await find(first)
    async with scheduler(second, tmp_path / "lock"), admin_client(second) as link:
        old = (await link.status()).scheduler_epoch
        async with aclosing(watch_board(f"{first},{second}")) as boards:
            assert (await anext(boards)).scheduler_epoch == old
        await leader.__aexit__(None, None, None)
        assert (await link.status()).scheduler_epoch > old


async def test_standby_alone_is_enough_on_one_host(
    addresses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1: two schedulers with --standby and nothing else share a locked file of their user."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    stop = asyncio.Event()
    tasks = []
    for address in addresses:
        settings = config.load(SchedulerSettings, [f"--listen={address}", "--standby"])
        tasks.append(asyncio.create_task(serve(settings, stop)))
        await asyncio.wait_for(tell_serving({"": address}, lambda name: None), START_S)
    assert (await find(addresses[1])).address == addresses[0]
    assert (tmp_path / "signalbox-scheduler.lease").is_file()
    stop.set()
    await asyncio.gather(*tasks)


def test_a_directory_of_somebody_else_holds_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that anybody may have laid at the common place is not followed."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "theirs")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    settings = config.load(SchedulerSettings, ["--standby"])
    with pytest.raises(StartupError, match="is not ours"):
        open_lease(parse_lease(settings.contended_lease), Holder("us", "127.0.0.1:1"), 3)
