"""Who leads is found among a list of real servers (docs/liveness.md, A4)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from signalbox.errors import UnavailableError
from signalbox.links import rpc
from signalbox.links.addresses import read_addresses
from signalbox.links.leader import Leader, LeaderSearch
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.ports import free_ports

_SERVE = """
import asyncio, sys
from tests.signalbox.links.test_leader import serve
async def main():
    async with serve(int(sys.argv[1]), is_leader=True, scheduler_epoch=int(sys.argv[2])):
        print("up", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


class Scheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Answers every question about the leader with `answer`."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.num_asked = 0

    async def FindLeader(self, request: Any, context: Any) -> scheduler_pb2.FindLeaderResponse:  # noqa: N802
        self.num_asked += 1
        return scheduler_pb2.FindLeaderResponse(**self.answer)


@asynccontextmanager
async def serve(port: int, **answer: Any) -> AsyncIterator[Scheduler]:
    """A server at `port` that answers so."""
    scheduler = Scheduler(**answer)
    server = rpc.Server(["signalbox.v1.SchedulerService"])
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server.grpc)
    await server.start(f"127.0.0.1:{port}")
    try:
        yield scheduler
    finally:
        await server.stop(0)


@contextmanager
def in_process(port: int, term: int) -> Iterator[subprocess.Popen[bytes]]:
    """A leader in a process of its own, that can be stopped and killed."""
    process = subprocess.Popen([sys.executable, "-c", _SERVE, str(port), str(term)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def search(*ports: int) -> AsyncIterator[LeaderSearch]:
    """A search over `ports`."""
    found = LeaderSearch(",".join(map(at, ports)))
    try:
        yield found
    finally:
        await found.close()


def at(port: int) -> str:
    return f"127.0.0.1:{port}"


async def test_the_one_that_leads_is_found_and_its_channel_is_kept() -> None:
    """A4: a standby and an address where nothing listens do not matter."""
    nobody, standby, leader = free_ports(3)
    leads = {"is_leader": True, "scheduler_epoch": 7, "scheduler_instance": "i"}
    async with (
        serve(standby, leader_address=at(leader)),
        serve(leader, **leads) as scheduler,
        search(nobody, standby, leader) as found,
    ):
        first = await found.find()
        second = await found.find()
    assert (first.address, first.term, first.instance) == (at(leader), 7, "i")
    assert first.channel is second.channel and scheduler.num_asked == 2


async def test_one_that_is_deposed_is_taken_only_where_nobody_else_leads() -> None:
    """T6: it answers first, and its successor comes a while later."""
    older, newer = free_ports(2)
    first = {"is_leader": True, "scheduler_epoch": 7, "scheduler_instance": "old"}
    second = {"is_leader": True, "scheduler_epoch": 8, "scheduler_instance": "new"}

    def is_deposed(leader: Leader) -> bool:
        return leader.instance == "old"

    async with serve(older, **first) as scheduler, search(older, newer) as found:
        assert (await found.find(0.5, is_deposed)).instance == "old"
        finding = asyncio.create_task(found.find(20, is_deposed))
        before = scheduler.num_asked
        while scheduler.num_asked < before + 3:
            await asyncio.sleep(0.01)
        async with serve(newer, **second):
            assert (await finding).instance == "new"
            assert (await found.find(0.5)).term in (7, 8)


async def test_an_address_that_only_a_standby_names_is_followed() -> None:
    """A4: the list may be the name of a service behind which the standby stands."""
    standby, leader = free_ports(2)
    async with (
        serve(standby, leader_address=at(leader)),
        serve(leader, is_leader=True),
        search(standby) as found,
    ):
        assert (await found.find()).address == at(leader)


async def test_without_a_leader_the_error_says_what_each_one_said() -> None:
    nobody, first, second = free_ports(3)
    async with serve(first), serve(second, leader_address=at(nobody)), search(nobody, first, second) as found:
        with pytest.raises(UnavailableError) as error:
            await found.find(timeout_s=0.3)
    assert error.value.message == (
        f"no scheduler leads: nothing answers at {at(nobody)}; {at(first)} is a standby; "
        f"{at(second)} is a standby of {at(nobody)}"
    )


async def test_a_scheduler_that_comes_back_is_found_soon() -> None:
    """A channel that has failed would wait up to 2 s before it connects again."""
    (port,) = free_ports(1)
    async with search(port) as found:
        async with serve(port, is_leader=True):
            await found.find()
        finding = asyncio.create_task(found.find(timeout_s=10))
        await asyncio.sleep(1.5)
        started = time.monotonic()
        async with serve(port, is_leader=True, scheduler_epoch=2):
            leader = await finding
            took_s = time.monotonic() - started
            stub = scheduler_pb2_grpc.SchedulerServiceStub(leader.channel)
            await stub.FindLeader(scheduler_pb2.FindLeaderRequest(), timeout=5)
    assert leader.term == 2 and took_s < 1, f"found after {took_s:.2f} s"


async def test_a_stopped_leader_does_not_hide_the_next_one() -> None:
    """It accepts connections and says nothing (E6)."""
    old, new = free_ports(2)
    with in_process(old, 1) as process:
        async with search(old, new) as found:
            assert (await found.find(10)).term == 1
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(UnavailableError, match=f"{at(old)} said nothing"):
                await found.find(timeout_s=0.8)
            async with serve(new, is_leader=True, scheduler_epoch=2):
                assert (await found.find(5)).term == 2
            process.send_signal(signal.SIGCONT)
            assert (await found.find(10)).term == 1, "alone it is found again"


@pytest.mark.parametrize("text", ["", "a", "a:1,", "a:b", ":1", "a:0", "a:65536"])
def test_what_is_no_list_of_addresses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        read_addresses(text)


def test_an_address_named_twice_is_asked_once() -> None:
    assert read_addresses("a:1, b:2,a:1,[::1]:3") == ("a:1", "b:2", "[::1]:3")
