"""Takes over a worker's table from its snapshot: the one way back after any broken link."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.block_pool import HASH_DTYPE
from scheduler_svc.core.request import Request, RequestStatus
from scheduler_svc.core.request_table import HELD, SlotState
from scheduler_svc.core.worker import Worker


class SlotStatus(IntEnum):
    """What a slot does, in the worker's words; numbers as in scheduler.proto."""

    PREPARING = 1
    PREFILL = 2
    DECODE = 3
    PREEMPTED = 4
    ENDED = 5


@dataclass(frozen=True)
class SlotSnapshot:
    """One slot as the worker holds it."""

    slot: int
    request: Request
    """Rebuilt from the metadata that the worker echoes."""
    status: SlotStatus
    blocks: NDArray[np.int32]
    sealed_hashes: bytes
    num_computed_tokens: int
    num_output_tokens: int
    prefill_target: int
    max_draft_tokens: int = 0
    paused: bool = False


@dataclass(frozen=True)
class WorkerSnapshot:
    """All slots of a worker, with no step in flight."""

    scheduler_epoch: int
    last_step_id: int
    slots: list[SlotSnapshot]


def adopt_slot(worker: Worker, snapshot: SlotSnapshot, request: Request) -> None:
    """Puts a request that goes on into the worker's new table, as the snapshot says it stands."""
    table, slot = worker.table, snapshot.slot
    _occupy(worker, snapshot, request)
    if snapshot.status in (SlotStatus.PREPARING, SlotStatus.PREEMPTED):
        request.status, request.preempted_at = RequestStatus.PREEMPTED, 0
        worker.preempted.append(slot)
        worker.preempted.sort(key=lambda other: worker.request(other).order)
        return
    request.status = RequestStatus.RUNNING
    worker.pool.claim(snapshot.blocks)
    table.set_blocks(slot, snapshot.blocks, worker.pool.generations[snapshot.blocks])
    table.num_computed[slot] = table.num_sent[slot] = min(
        snapshot.num_computed_tokens, snapshot.prefill_target
    )
    table.target[slot] = snapshot.prefill_target
    table.bound[slot] = table.num_prompt[slot] + table.num_output[slot]
    worker.num_running += 1
    if snapshot.status == SlotStatus.PREFILL:
        table.state[slot] = SlotState.PREFILL
        worker.insert_prefilling(slot)
        written = snapshot.num_computed_tokens
    else:
        table.state[slot] = SlotState.DECODE
        written = int(table.bound[slot]) - 1
        # Whoever had paused it: held, it goes on as soon as it can.
        table.paused[slot] = HELD if snapshot.paused else 0
        if snapshot.paused:
            worker.held.append(slot)
        table.set_row(slot, not snapshot.paused)
    if request.client_paused:
        worker.toggled.append(slot)
    count = min(written // table.block_size, int(table.num_hashes[slot]))
    worker.pool.publish(snapshot.blocks[:count], table.hashes(slot, 0, count))


def discard_slot(worker: Worker, snapshot: SlotSnapshot, request: Request) -> None:
    """Lets the worker forget a slot that has ended, was cancelled or is another attempt's by now."""
    _occupy(worker, snapshot, request)
    worker.table.state[snapshot.slot] = SlotState.RELEASING
    worker.releasing.append(snapshot.slot)


def _occupy(worker: Worker, snapshot: SlotSnapshot, request: Request) -> None:
    table, slot = worker.table, snapshot.slot
    limit = min(request.num_prompt_tokens + request.max_tokens, worker.limits.max_model_len)
    table.adopt(slot, request, limit, min(snapshot.max_draft_tokens, worker.limits.num_draft_tokens))
    table.num_output[slot] = snapshot.num_output_tokens
    request.worker_id = worker.info.worker_id
    if snapshot.sealed_hashes:
        sealed = np.frombuffer(snapshot.sealed_hashes, HASH_DTYPE)
        first = int(table.num_hashes[slot])
        indexes = np.arange(first, first + len(sealed))
        table.add_hashes(np.full(len(sealed), slot), indexes, sealed)
        table.num_hashes[slot] = first + len(sealed)
