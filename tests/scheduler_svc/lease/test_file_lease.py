"""A locked file makes one of the schedulers of a host the leader (docs/liveness.md, B1 and B3)."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

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
    [
        (b"", 1),
        (b"not json", 1),
        (b"[1]", 1),
        (b"[" * 60_000, 1),
        (b'{"counter": "x"}', 1),
        (b'{"counter": true}', 1),
        (b'{"counter": -5}', 1),
        (b'{"counter": 18446744073709551616}', 1),
        (b'{"counter": 41}', 42),
    ],
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
    """Before it says that it stands by, and only then: a standby waits on (B5)."""
    with pytest.raises(StartupError, match=r"cannot lock .*: No such file or directory"):
        make(tmp_path / "nowhere" / "lock", "a").check()


async def test_who_has_the_lock_leads_also_when_it_cannot_write_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B5: a directory stands where the record is written, as on a full disk; when it can be, it is."""
    lease, record = make(tmp_path / "lock", "a"), tmp_path / "lock.holder"
    (tmp_path / "lock.holder.new").mkdir()
    assert await acquire(lease) == 1 and lease.is_held and not record.exists()
    assert sum("cannot write" in each.message for each in caplog.records) == 1
    keeping = asyncio.create_task(lease.keep())
    (tmp_path / "lock.holder.new").rmdir()
    while not record.exists():
        await asyncio.sleep(0.02)
    assert json.loads(record.read_text())["address"] == "a:7300"
    await stop(keeping)
    await lease.release()


@pytest.mark.parametrize("is_file", [False, True], ids=["removed", "a file stands there"])
async def test_without_the_directory_the_leader_leads_on_and_who_waits_waits(
    tmp_path: Path, is_file: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """B5: neither ends, each says so once; when the directory is back one of them has the lease."""
    folder = tmp_path / "run"
    folder.mkdir()
    leader, standby = make(folder / "lock", "a"), make(folder / "lock", "b")
    await acquire(leader)
    keeping, waiting = asyncio.create_task(leader.keep()), asyncio.create_task(standby.acquire())
    await asyncio.sleep(0.1)
    shutil.rmtree(folder)
    if is_file:
        folder.touch()

    def said() -> list[str]:
        return [each.message for each in caplog.records if "cannot be reached" in each.message]

    async with asyncio.timeout(20):
        while len(said()) < 2:
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.2)  # each looks once more, and says nothing
    assert not keeping.done() and leader.is_held and not waiting.done()
    assert len(said()) == 2 and any("we lead on" in each for each in said())
    if is_file:
        folder.unlink()
    folder.mkdir()
    await asyncio.sleep(1.5)
    assert leader.is_held != standby.is_held
    await stop(keeping, waiting)
    await leader.release()
    await standby.release()


async def test_a_leader_locks_anew_what_was_taken_away_if_nobody_else_has(tmp_path: Path) -> None:
    """B5: it goes on, and who comes then waits for it and is told its address."""
    leader, late = make(tmp_path / "lock", "a"), make(tmp_path / "lock", "b")
    await acquire(leader)
    keeping = asyncio.create_task(leader.keep())
    (tmp_path / "lock").unlink()
    (tmp_path / "lock.holder").unlink()
    while not (tmp_path / "lock.holder").exists():
        await asyncio.sleep(0.02)
    waiting = asyncio.create_task(late.acquire())
    await asyncio.sleep(0.2)
    assert leader.is_held and not waiting.done() and late.holder_address == "a:7300"
    await stop(keeping)
    await leader.release()
    assert await asyncio.wait_for(waiting, 5) == 2
    await late.release()


async def stop(*tasks: asyncio.Task[Any]) -> None:
    """Cancels them, and takes whatever they have come to."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
