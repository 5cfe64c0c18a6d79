"""The state of the scheduler as one message of the board. Reads, and changes nothing.

What it costs is bounded, whatever runs and waits: so many cells of block maps, so many requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.admin.board_times import ReportTimes, SampleRing
from scheduler_svc.admin.group_status import checkpoint_status, disk_status, group_statuses
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import BlockPool
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import (
    CLIENT_PAUSED,
    DISPLACED,
    FROZEN,
    HELD,
    OWNING,
    SUSPENDED,
    SlotState,
)
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import WorkerHealth
from signalbox.v1 import admin_pb2

MAX_CELLS = 4096
"""Most cells of one worker's block map."""
MIN_CELLS = 256
MAX_CELLS_IN_ALL = 16_384
"""Shared by the workers, as far as MIN_CELLS allows."""
MAX_REQUESTS = 64
"""Rows in all, shared by the workers."""
MAX_COUNTED = 5_000
"""Requests that are looked at to count the queue."""
FULL = 15
"""A cell's level when all of its blocks are in a state."""
HEALTH = {
    WorkerHealth.GOOD: admin_pb2.WORKER_HEALTH_GOOD,
    WorkerHealth.SILENT: admin_pb2.WORKER_HEALTH_SILENT,
    WorkerHealth.HUNG: admin_pb2.WORKER_HEALTH_HUNG,
    WorkerHealth.SLOW: admin_pb2.WORKER_HEALTH_SLOW,
    WorkerHealth.AWAY: admin_pb2.WORKER_HEALTH_AWAY,
}
_PHASES = {
    SlotState.PREPARING: admin_pb2.BOARD_PHASE_PREPARING,
    SlotState.PREFILL: admin_pb2.BOARD_PHASE_PREFILL,
    SlotState.DECODE: admin_pb2.BOARD_PHASE_DECODE,
    SlotState.PREEMPTED: admin_pb2.BOARD_PHASE_PREEMPTED,
}
_PAUSES = (
    (FROZEN, admin_pb2.BOARD_PHASE_FROZEN),
    (SUSPENDED, admin_pb2.BOARD_PHASE_SUSPENDED),
    (CLIENT_PAUSED, admin_pb2.BOARD_PHASE_PAUSED),
    (DISPLACED, admin_pb2.BOARD_PHASE_DISPLACED),
    (HELD, admin_pb2.BOARD_PHASE_HELD),
)


def make_snapshot(
    core: Scheduler, num_frontends: int, times: ReportTimes, now: float, wall_ms: float
) -> admin_pb2.WatchBoardResponse:
    """`now` is the scheduler's clock in seconds, `wall_ms` Unix time."""
    times.keep(core.workers.keys())
    workers = [core.workers[worker_id] for worker_id in sorted(core.workers)]
    count = max(len(workers), 1)
    max_cells = min(MAX_CELLS, max(MIN_CELLS, MAX_CELLS_IN_ALL // count))
    rows = (row for worker in workers for row in _requests(worker, max(MAX_REQUESTS // count, 1), wall_ms))
    return admin_pb2.WatchBoardResponse(
        scheduler_epoch=core.epoch,
        at_ms=int(now * 1e3),
        num_waiting=core.num_waiting,
        num_frontends=num_frontends,
        queues=_queues(core, wall_ms),
        workers=[_worker(worker, max_cells, times) for worker in workers],
        requests=islice(rows, MAX_REQUESTS),
        times=admin_pb2.BoardTimes(
            first_token=_percentiles(times.first_token, now), inter_token=_percentiles(times.inter_token, now)
        ),
        safe_mode=make_safe_mode(core, now),
    )


def make_safe_mode(core: Scheduler, now: float) -> admin_pb2.SafeModeStatus:
    """What is suspended, and for whom."""
    mode = core.safe_mode
    return admin_pb2.SafeModeStatus(
        operator_level=mode.operator_level,
        budget_level=mode.budget_level,
        num_waiting=core.queues.num_suspended,
        num_paused=sum(worker.num_suspended for worker in core.workers.values()),
        burn_rate=mode.burn(now),
    )


def block_map(pool: BlockPool, max_cells: int) -> tuple[bytes, int]:
    """Levels per cell, and blocks per cell: see BoardWorker.cells."""
    size = -(-pool.num_blocks // max_cells)
    held = pool.ref_counts > 0
    levels = _levels(held, size) << 4 | _levels(pool.has_content & ~held, size)
    return levels.tobytes(), size


def _levels(states: NDArray[np.bool_], size: int) -> NDArray[np.uint8]:
    """The share of each `size` values that is true, from 0 to FULL, rounded up."""
    num_cells = -(-len(states) // size)
    padded = np.zeros(num_cells * size, np.uint8)
    padded[: len(states)] = states
    counts = padded.reshape(num_cells, size).sum(axis=1, dtype=np.int64)
    sizes = np.full(num_cells, size)
    sizes[-1] -= len(padded) - len(states)
    levels: NDArray[np.uint8] = (-(-counts * FULL // sizes)).astype(np.uint8)
    return levels


def _queues(core: Scheduler, wall_ms: float) -> list[admin_pb2.BoardQueue]:
    """The queues by class, then tenant. Without a request that waits nothing is looked at."""
    if not core.num_waiting:
        return []
    groups: dict[tuple[int, str], list[int]] = {}
    for request in islice(core.requests.values(), MAX_COUNTED):
        if request.worker_id is None:
            group = groups.setdefault((request.priority, request.tenant), [0, request.arrival_ms])
            group[0] += 1
            group[1] = min(group[1], request.arrival_ms)
    return [
        admin_pb2.BoardQueue(
            priority=priority, tenant=tenant, num_waiting=count, oldest_ms=_since(arrival_ms, wall_ms)
        )
        for (priority, tenant), (count, arrival_ms) in sorted(groups.items())
    ]


def _worker(worker: Worker, max_cells: int, times: ReportTimes) -> admin_pb2.BoardWorker:
    pool, stats = worker.pool, worker.stats
    cells, blocks_per_cell = block_map(pool, max_cells)
    step_us, model_us = times.take_spent(worker.info.worker_id)
    return admin_pb2.BoardWorker(
        worker_id=worker.info.worker_id,
        model=worker.info.model,
        attached=worker.attached,
        draining=worker.draining,
        num_running=worker.table.num_running,
        num_preempted=len(worker.table.preempted),
        num_inflight_steps=len(worker.records),
        num_blocks=pool.num_blocks,
        num_free_blocks=pool.num_free,
        num_cached_blocks=pool.num_cached,
        num_host_blocks=worker.host.num_blocks,
        num_used_host_blocks=len(worker.host),
        cells=cells,
        blocks_per_cell=blocks_per_cell,
        num_steps=stats.num_steps,
        num_preemptions=stats.num_preemptions,
        num_output_tokens=stats.num_output_tokens,
        num_prefill_tokens=stats.num_prefill_tokens,
        num_prefix_query_tokens=stats.num_prefix_query_tokens,
        num_prefix_hit_tokens=stats.num_prefix_hit_tokens,
        step_us=step_us,
        model_us=model_us,
        health=HEALTH[worker.health],
        num_unheard_by=len(worker.vitals.unheard_by),
        groups=group_statuses(worker),
        checkpoints=checkpoint_status(worker),
        disk=disk_status(worker),
        role=int(worker.role),  # type: ignore[arg-type]
        num_ranks=worker.info.num_ranks,
    )


def _requests(worker: Worker, limit: int, wall_ms: float) -> Iterator[admin_pb2.BoardRequest]:
    """The requests in the lowest slots: a row stays where it is from one snapshot to the next."""
    states = worker.table.state
    slots = np.flatnonzero(OWNING[states])[:limit]
    for slot in slots.tolist():
        yield _request(worker, slot, worker.request(slot), wall_ms)


def _request(worker: Worker, slot: int, request: Request, wall_ms: float) -> admin_pb2.BoardRequest:
    table = worker.table
    num_prompt, num_output = int(table.num_prompt[slot]), int(table.num_output[slot])
    is_decoding = table.state[slot] == SlotState.DECODE
    return admin_pb2.BoardRequest(
        request_id=request.key.request_id,
        worker_id=worker.info.worker_id,
        slot=slot,
        phase=_phase(worker, slot),
        priority=request.priority,
        tenant=request.tenant,
        num_prompt_tokens=num_prompt,
        # A decode row has computed all but its newest token, and its column stands at the prefill's end.
        num_computed_tokens=num_prompt + num_output - 1 if is_decoding else int(table.num_computed[slot]),
        num_output_tokens=num_output,
        max_output_tokens=max(int(table.limit[slot]) - num_prompt, 0),
        num_cached_tokens=request.history.num_cached_tokens,
        num_blocks=int(table.num_blocks[slot]),
        num_preemptions=request.history.num_preemptions,
        age_ms=_since(request.arrival_ms, wall_ms),
    )


def _phase(worker: Worker, slot: int) -> admin_pb2.BoardPhase:
    paused = worker.table.paused[slot]
    found = next((phase for flag, phase in _PAUSES if paused & flag), None)
    return _PHASES[int(worker.table.state[slot])] if found is None else found


def _percentiles(ring: SampleRing, now: float) -> admin_pb2.BoardPercentiles:
    count, seconds = ring.percentiles(now)
    if not count:
        return admin_pb2.BoardPercentiles()
    p50, p90, p99 = (value * 1e3 for value in seconds)
    return admin_pb2.BoardPercentiles(num_samples=count, p50_ms=p50, p90_ms=p90, p99_ms=p99)


def _since(arrival_ms: int, wall_ms: float) -> int:
    """Milliseconds; clocks of two machines may disagree by some."""
    return max(int(wall_ms) - arrival_ms, 0)
