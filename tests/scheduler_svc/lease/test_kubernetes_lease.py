"""A Lease object makes one of the schedulers the leader (docs/liveness.md, B1 and B2). The API server is a stub."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_svc.lease.kubernetes_store import KubernetesStore
from scheduler_svc.lease.leadership_servicer import LeadershipServicer
from scheduler_svc.lease.lease import Holder
from scheduler_svc.lease.polled_lease import PolledLease
from scheduler_svc.lease.predecessor_link import tell_predecessor
from scheduler_svc.lease.rest import Rest, RestError
from signalbox.errors import LeaseLostError
from signalbox.links import rpc
from signalbox.v1 import scheduler_pb2_grpc
from tests.ports import free_ports
from tests.scheduler_svc.attached import serve
from tests.scheduler_svc.lease.api_server import PREFIX, TOKEN, ApiServer, api_server

PATH = f"{PREFIX}here/leases/leader"
DURATION_S = 1


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with api_server() as server:
        yield server


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def make(api: ApiServer, token: Path, name: str, ca: Path | None = None) -> KubernetesStore:
    us = Holder(f"instance-{name}", f"{name}:7300")
    return KubernetesStore(Rest(api.url, 2.0, ca), "here", "leader", us, DURATION_S, token)


async def hold(store: KubernetesStore) -> tuple[PolledLease, int]:
    """The lease of a store once it leads, and its counter."""
    lease = PolledLease(store, DURATION_S)
    return lease, await asyncio.wait_for(lease.acquire(), 10)


async def test_a_leader_that_renews_goes_on_and_one_that_does_not_is_followed(
    api: ApiServer, token: Path
) -> None:
    """B1: the counter of the object rises with each leader, and everybody can see who leads."""
    leader, counter = await hold(make(api, token, "a"))
    keeping = asyncio.create_task(leader.keep())
    store = make(api, token, "b")
    standby = PolledLease(store, DURATION_S)
    waiting = asyncio.create_task(standby.acquire())
    await asyncio.sleep(2.5 * DURATION_S)
    assert counter == 1 and leader.is_held and not waiting.done()
    assert standby.holder_address == "a:7300"
    assert api.leases[PATH]["spec"]["holderIdentity"] == "a:7300_instance-a"
    keeping.cancel()
    assert await asyncio.wait_for(waiting, 10) == 2
    assert standby.is_held and not leader.is_held
    assert api.leases[PATH]["spec"]["leaseTransitions"] == 2


async def test_a_leader_that_was_away_finds_its_lease_lost(api: ApiServer, token: Path) -> None:
    """B2: as after SIGSTOP."""
    leader, _ = await hold(make(api, token, "a"))
    await hold(make(api, token, "b"))
    assert not leader.is_held, "it says so before it has asked"
    with pytest.raises(LeaseLostError, match="it is held by b:7300 now"):
        await asyncio.wait_for(leader.keep(), 5)


async def test_a_lease_that_ran_out_and_that_nobody_took_is_still_ours(api: ApiServer, token: Path) -> None:
    leader, _ = await hold(make(api, token, "a"))
    await asyncio.sleep(1.2 * DURATION_S)
    assert not leader.is_held
    keeping = asyncio.create_task(leader.keep())
    await asyncio.sleep(0.7 * DURATION_S)
    assert leader.is_held
    keeping.cancel()


async def test_a_lease_that_is_let_go_is_free_at_once(api: ApiServer, token: Path) -> None:
    leader, _ = await hold(make(api, token, "a"))
    await leader.release()
    assert await make(api, token, "b").take() == 2


@pytest.mark.sampled
@pytest.mark.parametrize("written", ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
async def test_clocks_of_others_do_not_matter(api: ApiServer, token: Path, written: str) -> None:
    """The times in the object are for people: a standby watches how long it stays as it is."""
    leader, standby = make(api, token, "a"), make(api, token, "b")
    await leader.take()
    for _ in range(5):
        assert await leader.renew()
        api.leases[PATH]["spec"]["renewTime"] = written
        assert await standby.take() is None
        await asyncio.sleep(0.3 * DURATION_S)
    await asyncio.sleep(DURATION_S)
    assert await standby.take() == 2


@pytest.mark.slow
async def test_of_many_that_want_it_at_once_one_gets_it(api: ApiServer, token: Path) -> None:
    """409: first when there is no object, then when it has run out and all have seen the same version."""
    stores = [make(api, token, f"s{index}") for index in range(8)]
    for counter in (1, 2):
        counters = await asyncio.gather(*(store.take() for store in stores))
        assert sorted(filter(None, counters)) == [counter]
        winner = counters.index(counter)
        assert await stores[winner].renew()
        stores.pop(winner)
        await asyncio.gather(*(store.take() for store in stores))
        await asyncio.sleep(1.2 * DURATION_S)


async def test_an_object_that_somebody_else_touches_is_not_lost_one_that_is_deleted_is(
    api: ApiServer, token: Path
) -> None:
    store = make(api, token, "a")
    await store.take()
    api.touch(PATH)
    assert await store.renew()
    del api.leases[PATH]
    assert not await store.renew()


async def test_a_write_whose_answer_was_lost_is_seen_at_the_next_look(api: ApiServer, token: Path) -> None:
    store = make(api, token, "a")
    api.loses_answers = True
    with pytest.raises(RestError, match=r"refuses the Lease here/leader \(504\): lost"):
        await store.take()
    api.loses_answers = False
    assert await store.take() == 1
    assert await store.renew()


@pytest.mark.slow
async def test_an_api_server_that_is_away_takes_the_lease_from_nobody(api: ApiServer, token: Path) -> None:
    """B2: the leader goes on, and who waits goes on asking."""
    leader, _ = await hold(make(api, token, "a"))
    keeping = asyncio.create_task(leader.keep())
    standby = PolledLease(make(api, token, "b"), DURATION_S)
    waiting = asyncio.create_task(standby.acquire())
    await asyncio.sleep(0.5 * DURATION_S)
    api.fails_with = 503
    await asyncio.sleep(2.5 * DURATION_S)
    assert leader.is_held and not keeping.done() and not waiting.done()
    keeping.cancel()
    api.fails_with = None
    assert await asyncio.wait_for(waiting, 10) == 2


async def test_a_leader_that_is_cut_off_from_the_api_server_is_told_by_its_successor(
    api: ApiServer, token: Path, tmp_path: Path
) -> None:
    """B2: two lead for a moment, and each worker obeys one of them."""
    own_token = tmp_path / "own"
    own_token.write_text(TOKEN)
    servicer, server = LeadershipServicer(), rpc.Server(["signalbox.v1.SchedulerService"])
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, server.grpc)
    address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    us = Holder("instance-a", address)
    leader, counter = await hold(
        KubernetesStore(Rest(api.url, 2.0), "here", "leader", us, DURATION_S, own_token)
    )
    servicer.stand_by(leader)
    own_token.write_text("not taken any more")
    keeping = asyncio.create_task(leader.keep())
    successor, next_counter = await hold(make(api, token, "b"))
    assert leader.is_held and successor.predecessor_address == address
    await tell_predecessor(address, counter)
    assert leader.is_held, "that is its own"
    await tell_predecessor(address, next_counter)
    assert not leader.is_held
    with pytest.raises(LeaseLostError, match="another scheduler says that it holds it"):
        await asyncio.wait_for(keeping, 5)
    await server.stop(0)
    await asyncio.wait_for(tell_predecessor(address, next_counter), 5)


async def test_a_leader_whose_address_refuses_is_followed_before_its_lease_has_run_out(
    api: ApiServer, token: Path
) -> None:
    """B4: if it was reached before."""
    async with serve() as (_, address):
        us = Holder("instance-a", address)
        assert await KubernetesStore(Rest(api.url, 2.0), "here", "leader", us, 60, token).take() == 1
        standby = PolledLease(make(api, token, "b"), DURATION_S)
        waiting = asyncio.create_task(standby.acquire())
        await asyncio.sleep(1.5)
        assert not waiting.done()
    assert await asyncio.wait_for(waiting, 10) == 2


@pytest.mark.slow
async def test_an_address_that_was_never_reached_proves_nothing_by_refusing(
    api: ApiServer, token: Path
) -> None:
    """E9: as behind a firewall; and anybody may write nonsense into the store."""
    for number, address in enumerate((f"127.0.0.1:{free_ports(1)[0]}", "nonsense", "a:1,b:2"), start=1):
        us = Holder("instance-a", address)
        store = KubernetesStore(Rest(api.url, 2.0), "here", f"leader-{number}", us, 60, token)
        await store.take()
        other = Holder("instance-b", "b:1")
        waits = KubernetesStore(Rest(api.url, 2.0), "here", f"leader-{number}", other, 60, token)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(PolledLease(waits, 60).acquire(), 1.5)
        assert waits.holder_address == address


async def test_a_wrong_token_is_said_and_a_new_one_is_read(api: ApiServer, token: Path) -> None:
    store = make(api, token, "a")
    token.write_text("expired")
    with pytest.raises(RestError, match=r"\(401\): Unauthorized"):
        await store.take()
    token.write_text(TOKEN)
    assert await store.take() == 1
    token.unlink()
    with pytest.raises(RestError, match="cannot read the token"):
        await store.renew()


async def test_it_speaks_tls_and_wants_the_clusters_certificate(tmp_path: Path, token: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.crt"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=stub"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    with api_server(certificate, key) as api:
        assert await make(api, token, "a", certificate).take() == 1
        with pytest.raises(RestError, match=r"does not answer: .*certificate"):
            await make(api, token, "b").take()
