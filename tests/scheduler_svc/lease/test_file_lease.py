"""A locked file makes one of the schedulers of a host the leader (docs/liveness.md, B1 and B3)."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

from scheduler_svc.lease.file_lease import FileLease
from scheduler_svc.lease.lease import Holder
from signalbox.errors import LeaseLostError, StartupError
from tests.scheduler_svc.lease.contenders import contenders, first_to_lead


def make(path: Path, name: str) -> FileLease:
    return FileLease(path, Holder(f"instance-{name}", f"{name}:7300"))


async def acquire(lease: FileLease) -> int:
    return await asyncio.wait_for(lease.acquire(), 5)


def test_a_killed_leader_is_followed_at_once_and_by_one_only(tmp_path: Path) -> None:
    """B1: a standby looks every 50 ms and leads with a higher counter; the other goes on waiting."""
    with contenders(f"file:{tmp_path / 'lock'}", "a", "b", "c") as (leader, *standbys):
        assert [standby.leads_within(1.0) for standby in standbys] == [None, None]
        leader.kill()
        killed_at = time.monotonic()
        second, counter = first_to_lead(standbys)
        took_s = time.monotonic() - killed_at
        assert counter == 2 and took_s < 5, f"{took_s:.2f} s"
        standbys.remove(second)
        assert standbys[0].leads_within(0.5) is None
        second.kill()
        assert standbys[0].leads_within() == 3


def test_a_stopped_leader_keeps_the_lock(tmp_path: Path) -> None:
    """B3: a file lock covers the death of a process, no more."""
    with contenders(f"file:{tmp_path / 'lock'}", "a", "b") as (leader, standby):
        leader.send(signal.SIGSTOP)
        assert standby.leads_within(1.0) is None
        leader.send(signal.SIGCONT)
        leader.kill()
        assert standby.leads_within() == 2


async def test_who_waits_knows_who_leads_and_leads_when_it_lets_go(tmp_path: Path) -> None:
    leader, standby = make(tmp_path / "lock", "a"), make(tmp_path / "lock", "b")
    assert await acquire(leader) == 1 and leader.is_held
    waiting = asyncio.create_task(acquire(standby))
    while not standby.holder_address:
        await asyncio.sleep(0.01)
    assert standby.holder_address == "a:7300" and not standby.is_held
    await leader.release()
    assert await waiting == 2 and standby.holder_address == "b:7300" and not leader.is_held
    await standby.release()
    await standby.release()


@pytest.mark.parametrize(
    ("content", "counter"),
    [(b"", 1), (b"not json", 1), (b"[1]", 1), (b'{"counter": "x"}', 1), (b'{"counter": 41}', 42)],
)
async def test_what_an_earlier_leader_left_is_counted_on_if_it_can_be_read(
    tmp_path: Path, content: bytes, counter: int
) -> None:
    """Without a count it begins anew: workers know the highest term (T1)."""
    record = tmp_path / "lock.holder"
    record.write_bytes(content)
    lease = make(tmp_path / "lock", "a")
    assert await acquire(lease) == counter
    assert json.loads(record.read_text()) == {
        "instance": "instance-a",
        "address": "a:7300",
        "counter": counter,
    }
    await lease.release()
    assert await acquire(lease) == counter + 1
    await lease.release()


async def test_a_leader_whose_file_is_taken_away_leads_no_more(tmp_path: Path) -> None:
    """Others lock a new file then."""
    leader, standby = make(tmp_path / "lock", "a"), make(tmp_path / "lock", "b")
    await acquire(leader)
    waiting = asyncio.create_task(acquire(standby))
    await asyncio.sleep(0.2)
    (tmp_path / "lock").unlink()
    assert await waiting == 2
    with pytest.raises(LeaseLostError, match="removed or replaced"):
        await asyncio.wait_for(leader.keep(), 5)
    assert not leader.is_held
    await standby.release()


async def test_a_path_that_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot lock .*: No such file or directory"):
        await acquire(make(tmp_path / "nowhere" / "lock", "a"))
