"""Groups of layers that look back so far and no farther: what a slot has of them, and what others find there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.recovery.kept_cache import is_same_cache, keep_cache
from scheduler_svc.core.recovery.snapshot import SnapshotError, check_slots
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.window import WindowBlocks, longest_hit
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind, FinishReason, SlotStatus
from tests.scheduler_svc.harness import (
    WORKER,
    make_info,
    make_request,
    make_slot,
    report_for,
    run_step,
    tokens_by_name,
)

SIZE = 4
WINDOW = BlockGroup(BlockGroupKind.WINDOW, 6, 12)
"""Six positions lie in two blocks or three."""
NO_BLOCKS = np.empty(0, np.int32)


def content(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(16, "little") for number in numbers)


def hashes(*numbers: int) -> Any:
    return np.frombuffer(content(*numbers), HASH_DTYPE)


def make_ring(*groups: BlockGroup, num_blocks: int = 64, **settings: Any) -> tuple[Scheduler, Worker]:
    """A scheduler and its one worker, in blocks of 4."""
    values = {"max_inflight_steps": 1, "max_num_batched_tokens": 8, "max_num_seqs": 4} | settings
    scheduler = Scheduler(SchedulerConfig(**values), epoch=1, now=0.0)
    scheduler.attach_worker(make_info(num_blocks=num_blocks, groups=groups), None, 0.0)
    return scheduler, scheduler.workers[WORKER]


def step(scheduler: Scheduler) -> dict[str, int]:
    """Runs a step; what it ran, by request."""
    made = run_step(scheduler)
    scheduler.check_integrity()
    return tokens_by_name(scheduler, made) if scheduler.workers[WORKER].records else {}


@pytest.mark.parametrize(
    ("kind", "position", "first"),
    [
        (BlockGroupKind.WINDOW, 0, 0),
        (BlockGroupKind.WINDOW, 5, 0),
        (BlockGroupKind.WINDOW, 6, 1),
        (BlockGroupKind.CHUNK, 5, 0),
        (BlockGroupKind.CHUNK, 6, 6),
        (BlockGroupKind.CHUNK, 17, 12),
    ],
)
def test_the_first_position_that_is_seen(kind: BlockGroupKind, position: int, first: int) -> None:
    """WB1: of one position, and of columns of them."""
    group = BlockGroup(kind, 6, 12)
    assert group.first_seen(position) == first
    assert group.first_seen(np.array([position, position])).tolist() == [first, first]


def test_a_hit_is_the_longest_prefix_that_every_group_can_go_on_from() -> None:
    """WB5: the spine has eight blocks; the group lost the fifth, and so every prefix whose end looks at it."""
    window = WindowBlocks(1, WINDOW, 4, 16, SIZE)
    names = hashes(*range(8))
    blocks = window.pool.take(8)
    window.pool.publish(blocks, names)
    assert longest_hit([window], names)[0] == 8
    window.pool.forget(blocks[7:])
    length, (found,) = longest_hit([window], names)
    assert length == 7 and found.tolist() == blocks[5:7].tolist(), (
        "28 looks at 23, in the sixth block, and on"
    )
    window.pool.forget(blocks[5:6])
    length, (found,) = longest_hit([window], names)
    assert length == 5 and found.tolist() == blocks[3:5].tolist()
    window.pool.forget(blocks[:5])
    assert longest_hit([window], names)[0] == 0
    other = WindowBlocks(2, replace(WINDOW, reach=1), 4, 16, SIZE)
    window.pool.publish(blocks[:5], names[:5])
    other.pool.publish(other.pool.take(3), names[:3])
    assert longest_hit([window, other], names)[0] == 5, "a reach of one looks at nothing behind"


def test_blocks_behind_the_window_are_released_when_reports_confirm_it() -> None:
    """GR3, WB1, WB2: a prompt of 32 in chunks of 8, then output. The spine keeps all of it."""
    scheduler, worker = make_ring(WINDOW, max_inflight_steps=2)
    (window,) = worker.windows
    scheduler.submit(make_request("r", 32, hashes=content(*range(8))), 0.0)
    for _ in range(2):  # both in flight: nothing is confirmed
        assert scheduler.schedule(WORKER, 0.0) is not None
    assert (int(window.firsts[0]), int(window.ends[0])) == (0, 4)
    for _ in range(30):
        scheduler.update(WORKER, report_for(scheduler), 0.0)
        scheduler.check_integrity()
        assert scheduler.schedule(WORKER, 0.0) is not None
        confirmed = int(worker.table.confirmed(np.array([0]))[0])
        first, end = int(window.firsts[0]), int(window.ends[0])
        assert first * SIZE <= max(confirmed - 5, 0), "what is looked at is there"
        assert end - first <= 6, "a window, and two chunks"
    assert worker.table.num_output[0] > 20 and int(worker.table.num_blocks[0]) == int(window.ends[0])
    assert window.pool.num_cached, "what was released can be hit"
    scheduler.submit(make_request("s", 33, hashes=content(*range(8))), 0.0)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.schedule(WORKER, 0.0)
    assert int(worker.table.num_found[1]) == 8, "what it looks back at is still there"


def test_a_row_goes_on_with_the_block_that_its_window_leaves() -> None:
    """WB10, I6: once the window has passed the prompt, whose blocks can be hit, its own block comes back in another
    generation; nothing that is cached is given away for it."""
    scheduler, worker = make_ring(WINDOW)
    (window,) = worker.windows
    scheduler.submit(make_request("r", 12, max_tokens=60, hashes=content(1, 2, 3)), 0.0)
    seen: list[tuple[int, int, int]] = []
    for _ in range(50):
        run_step(scheduler)
        scheduler.check_integrity()
        end = int(window.ends[0])
        if not seen or seen[-1][0] != end:
            seen.append((end, int(window.blocks[0, end - 1]), int(window.generations[0, end - 1])))
    later = [(block, generation) for _, block, generation in seen[-6:]]
    assert len({block for block, _ in later}) == 3, "three blocks hold a window of six, and go round"
    assert later[3:] == [(block, generation + 1) for block, generation in later[:3]]
    prompt = window.find(hashes(1, 2, 3))
    assert (prompt >= 0).all() and not np.isin(prompt, window.table(0)).any(), "the prompt can still be hit"


def test_a_start_takes_of_all_groups_or_of_none() -> None:
    """GR4: the spine has room, and the group has not."""
    least = WINDOW.blocks_of_one(SIZE)
    scheduler, worker = make_ring(replace(WINDOW, num_blocks=least + 1))
    for name in "ab":
        scheduler.submit(make_request(name, 7), 0.0)
    step(scheduler)
    step(scheduler)
    assert worker.table.num_running == 1 and worker.pool.num_available > 40
    assert not worker.windows[0].ends[1], "the other waits without any block"


def test_a_prompt_that_goes_on_takes_a_block_of_whoever_goes_behind_it() -> None:
    """GR5: two prompts grow in a group that has room for one and a half; the first of them is never given up."""
    scheduler, worker = make_ring(replace(WINDOW, num_blocks=6), watermark_blocks_per_seq=0)
    for name in "ab":
        scheduler.submit(make_request(name, 40, max_tokens=30), 0.0)
    for _ in range(120):
        if not scheduler.workers[WORKER].has_own_work and not scheduler.requests:
            break
        run_step(scheduler)
        scheduler.check_integrity()
    first = [request for request in worker.requests() if request.key.request_id == "a"]
    assert not first or first[0].history.num_preemptions == 0
    assert int(worker.table.num_output.max()) >= 30


def test_what_a_window_has_passed_goes_first_but_where_prompts_part() -> None:
    """WB9: a prompt of twelve blocks, and two requests that go on from its first six; the middle of it goes."""
    scheduler, worker = make_ring(replace(WINDOW, num_blocks=24), max_num_batched_tokens=64)
    (window,) = worker.windows
    for name, own in (("a", range(6, 12)), ("b", range(20, 26)), ("c", range(30, 36))):
        scheduler.submit(make_request(name, 49, max_tokens=1, hashes=content(*range(6), *own)), 0.0)
        run_step(scheduler)
        slot = next(s for s in range(16) if worker.table.requests[s] is not None)
        scheduler.cancel(worker.request(slot).key, 1)
        run_step(scheduler)
        scheduler.check_integrity()
    assert int(worker.stats.num_prefix_hit_tokens) == 2 * 24, (
        "the second finds all that it shares, and so the third"
    )
    taken = window.pool.take(window.pool.num_available - 8)
    assert (window.find(hashes(4, 5)) >= 0).all(), "two have gone on from there"
    assert (window.find(hashes(2, 7, 8, 22, 32)) < 0).all(), "nobody ever did"
    window.pool.release(taken)
    window.pool.check_integrity([])


def test_what_turned_out_to_be_wrong_is_forgotten_in_every_group() -> None:
    """WB7."""
    scheduler, worker = make_ring(replace(WINDOW, reach=40), max_num_batched_tokens=64)
    scheduler.submit(make_request("r", 13, hashes=content(1, 2, 3)), 0.0)
    run_step(scheduler)
    run_step(scheduler)
    (window,) = worker.windows
    assert (window.find(hashes(1, 2, 3)) >= 0).all()
    scheduler.submit(make_request("s", 13, hashes=content(1, 2, 3)), 0.0)
    run_step(scheduler)
    assert int(worker.table.num_found[1]) == 3
    assert scheduler.schedule(WORKER, 0.0) is not None
    report = report_for(scheduler, finished=((0, FinishReason.ERROR, 1),))
    report.not_run, report.withdrawn = [(0, 2)], [0]
    report.exception_slots, report.exception_counts = np.array([0]), np.array([0])
    scheduler.update(WORKER, report, 0.0)
    assert (window.find(hashes(1, 2, 3)) < 0).all()
    assert "s" not in {request.key.request_id for request in worker.requests()}, "it starts anew"
    scheduler.check_integrity()


def test_what_a_worker_wrote_alone_is_forgotten_in_its_group() -> None:
    """WB6, A5."""
    scheduler, old = make_ring(WINDOW)
    (window,) = old.windows
    blocks = window.pool.take(2)
    window.pool.publish(blocks, hashes(1, 2))
    window.pool.release(blocks)
    info = old.info
    worker = Worker(info, old.limits)
    assert is_same_cache(worker, old)
    keep_cache(worker, old, 0, [NO_BLOCKS, blocks[:1]])
    assert (worker.windows[0].find(hashes(1, 2)) >= 0).tolist() == [False, True]
    assert not is_same_cache(Worker(replace(info, groups=()), old.limits), old)
    assert scheduler.workers


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ((), "tables of 0 groups, of 1"),
        (((8, np.array([1, 2], np.int32)),), ""),
        (((9, np.array([2], np.int32)),), "blocks 9 to 10 of a group, at position 39"),
        (((8, np.array([1], np.int32)),), "blocks 8 to 9 of a group, at position 39"),
        (((7, np.array([1, 2, 3, 4], np.int32)),), "blocks 7 to 11"),
        (((8, np.array([1, 1], np.int32)),), "stands twice"),
        (((8, np.array([1, 12], np.int32)),), "none of 12"),
    ],
)
def test_a_snapshot_says_where_its_tables_begin(tables: Any, problem: str) -> None:
    """WB4: a row of 40 tokens, whose next query is at 39, and looks at 34 and on."""
    info, slot = make_info(groups=(WINDOW,)), make_slot(group_tables=tables)
    assert slot.status == SlotStatus.DECODE
    if not problem:
        check_slots(info, [slot], set())
        return
    with pytest.raises(SnapshotError, match=problem):
        check_slots(info, [slot], set())


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ((0, [1, 2]), ""),
        ((1 << 31, [1]), "blocks 2147483648 to"),
        ((0, [1, 12]), "up to 12"),
    ],
)
def test_a_slot_that_has_ended_has_no_stray_table_either(table: Any, problem: str) -> None:
    """WB4: what it has published may have to be found by it (N2)."""
    first, blocks = table
    tables = ((first, np.array(blocks, np.int32)),)
    info, slot = (
        make_info(groups=(WINDOW,)),
        make_slot(status=SlotStatus.ENDED, withdrawn=True, group_tables=tables),
    )
    if problem:
        with pytest.raises(SnapshotError, match=problem):
            check_slots(info, [slot], set())
        return
    check_slots(info, [slot], set())
    with pytest.raises(SnapshotError, match="tables of 1 groups, of 0"):
        check_slots(make_info(), [slot], set())
