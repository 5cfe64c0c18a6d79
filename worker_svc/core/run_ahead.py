"""When a step may be launched before the tokens of the one before it are on the host. Pure functions of columns.

The rule of the design: a request that has ended may be overrun by one step; such a row writes only inside its granted
blocks, and is never sealed, counted or sent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.parts.lanes import LaneOrders
from worker_svc.core.batch import Batch
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.requests.sampling import NO_LOGPROBS, SamplingTable
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import StepDelta

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


def needs_host(sampling: SamplingTable, slots: I32 | I64) -> Mask:
    """[N] true where a token follows from its history or its grammar too, or where more than the token is wanted."""
    from_host = sampling.adjusts[slots] | sampling.follows_form[slots]
    return np.asarray(from_host | (sampling.num_logprobs[slots] != NO_LOGPROBS))


def samples_on_device(batch: Batch) -> Mask:
    """[N] true where the token follows from logits, parameters and a random number alone, and only it is wanted."""
    plain = ~needs_host(batch.sampling, batch.slots[batch.sample_rows])
    return np.asarray(plain if batch.masks is None else plain & (batch.mask_index < 0))


def one_sample_per_row(batch: Batch) -> bool:
    """True if no row has drafts, whose fate the host decides."""
    return len(np.unique(batch.sample_rows)) == len(batch.sample_rows)


def is_plain(batch: Batch) -> bool:
    """True if the device alone can run the whole batch, from tokens to tokens."""
    reads_prompt = bool(batch.scored or batch.pooled)
    return not reads_prompt and one_sample_per_row(batch) and bool(samples_on_device(batch).all())


def may_launch(step: RunningStep) -> bool:
    """True if the step may be left on its way while the next one is prepared."""
    return bool(len(step.batch.slots)) and not is_run_in_turn(step) and is_plain(step.batch)


def is_run_in_turn(step: RunningStep) -> bool:
    """A step that copies blocks is run in its turn, since a copy that fails concerns all rows; so is one that tells of
    requests that ended before it."""
    is_beside = step.side_copies is not None or bool(step.begins)
    return bool(step.copies or is_beside or step.refused or step.failed or step.state_copies)


def needs_commit(table: RequestTable, delta: StepDelta, settling: list[int]) -> bool:
    """Whether the steps in flight have to be committed before `delta`, orders of parts apart, can be applied.
    `settling`: slots that decode from this step on."""
    if _copies(delta) or _takes_from_flight(table, delta):
        return True
    starting = [start.slot for start in (*delta.resumed, *delta.started)]
    may_run = table.runs & ~table.paused
    may_run[[*settling, *delta.unpaused_slots, *starting, *(slot for slot, _, _ in delta.chunks)]] = True
    rows = np.flatnonzero(may_run & (table.status != SlotStatus.ENDED))
    return bool((needs_host(table.sampling, rows) | table.reads_prompt[rows]).any())


def needs_commit_of_lane(table: RequestTable, delta: StepDelta, settling: list[int]) -> bool:
    """As `needs_commit`, where steps are turns of lanes (LA2): what a row needs of the host is there once its last step
    has been committed, whatever that is. A chunk may follow another that is on its way, unless the prompt is read: what
    is read is kept beside the slot, which is not to be forgotten meanwhile either."""
    if _copies(delta) or _takes_from_flight(table, delta):
        return True
    may_run, lane = table.runs.copy(), table.lane.copy()
    may_run[settling] = True
    may_run &= ~table.paused
    may_run[delta.unpaused_slots], may_run[delta.paused_slots] = True, False
    changes = delta.ordered(LaneOrders)
    for slot, number in changes.changes if changes is not None else ():
        lane[slot] = number
    may_run &= (lane == delta.step_id % table.num_lanes) & (table.status != SlotStatus.ENDED)
    named = [*(slot for slot, _, _ in delta.chunks), *delta.finished_slots]
    may_run[[slot for slot in named if table.reads_prompt[slot]]] = True
    return bool((table.num_in_flight[may_run] > 0).any())


def _copies(delta: StepDelta) -> bool:
    return bool(delta.copies or delta.side_copies is not None or delta.checkpoints)


def _takes_from_flight(table: RequestTable, delta: StepDelta) -> bool:
    """It takes a request's blocks whose tokens are still being made."""
    taken = np.array(delta.preempted_slots, np.int64)
    return bool((table.num_in_flight[taken[table.status[taken] != SlotStatus.ENDED]] > 0).any())


def certainly_ended(positions: I32, limit: I32) -> Mask:
    """[R] true where the query token, at its position, is the last that the request can have: it takes no part."""
    return np.asarray(positions + 1 >= limit)


def is_granted(positions: I32, num_blocks: I32, block_size: int) -> Mask:
    """[R] true where the position that a row writes lies in its `num_blocks` granted blocks."""
    return np.asarray(positions < num_blocks * block_size)
