"""The disk tier's threads, over a simulated model's blocks and real files."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from signalbox.protocol.model_identity import ModelIdentity
from signalbox.protocol.parts.disk import DiskOrders, NamedBlock
from tests.worker_svc.disk.running import INFO, NAMES, WAIT_S, Running
from worker_svc.core.batch import RunnerInfo
from worker_svc.disk import segment
from worker_svc.disk.fingerprint import fingerprint_of


def test_what_one_process_stores_the_next_one_loads(tmp_path: Path, running: Running) -> None:
    """DT2, DT3: what is not there is lost by its number."""
    for block in (1, 2):
        running.fill(block, 70 + block)
    running.store(1, [1, 2], NAMES[:2])
    again = Running(tmp_path)
    while (0, NAMES[1]) not in again.tier._directory:
        again.next("disk_news")
    again.tier.announce()
    while not again.next("disk_news").begins:
        pass
    assert again.next("disk_news").groups[0].added == b"".join(NAMES[:2])
    assert again.load(1, [5, 6, 7], [NAMES[1], NAMES[9], NAMES[0]]) == [1]
    assert (again.content(5), again.content(7)) == (72, 71)
    again.tier.close(WAIT_S)


def test_what_waits_is_written_when_the_process_stops(tmp_path: Path) -> None:
    """DT4."""
    first = Running(tmp_path)
    first.fill(3, 33)
    first.tier.begin(DiskOrders(1, stores=[NamedBlock(0, 3, NAMES[3])]))
    first.next("disk_stores_ended")
    first.tier.close(WAIT_S)
    again = Running(tmp_path)
    while (0, NAMES[3]) not in again.tier._directory:
        again.next("disk_news")
    assert again.load(1, [4], [NAMES[3]]) == [] and again.content(4) == 33
    again.tier.close(WAIT_S)


def test_loads_of_a_disk_that_hangs_are_given_up_and_touch_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DT5: the disk is off then, and stores go on."""
    running.fill(1, 71)
    running.store(1, [1], NAMES[:1])
    released, hangs = threading.Event(), segment.read_record

    def hang(*others: Any) -> bool:
        released.wait(WAIT_S)
        return hangs(*others)

    monkeypatch.setattr(segment, "read_record", hang)
    running.fill(8, 8)
    assert running.load(2, [8], NAMES[:1], most_s=0.01) == [0]
    assert running.tier.is_off and running.content(8) == 8
    running.tier.begin(DiskOrders(3, stores=[NamedBlock(0, 1, NAMES[1])]))
    assert running.next("disk_stores_ended").step_id == 3
    released.set()
    assert running.load(4, [8], NAMES[:1]) == [0], "it was read although the disk is left alone"
    assert running.content(8) == 8


def test_behind_the_end_of_a_link_nothing_that_was_ordered_touches_a_block(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DT5, J8: nor is its end told."""
    running.fill(1, 71)
    running.store(1, [1], NAMES[:1])
    released, reads = threading.Event(), segment.read_record

    def wait(*others: Any) -> bool:
        released.wait(WAIT_S)
        return reads(*others)

    monkeypatch.setattr(segment, "read_record", wait)
    running.fill(8, 8)
    running.tier.begin(DiskOrders(2, [NamedBlock(0, 8, NAMES[0])], int(WAIT_S * 1e6)))
    running.tier.wait()
    released.set()
    assert running.load(3, [9], NAMES[:1]) == []
    assert (running.content(8), running.content(9)) == (8, 71)


def test_a_disk_that_cannot_be_written_says_what_it_does_not_have(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DT5: what is there can be loaded yet."""
    running.fill(1, 71)
    running.store(1, [1], NAMES[:1])

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment, "write", full)
    running.tier.begin(DiskOrders(2, stores=[NamedBlock(0, 1, NAMES[1])]))
    running.next("disk_stores_ended")
    while not any(group.removed == NAMES[1] for group in running.next("disk_news").groups):
        pass
    assert running.load(3, [9], NAMES[:1]) == []


def test_what_is_wrong_is_deleted_and_not_written_again(tmp_path: Path, running: Running) -> None:
    """DT6."""
    running.fill(1, 71)
    running.store(1, [1], NAMES[:1])
    running.tier.begin(DiskOrders(2, drops=NAMES[:1]))
    while not any(group.removed == NAMES[0] for group in running.next("disk_news").groups):
        pass
    stores = [NamedBlock(0, 1, NAMES[0]), NamedBlock(0, 2, NAMES[1])]
    running.tier.begin(DiskOrders(3, stores=stores))
    while not any(group.added == NAMES[1] for group in running.next("disk_news").groups):
        pass
    assert running.load(4, [9, 10], NAMES[:2]) == [0]


def test_a_reset_deletes_all_and_what_was_ordered_before_it(running: Running) -> None:
    """DT6, C7."""
    running.fill(1, 71)
    running.store(1, [1], NAMES[:1])
    running.tier.begin(DiskOrders(2, stores=[NamedBlock(0, 1, NAMES[1])]))
    running.tier.begin(DiskOrders(3, drops_all=True))
    running.tier.begin(DiskOrders(4, stores=[NamedBlock(0, 1, NAMES[2])]))
    while not any(group.added == NAMES[2] for group in running.next("disk_news").groups):
        pass
    assert running.load(5, [8, 9, 10], NAMES[:3]) == [0, 1]


def test_what_computing_costs_outlives_the_process(tmp_path: Path) -> None:
    """DT7."""
    first = Running(tmp_path)
    first.fill(1, 71)
    first.store(1, [1], NAMES[:1])
    first.tier.stepped(1000, 0, 250_000)
    first.tier.close(WAIT_S)
    again = Running(tmp_path)
    while again.next("disk_news").token_ns != 250_000:
        pass
    again.tier.close(WAIT_S)


def test_weights_that_are_not_said_have_no_fingerprint() -> None:
    """DT1: and others have others, as blocks of another size and other groups do."""
    with pytest.raises(ValueError, match="no name"):
        fingerprint_of(RunnerInfo("sim", 16, 4, 64, 100, ()), [32])
    others = RunnerInfo("sim", 16, 4, 64, 100, (), identity=ModelIdentity("others"))
    assert len({fingerprint_of(INFO, [32]), fingerprint_of(others, [32]), fingerprint_of(INFO, [64])}) == 3
