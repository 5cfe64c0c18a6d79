"""Threads of the disk tier that meet errors, and that end of one (docs/design.md, DT10; docs/liveness.md, LO1)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signalbox.protocol.parts.disk import DiskOrders, NamedBlock
from signalbox.runtime.parts import FAILURES
from tests.worker_svc.disk.running import NAMES, WAIT_S, Running
from tests.worker_svc.disk.test_directory import content_of, opened, payloads, read
from worker_svc.disk import breaker, pace, segment, tier, writer
from worker_svc.disk.directory import Changes, SegmentDirectory
from worker_svc.disk.tier import MOVER
from worker_svc.disk.writer import NODE, WRITER


class DeathError(BaseException):
    """What nobody expects."""


class TakenOutMeanwhile(dict[str, Any]):
    """The segments of a directory, of which another thread takes one out while they are walked over."""

    def __init__(self, directory: SegmentDirectory) -> None:
        super().__init__(directory._segments)
        self._directory = directory

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            other = threading.Thread(target=self._directory._close, args=(name, Changes()))
            other.start()
            other.join(0.1)
            yield name


def test_a_look_while_entries_go(tmp_path: Path) -> None:
    """DT10: a reader that finds a file gone takes the entry out while the writer looks."""
    mine = opened(tmp_path)
    for name in NAMES[:3]:
        mine.write(0, payloads([name]))
    mine._segments = TakenOutMeanwhile(mine)
    assert not mine.look()


def test_a_read_while_another_one_finds_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DT10: what was found before is read, or is not there; nothing fails."""
    mine = opened(tmp_path)
    for name in NAMES[:2]:
        mine.write(0, payloads([name]))
    reads = segment.read_record

    def drop_the_other(file: int, name: bytes, *others: Any) -> bool:
        other = NAMES[1] if name == NAMES[0] else NAMES[0]
        place = mine._places.get((0, other))
        if place is not None:
            mine._drop(place, other, Changes())
        return reads(file, name, *others)

    monkeypatch.setattr(segment, "read_record", drop_the_other)
    assert read(mine, NAMES[:2]) == list(map(content_of, NAMES[:2]))


def test_a_bug_in_a_look_costs_that_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LO1, LO2: the thread goes on, and stores again when the tier's pause is over."""
    monkeypatch.setattr(breaker, "FIRST_S", 0.01)
    looks, before = SegmentDirectory.look, FAILURES.counts.get(WRITER, 0)

    def fail_once(directory: SegmentDirectory) -> Changes:
        monkeypatch.setattr(SegmentDirectory, "look", looks)
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(SegmentDirectory, "look", fail_once)
    running = Running(tmp_path)
    while FAILURES.counts.get(WRITER, 0) == before or running.tier.writer.breaker.is_off(writer._now()):
        pass
    running.fill(1, 71)
    running.store(1, [1], NAMES[:1])
    assert running.load(2, [5], NAMES[:1]) == [] and running.content(5) == 71
    running.tier.close(WAIT_S)


def test_a_bug_in_a_read_costs_those_loads(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """LO1: whoever waits for them is told at once."""
    monkeypatch.setattr(breaker, "FIRST_S", 0.0)
    running.tier._reading._pause_s = 0.0
    running.fill(1, 71)
    running.store(1, [1], NAMES[:1])
    reads = segment.read_record

    def fail_once(*_: Any) -> bool:
        monkeypatch.setattr(segment, "read_record", reads)
        raise KeyError("a record that another thread took out")

    monkeypatch.setattr(segment, "read_record", fail_once)
    assert running.load(2, [5], NAMES[:1]) == [0]
    assert running.load(3, [5], NAMES[:1]) == [] and running.content(5) == 71


def test_what_cannot_be_moved_is_said_not_to_be_stored(running: Running) -> None:
    """LO1, DT4: the scheduler asks for it again some day."""
    running.tier.writer.put = _die_of(ValueError("a device that fails"))  # type: ignore[method-assign]
    running.tier.begin(DiskOrders(1, stores=[NamedBlock(0, 1, NAMES[0])]))
    while not any(group.removed == NAMES[0] for group in running.next("disk_news").groups):
        pass


def test_a_writer_that_ends_turns_the_tier_off(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """DT10: the scheduler is told, what waits is said not to be there, and nothing is taken any more."""
    running.fill(1, 71)
    monkeypatch.setattr(SegmentDirectory, "write", _die_of(DeathError()))
    running.tier.begin(DiskOrders(1, stores=[NamedBlock(0, 1, NAMES[0])]))
    removed: list[bytes] = []
    while not (news := running.next("disk_news")).is_off:
        pass
    while not removed:
        news = running.next("disk_news")
        removed = [group.removed for group in news.groups if group.removed]
    assert removed == [NAMES[0]] and news.is_off
    assert WRITER in FAILURES.ended and running.tier.is_off
    assert not running.tier.writer.has_room(1)
    running.tier.writer.put(0, payloads(NAMES[1:2]))
    assert running.tier.writer._num_staged_bytes == 0, "what is put is kept for a thread that has ended"
    assert running.load(2, [5], NAMES[:1]) == [0]


def test_loads_are_lost_at_once_when_the_thread_that_moves_blocks_has_ended(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DT10: those under way, and later ones: requests wait for them without a limit of their own."""
    monkeypatch.setattr(running.tier, "_load", _die_of(DeathError()))
    assert running.load(1, [5, 6], NAMES[:2]) == [0, 1]
    while not running.next("disk_news").is_off:
        pass
    assert MOVER in FAILURES.ended
    assert running.load(3, [5, 6], NAMES[:2]) == [0, 1]


@pytest.mark.parametrize(
    "kept", [json.dumps({"token_us": float("nan")}), "[" * 100_000, "\0", '{"token_us": []}']
)
def test_whatever_the_file_of_measures_holds_the_tier_runs(tmp_path: Path, kept: str) -> None:
    """DT7, LO1: it is measured anew."""
    first = Running(tmp_path)
    first.fill(1, 71)
    first.store(1, [1], NAMES[:1])
    first.tier.close(WAIT_S)
    (first.tier._directory.path / f"pace-{NODE}.json").write_text(kept)
    again = Running(tmp_path)
    while (0, NAMES[0]) not in again.tier._directory:
        again.next("disk_news")
    assert again.load(1, [4], NAMES[:1]) == [] and again.content(4) == 71
    again.tier.close(WAIT_S)


def test_a_disk_that_was_slow_once_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DT7, LO2: without loads nobody would learn that it is quick."""
    monkeypatch.setattr(pace, "LEAST_BYTES", 1)
    monkeypatch.setattr(writer, "LOOK_S", 0.05)
    running = Running(tmp_path)
    running.fill(1, 71)
    running.store(1, [1], NAMES[:1])
    running.tier.pace.byte_us = 1e6
    running.tier.announce()
    while running.next("disk_news").groups[0].block_ns < 1e9:
        pass
    monkeypatch.setattr(tier, "STALE_S", 0.0)
    while not any(0 < group.block_ns < 1e9 for group in running.next("disk_news").groups):
        pass
    running.tier.close(WAIT_S)


def _die_of(error: BaseException) -> Any:
    def die(*_: Any) -> None:
        raise error

    return die
