"""A key of a real etcd makes one of the schedulers the leader (docs/liveness.md, B1 and B2)."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_svc.lease.etcd_store import EtcdStore
from scheduler_svc.lease.lease import Holder
from scheduler_svc.lease.polled_lease import PolledLease
from scheduler_svc.lease.rest import Rest, RestError
from signalbox.cli.ring.readiness import http_get
from tests.ports import free_ports
from tests.scheduler_svc.attached import serve
from tests.scheduler_svc.lease.contenders import contenders, first_to_lead

KEY = "signalbox/leader"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server of our own."""
    program = shutil.which("etcd")
    if program is None:
        pytest.skip("etcd is not installed; .ci/run installs it")
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    folder = tmp_path_factory.mktemp("etcd")
    command = [program, "--data-dir", str(folder / "data"), "--listen-client-urls", client]
    command += ["--advertise-client-urls", client, "--listen-peer-urls", peer]
    command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        asyncio.run(_wait_until_healthy(client, folder / "log"))
        yield client
    finally:
        process.kill()
        process.wait()


async def _wait_until_healthy(url: str, log: Path) -> None:
    try:
        async with asyncio.timeout(30):
            while (await http_get(url.removeprefix("http://"), "/health"))[0] != 200:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(log.read_text()) from None


def make(etcd: str, name: str, key: str) -> EtcdStore:
    return EtcdStore(Rest(etcd, 2.0), key, Holder(f"instance-{name}", f"{name}:7300"), 2)


async def take(store: EtcdStore) -> int:
    """As soon as it is free."""
    async with asyncio.timeout(15):
        while (counter := await store.take()) is None:
            await asyncio.sleep(0.1)
    return counter


def test_a_killed_leader_is_followed_by_one_other(etcd: str) -> None:
    """B1: when its lease has run out."""
    with contenders(f"etcd:{etcd}/{KEY}/killed", "a", "b", "c") as (leader, *standbys):
        assert [standby.leads_within(0.5) for standby in standbys] == [None, None]
        leader.kill()
        second, counter = first_to_lead(standbys)
        standbys.remove(second)
        assert standbys[0].leads_within(0.5) is None
        second.kill()
        last = standbys[0].leads_within()
        assert last is not None and last > counter, "the counter rises"


@pytest.mark.slow
def test_a_leader_that_was_stopped_finds_its_lease_lost(etcd: str) -> None:
    """B2: it ends, and the one that leads meanwhile goes on."""
    with contenders(f"etcd:{etcd}/{KEY}/stopped", "a", "b") as (leader, standby):
        leader.send(signal.SIGSTOP)
        assert standby.leads_within() is not None
        leader.send(signal.SIGCONT)
        assert leader.said_in_the_end() == "the lease is lost: it is held by b:7300 now"
        assert standby.said_in_the_end(1.0) is None


async def test_a_standby_knows_who_leads_and_a_lease_that_is_given_up_is_free(etcd: str) -> None:
    first, second = make(etcd, "a", "given-up"), make(etcd, "b", "given-up")
    counter = await take(first)
    assert await second.take() is None and second.holder_address == "a:7300"
    assert await first.renew()
    await first.give_up()
    assert await take(second) > counter
    assert not await first.renew() and first.holder_address == "b:7300"


async def test_of_many_that_want_a_free_lease_at_once_one_gets_it(etcd: str) -> None:
    stores = [make(etcd, f"s{index}", "race") for index in range(8)]
    counters = await asyncio.gather(*(store.take() for store in stores))
    assert sum(counter is not None for counter in counters) == 1


async def test_a_key_that_somebody_overwrites_is_lost_one_that_ran_out_is_taken_again(etcd: str) -> None:
    """Unless somebody else wanted it."""
    store, api = make(etcd, "a", "deleted"), Rest(etcd, 2.0)
    await take(store)
    await api.call("POST", "/v3/kv/deleterange", {"key": "ZGVsZXRlZA=="})
    assert await store.renew() and store.holder_address == "a:7300"
    await api.call("POST", "/v3/kv/put", {"key": "ZGVsZXRlZA==", "value": "eA=="})
    assert not await store.renew() and store.holder_address == ""


async def test_a_leader_whose_address_refuses_is_followed_before_its_lease_has_run_out(etcd: str) -> None:
    """B4: if it was reached before."""
    async with serve() as (_, address):
        holder = EtcdStore(Rest(etcd, 2.0), "refuses", Holder("instance-a", address), 60)
        counter = await take(holder)
        standby = PolledLease(make(etcd, "b", "refuses"), 2.0)
        waiting = asyncio.create_task(standby.acquire())
        await asyncio.sleep(1.5)
        assert not waiting.done()
    assert await asyncio.wait_for(waiting, 10) > counter
    assert not await holder.renew()


async def test_no_etcd_is_an_error_that_names_it() -> None:
    (port,) = free_ports(1)
    with pytest.raises(RestError, match=f"http://127.0.0.1:{port} does not answer: .*refused"):
        await make(f"http://127.0.0.1:{port}", "a", "x").take()
