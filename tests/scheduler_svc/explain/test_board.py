"""What the board says of the scheduler's state, and what it costs when nobody looks."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from scheduler_svc.admin import board_snapshot
from scheduler_svc.admin.board_snapshot import block_map, make_snapshot
from scheduler_svc.admin.board_times import WINDOW_S, ReportTimes, SampleRing
from scheduler_svc.admin.servicer import AdminServicer, worker_status
from scheduler_svc.core.parts.disk.news import DiskNews, GroupNews
from scheduler_svc.core.parts.disk.part import take_disk_news
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, BlockPool
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.checkpoints import CheckpointCounts
from scheduler_svc.core.state.slots.slot_state import CLIENT_PAUSED, DISPLACED, HELD
from scheduler_svc.core.state.steps.step import StepReport
from scheduler_svc.metrics import read
from scheduler_svc.step_loop import StepLoop
from signalbox.board import link as board_link
from signalbox.board.link import read_board, watch_board
from signalbox.board.snapshot import Checkpoints, Disk
from signalbox.cli.commands.service.status import to_json, to_table
from signalbox.errors import UnavailableError
from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import BlockGroupKind, WorkerHealth, WorkerRole
from signalbox.telemetry.attributes import (
    METRIC_CHECKPOINTS,
    METRIC_DISK_BLOCKS,
    METRIC_GROUP_BLOCKS,
    METRIC_GROUP_HOST_BLOCKS,
)
from signalbox.telemetry.spans import SpanCounts
from signalbox.v1 import admin_pb2
from tests.scheduler_svc.attached import dial, make_hello, serve
from tests.scheduler_svc.harness import WORKER, make_info, make_request, make_scheduler, report_for, run_step

NOW_MS = 10_000.0


def snapshot(core: Scheduler, times: ReportTimes | None = None) -> Any:
    return read_board(make_snapshot(core, 1, times or ReportTimes(), 1.0, NOW_MS))


def levels(cells: bytes) -> list[tuple[int, int]]:
    """(held, cached) per cell."""
    return [(cell >> 4, cell & 15) for cell in cells]


@pytest.mark.parametrize(
    ("health", "word", "state"),
    [
        (WorkerHealth.GOOD, "good", "unreachable for 1 frontend"),
        (WorkerHealth.SILENT, "silent", "silent"),
        (WorkerHealth.HUNG, "hung", "hung"),
        (WorkerHealth.SLOW, "slow", "slow"),
    ],
)
def test_suspects_are_seen_on_the_board_and_in_the_status(
    health: WorkerHealth, word: str, state: str
) -> None:
    """E6 to E8, and who does not hear a worker."""
    core = make_scheduler()
    core.workers[WORKER].vitals.health, core.workers[WORKER].vitals.unheard_by = health, frozenset({"f"})
    seen = snapshot(core).workers[0]
    assert (seen.health, seen.num_unheard_by) == (word, 1)
    status = admin_pb2.GetStatusResponse(workers=[worker_status(core.workers[WORKER])])
    assert f" {state} " in to_table(status, "here:1")


# ---- block map


def test_each_block_is_a_cell_in_a_small_pool() -> None:
    pool = BlockPool(5)
    blocks = pool.take(3)
    pool.publish(blocks[:1], np.array([b"a" * 16], HASH_DTYPE))
    pool.release(blocks[:2])
    cells, size = block_map(pool, 16)
    assert size == 1
    expected = {int(blocks[0]): (0, 15), int(blocks[2]): (15, 0)}
    assert levels(cells) == [expected.get(block, (0, 0)) for block in range(5)]


def test_a_cell_of_many_blocks_shows_even_one_of_them() -> None:
    pool = BlockPool(100)
    pool.take(1)
    cells, size = block_map(pool, 10)
    assert (size, len(cells)) == (10, 10)
    assert sorted(levels(cells)) == [(0, 0)] * 9 + [(2, 0)]  # 1.5 of 15, rounded up


def test_the_last_cell_may_stand_for_fewer_blocks() -> None:
    pool = BlockPool(7)
    pool.take(7)
    cells, size = block_map(pool, 4)
    assert (size, levels(cells)) == (2, [(15, 0)] * 4)


# ---- state


def test_the_snapshot_is_the_state() -> None:
    core = make_scheduler(max_num_seqs=2, max_num_batched_tokens=16)
    for name, tenant, priority in (("a", "x", 0), ("b", "x", 0), ("c", "y", 1), ("d", "x", 0), ("e", "y", 1)):
        core.submit(make_request(name, 8, tenant=tenant, priority=priority, arrival_ms=9000), 0.0)
    run_step(core)
    run_step(core)
    board = snapshot(core)
    worker = core.workers[WORKER]
    assert board.num_waiting == 3
    assert [(q.priority, q.tenant, q.num_waiting, q.oldest_ms) for q in board.queues] == [
        (0, "x", 1, 1000),
        (1, "y", 2, 1000),
    ]
    (told,) = board.workers
    assert (told.num_running, told.num_held_blocks) == (2, int(np.count_nonzero(worker.pool.ref_counts)))
    assert told.num_output_tokens == worker.stats.num_output_tokens > 0
    assert [(r.request_id, r.phase, r.num_prompt_tokens, r.age_ms) for r in board.requests] == [
        ("a", "decode", 8, 1000),
        ("b", "decode", 8, 1000),
    ]
    assert {r.num_output_tokens for r in board.requests} == {2}
    assert {r.max_output_tokens for r in board.requests} == {100}


def test_a_prompt_that_is_partly_computed_is_in_prefill() -> None:
    core = make_scheduler(max_num_batched_tokens=8)
    core.submit(make_request("a", 20), 0.0)
    run_step(core)
    (request,) = snapshot(core).requests
    assert (request.phase, request.num_computed_tokens, request.num_output_tokens) == ("prefill", 8, 0)


@pytest.mark.parametrize(
    ("flags", "phase"),
    [(HELD, "held"), (DISPLACED, "displaced"), (DISPLACED | CLIENT_PAUSED, "paused"), (0, "decode")],
)
def test_a_request_that_may_not_run_says_why(flags: int, phase: str) -> None:
    core = make_scheduler()
    core.submit(make_request("a", 8), 0.0)
    run_step(core)
    run_step(core)
    core.workers[WORKER].table.paused[0] = flags
    assert [request.phase for request in snapshot(core).requests] == [phase]


def test_rows_and_counted_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_snapshot, "MAX_REQUESTS", 3)
    monkeypatch.setattr(board_snapshot, "MAX_COUNTED", 7)
    core = make_scheduler(max_num_seqs=5)
    for number in range(12):
        core.submit(make_request(f"r{number}", 4), 0.0)
    run_step(core)
    board = snapshot(core)
    assert len(board.requests) == 3
    assert board.num_waiting == 7
    assert sum(queue.num_waiting for queue in board.queues) == 2  # 5 of the 7 that were looked at run


# ---- groups and checkpoints


def make_hybrid(num_host_blocks: int = 0) -> Scheduler:
    """A worker with a window of 6 positions and checkpoints at each 8, in blocks of 4; of each group the host tier has
    so many blocks."""
    core = Scheduler(SchedulerConfig(max_inflight_steps=1), epoch=1, now=0.0)
    window = BlockGroup(BlockGroupKind.WINDOW, 6, 9, num_host_blocks=num_host_blocks)
    chunk = BlockGroup(BlockGroupKind.CHUNK, 8, 11, num_host_blocks=num_host_blocks)
    states = StateGroup(8, 5, num_host_checkpoints=num_host_blocks)
    info = make_info(groups=(window, chunk), state_group=states, num_host_blocks=num_host_blocks)
    core.attach_worker(info, None, 0.0)
    return core


def test_groups_and_checkpoints_are_on_the_board() -> None:
    """GR2, CK1: held, cached and free of each, and what became of checkpoints."""
    core = make_hybrid()
    names = b"".join(number.to_bytes(16, "little") for number in range(5))
    core.submit(make_request("a", 20, hashes=names), 0.0)
    run_step(core)  # blocks of 20 tokens, the state behind 16
    run_step(core)
    (told,) = snapshot(core).workers
    window, chunk = told.groups
    # A query at 20 looks at [15, 20] and [16, 20]: blocks 3 to 5, and 4 to 5.
    assert (window.name, window.num_held_blocks, window.num_cached_blocks) == ("window of 6", 3, 3)
    assert (chunk.name, chunk.num_held_blocks, chunk.num_cached_blocks) == ("chunk of 8", 2, 4)
    assert (window.num_free_blocks, chunk.num_free_blocks) == (3, 5)
    kept = told.checkpoints
    assert kept == Checkpoints(8, 5, 4, 1, num_made=1, num_used=0, num_evicted=0)
    assert (kept.name, kept.num_held_checkpoints) == ("states at each 8", 0)


def test_the_host_tier_of_each_group_is_told() -> None:
    """X13: used of all, on the board, in `status` and in the metrics."""
    core = make_hybrid(num_host_blocks=4)
    worker = core.workers[WORKER]
    for number, host in enumerate(worker.hosts):
        for name in range(number):
            host.store(bytes([number, name]) * 8, set())
    (told,) = snapshot(core).workers
    assert [(group.num_used_host_blocks, group.num_host_blocks) for group in told.groups] == [(1, 4), (2, 4)]
    assert (told.checkpoints.num_used_host_checkpoints, told.checkpoints.num_host_checkpoints) == (3, 4)
    taken = samples(core, METRIC_GROUP_HOST_BLOCKS, "group", "reach")
    assert taken == [("1", "6", 1), ("2", "8", 2), ("states", "8", 3)]
    table = to_table(admin_pb2.GetStatusResponse(workers=[worker_status(worker)]), "a:1")
    assert all(words in table for words in ("1 of 4", "2 of 4", "3 of 4"))


def test_the_disk_tier_is_told() -> None:
    """DT3, DT5: what it could load, and whether it is left alone."""
    core = make_scheduler()
    worker = core.workers[WORKER]
    assert snapshot(core).workers[0].disk is None and samples(core, METRIC_DISK_BLOCKS, "worker_id") == []
    news = DiskNews(begins=True, groups=[GroupNews(0, [b"a" * 16, b"b" * 16], [], 0.0)], is_off=True)
    take_disk_news(worker, news)
    worker.stats.num_disk_hit_tokens = 48
    assert snapshot(core).workers[0].disk == Disk(2, True, 48, 0, 0, 0)
    assert samples(core, METRIC_DISK_BLOCKS, "worker_id") == [("w", 2)]
    status = admin_pb2.GetStatusResponse(workers=[worker_status(worker)])
    words = "w: 2 blocks on disk, which is left alone for a while; 0 stored, 0 loaded, 0 lost, 48 tokens hit"
    assert words in to_table(status, "a:1")
    assert to_json(status)["workers"][0]["disk"]["num_blocks"] == 2


@pytest.mark.parametrize("role", list(WorkerRole))
def test_a_role_is_told_where_it_is_one(role: WorkerRole) -> None:
    """PD1"""
    core = make_scheduler()
    worker = core.workers[WORKER]
    worker.role = role
    word = role.name.lower()
    assert snapshot(core).workers[0].role == word
    status = admin_pb2.GetStatusResponse(workers=[worker_status(worker)])
    assert to_json(status)["workers"][0]["role"] == word
    assert (f"attached, {word}" in to_table(status, "a:1")) is (role is not WorkerRole.BOTH)


def test_a_worker_of_one_group_has_no_others() -> None:
    core = make_scheduler()
    (told,) = snapshot(core).workers
    assert (told.groups, told.checkpoints) == ((), None)
    assert samples(core, METRIC_GROUP_BLOCKS, "group") == samples(core, METRIC_CHECKPOINTS, "event") == []


def samples(core: Scheduler, name: str, *labels: str) -> list[tuple[Any, ...]]:
    """Values of a metric with these labels ahead of each."""
    loop = StepLoop(core, lambda: 0.0, lambda when, action: None)
    (metric,) = (metric for metric in read(loop, SpanCounts()) if metric.name == name)
    return [(*(sample.labels[label] for label in labels), sample.value) for sample in metric.samples]


def test_groups_and_checkpoints_are_in_the_metrics() -> None:
    core = make_hybrid()
    checkpoints = core.workers[WORKER].checkpoints
    assert checkpoints is not None
    checkpoints.counts = CheckpointCounts(7, 3, 2)
    made = samples(core, METRIC_CHECKPOINTS, "worker_id", "event")
    assert made == [("w", "made", 7), ("w", "used", 3), ("w", "evicted", 2)]
    blocks = samples(core, METRIC_GROUP_BLOCKS, "group", "reach", "state")
    assert [each for each in blocks if each[2] == "free"] == [
        ("1", "6", "free", 9),
        ("2", "8", "free", 11),
        ("states", "8", "free", 5),
    ]


def test_groups_and_checkpoints_are_in_the_status() -> None:
    core = make_hybrid()
    assert core.workers[WORKER].checkpoints is not None
    core.workers[WORKER].checkpoints.counts = CheckpointCounts(7, 3, 2)
    core.workers[WORKER].windows[0].pool.take(2)
    status = admin_pb2.GetStatusResponse(workers=[worker_status(core.workers[WORKER])])
    rows = [line.split() for line in to_table(status, "here:1").splitlines()[-4:]]
    assert rows == [
        ["worker", "group", "held", "cached", "host", "made", "used", "evicted"],
        ["w", "window", "of", "6", "2", "of", "9", "0", "-", "-", "-", "-"],
        ["w", "chunk", "of", "8", "0", "of", "11", "0", "-", "-", "-", "-"],
        ["w", "states", "at", "each", "8", "0", "of", "5", "0", "-", "7", "3", "2"],
    ]
    (document,) = json.loads(json.dumps(to_json(status)))["workers"]
    assert document["groups"][1] == {
        "kind": "chunk", "reach": 8, "num_blocks": 11, "num_free_blocks": 11, "num_cached_blocks": 0,
        "num_host_blocks": 0, "num_used_host_blocks": 0,
    }  # fmt: skip
    assert document["checkpoints"]["num_made"] == 7
    alone = admin_pb2.GetStatusResponse(workers=[worker_status(make_scheduler().workers[WORKER])])
    assert "group" not in to_table(alone, "here:1")
    assert to_json(alone)["workers"][0]["checkpoints"] is None


# ---- times


def test_percentiles_count_each_request_that_saw_a_sample() -> None:
    ring = SampleRing()
    ring.add(100.0, 0.010, count=98)
    ring.add(100.0, 0.500, count=2)
    count, seconds = ring.percentiles(100.0)
    assert (count, list(seconds)) == (100, [0.010, 0.010, 0.500])


def test_old_samples_are_forgotten_and_the_newest_kept() -> None:
    ring = SampleRing(capacity=2)
    for number in range(3):
        ring.add(100.0 + number, float(number))
    assert ring.percentiles(102.0) == (2, [1.0, 2.0, 2.0])
    assert ring.percentiles(102.0 + WINDOW_S) == (0, ())


def note_step(core: Scheduler, times: ReportTimes, now: float, wall_ms: float) -> None:
    """One step, whose report is noted as the step loop does it."""
    assert core.schedule(WORKER, 0.0) is not None
    report: StepReport = report_for(core)
    report.duration_us, report.execute_us = 1000, 800
    times.note(core.workers[WORKER], report, now, wall_ms)
    core.update(WORKER, report, 0.0)


def test_the_first_token_counts_from_arrival_and_the_next_from_the_last_report() -> None:
    core, times = make_scheduler(), ReportTimes()
    core.submit(make_request("a", 8, arrival_ms=1000), 0.0)
    note_step(core, times, 50.0, 1200.0)
    assert times.first_token.percentiles(50.0) == (1, pytest.approx([0.2] * 3))
    assert times.inter_token.percentiles(50.0)[0] == 0
    note_step(core, times, 50.025, 1225.0)
    assert times.first_token.percentiles(50.025)[0] == 1
    assert times.inter_token.percentiles(50.025) == (1, pytest.approx([0.025] * 3))
    assert times.take_spent(WORKER) == (2000, 1600)
    assert times.take_spent(WORKER) == (0, 0)


# ---- watchers


async def test_all_watchers_see_one_look_and_without_any_nothing_listens() -> None:
    async with serve() as (loop, address), dial(address) as stub:
        worker = stub.AttachWorker()
        await worker.write(make_hello("w"))
        await worker.read()
        assert loop.on_report is None
        async with aclosing(watch_board(address)) as one, aclosing(watch_board(address)) as two:
            first, second = await anext(one), await anext(two)
            assert loop.on_report is not None
            assert first == second
            assert [w.worker_id for w in first.workers] == ["w"]
            assert (await anext(one)).at_ms > first.at_ms
        await until_nothing_listens(loop)
        worker.cancel()


async def test_a_watcher_that_comes_back_sees_the_state_of_now() -> None:
    async with serve() as (loop, address), dial(address) as stub:
        async with aclosing(watch_board(address)) as boards:
            assert (await anext(boards)).workers == ()
        await until_nothing_listens(loop)
        worker = stub.AttachWorker()
        await worker.write(make_hello("w"))
        await worker.read()
        async with aclosing(watch_board(address)) as boards:
            assert [w.worker_id for w in (await anext(boards)).workers] == ["w"]
        worker.cancel()


class MuteAdmin(AdminServicer):
    """Sends one snapshot, and nothing more."""

    async def WatchBoard(self, request: Any, context: Any) -> None:  # noqa: N802
        await context.write(admin_pb2.WatchBoardResponse())
        await asyncio.Event().wait()


async def test_a_silent_scheduler_is_not_watched_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """H7: its last board would be shown as that of now."""
    monkeypatch.setattr(board_link, "SILENT_S", 0.2)
    async with serve(admin=MuteAdmin) as (_, address), aclosing(watch_board(address)) as boards:
        await anext(boards)
        async with asyncio.timeout(20):
            with pytest.raises(UnavailableError, match="has sent no board"):
                await anext(boards)


async def until_nothing_listens(loop: Any) -> None:
    async with asyncio.timeout(5):
        while loop.on_report is not None:
            await asyncio.sleep(0.01)


def test_no_message_of_the_board_has_room_for_text() -> None:
    """Names and ids are all that is said of a request."""
    fields = admin_pb2.BoardRequest.DESCRIPTOR.fields
    assert {field.name for field in fields if field.type == field.TYPE_STRING} == {
        "request_id",
        "worker_id",
        "tenant",
    }
    assert not [field.name for field in fields if field.type == field.TYPE_BYTES]


def test_workers_that_are_gone_are_forgotten() -> None:
    core, times = make_scheduler(), ReportTimes()
    core.submit(make_request("a", 8), 0.0)
    note_step(core, times, 50.0, 0.0)
    times.keep([WORKER])
    assert times.take_spent(WORKER) == (1000, 800)
    note_step(core, times, 50.1, 0.0)
    times.keep([])
    assert times.take_spent(WORKER) == (0, 0)
