"""What no scheduler of ours sends: steps and requests that do not fit the worker (docs/design.md, K10).

Whoever stands where the scheduler should be may send anything. A number that is no slot or block of ours would end the
process, or write into somebody else's cache; so all that indexes anything is looked at first, and the link is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError

from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.v1 import scheduler_pb2
from worker_svc.core.batch import BlockCopy, RunnerInfo
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.step import SlotStart, StepDelta

MOST_DRAFTS = 255
"""Draft tokens per step that the columns of steps can name."""
STARTABLE = (SlotStatus.PREPARING, SlotStatus.PREEMPTED)


@dataclass(frozen=True)
class Bounds:
    """How far the numbers of a step can go."""

    num_slots: int
    num_blocks: int
    num_host_blocks: int
    most_tokens: int
    """Prefill tokens that the runner takes in a step."""

    @classmethod
    def of(cls, info: RunnerInfo, num_slots: int, most_tokens: int) -> Bounds:
        """The bounds of a runner with so many slots."""
        return cls(num_slots, info.num_blocks, info.num_host_blocks, most_tokens)


def misfit_of(delta: StepDelta, bounds: Bounds) -> str | None:
    """Why a step can fit no worker of these bounds; None: it can. What the worker holds is not asked."""
    starts = (*delta.started, *delta.resumed)
    runs = [start.slot for start in starts] + [slot for slot, _, _ in delta.chunks]
    lengths = [start.length for start in starts] + [length for _, _, length in delta.chunks]
    slots = [*delta.finished_slots, *delta.preempted_slots, *delta.paused_slots, *delta.unpaused_slots]
    slots += [*delta.aside_slots, *runs, *(slot for slot, _ in delta.draft_limits)]
    largest = max(max(slots, default=0), int(delta.grant_slots.max(initial=0)))
    if largest >= bounds.num_slots:
        return f"it names slot {largest}, and there are {bounds.num_slots}"
    if len(set(runs)) != len(runs):
        return "it runs a slot twice"
    if min(lengths, default=1) < 1:
        return "a chunk of it is empty"
    if sum(lengths) > bounds.most_tokens:
        return f"its chunks have {sum(lengths)} tokens; {bounds.most_tokens} are taken at most"
    named = [delta.grant_blocks, *(start.blocks for start in starts)]
    if any(blocks.min(initial=0) < 0 or blocks.max(initial=0) >= bounds.num_blocks for blocks in named):
        return f"it names a block that is none of {bounds.num_blocks}"
    copies = [*delta.copies, *(delta.side_copies.copies if delta.side_copies is not None else [])]
    return _copies_misfit(copies, bounds)


def _copies_misfit(copies: list[BlockCopy], bounds: Bounds) -> str | None:
    for copy in copies:
        for block, is_host in ((copy.source, copy.source_is_host), (copy.target, copy.target_is_host)):
            count = bounds.num_host_blocks if is_host else bounds.num_blocks
            if block >= count:
                return f"it copies block {block}{' of the host tier' * is_host}, and there are {count}"
    return None


def misfit_with(delta: StepDelta, table: RequestTable) -> str | None:
    """Why a step that could fit does not fit what the worker holds; None: it does."""
    starts = (*delta.started, *delta.resumed)
    freed = set(delta.finished_slots)
    named = [*delta.preempted_slots, *delta.grant_slots.tolist(), *(start.slot for start in starts)]
    for slot in named:
        if table.status[slot] == SlotStatus.FREE or slot in freed:
            return f"it moves slot {slot}, which holds no request"
    num_blocks = table.num_blocks.copy() if len(delta.grant_slots) else table.num_blocks
    if len(delta.grant_slots):
        np.add.at(num_blocks, delta.grant_slots, 1)
        if (num_blocks[delta.grant_slots] > table.blocks.shape[1]).any():
            return f"it gives a slot more than {table.blocks.shape[1]} blocks"
    for start in starts:
        misfit = _start_misfit(start, table)
        if misfit is not None:
            return misfit
    for slot, begin, length in delta.chunks:
        room = min(int(num_blocks[slot]) * table.block_size, int(table.prefill_target[slot]))
        if table.status[slot] == SlotStatus.PREFILL and begin + length > room:
            return f"a chunk of slot {slot} ends at {begin + length}, and there is room up to {room}"
    return _writers_misfit(delta, table)


def _writers_misfit(delta: StepDelta, table: RequestTable) -> str | None:
    """C1: a block that is written has one holder, but for what the delta itself frees."""
    size = table.block_size
    written = [delta.grant_blocks]
    written += [start.blocks[-(-start.start // size) :] for start in (*delta.started, *delta.resumed)]
    written.append(np.array([copy.target for copy in delta.copies if not copy.target_is_host], np.int32))
    blocks = np.concatenate(written)
    held = blocks[table.holders[blocks] > 0]
    if not len(held):
        return None
    freed = {*delta.finished_slots, *delta.preempted_slots}
    counts = table.holders[held].copy()
    for slot in freed:
        counts -= np.isin(held, table.blocks[slot, : table.num_blocks[slot]])
    if (counts > 0).any():
        return f"block {int(held[counts > 0][0])} is to be written, and another request holds it"
    return None


def _start_misfit(start: SlotStart, table: RequestTable) -> str | None:
    slot, end, size = start.slot, start.start + start.length, table.block_size
    if len(start.blocks) > table.blocks.shape[1]:
        return f"it gives slot {slot} more than {table.blocks.shape[1]} blocks"
    if table.status[slot] in STARTABLE:
        room = min(len(start.blocks) * size, int(table.num_tokens[slot]))
        if end > room:
            return f"slot {slot} starts with a chunk up to {end}, and there is room up to {room}"
        if len(np.unique(start.blocks)) != len(start.blocks):
            return f"slot {slot} starts with a block twice"
    elif table.status[slot] != SlotStatus.ENDED:
        return f"it starts slot {slot}, which runs"
    return None


def misfit_of_request(message: scheduler_pb2.NewRequestData, table: RequestTable) -> str | None:
    """Why a request cannot move in as no scheduler would have it; None: it can. What is wrong with its payload is the
    client's concern, and ends the request alone."""
    slot = message.slot
    if slot >= table.num_slots:
        return f"a request is to move into slot {slot}, and there are {table.num_slots}"
    if table.status[slot] not in (SlotStatus.FREE, SlotStatus.ENDED):
        return f"a request is to move into slot {slot}, where another one lives"
    if len(message.chain_hash) not in (0, HASH_BYTES):
        return f"a request has a hash of {len(message.chain_hash)} bytes"
    if message.max_draft_tokens > MOST_DRAFTS:
        return f"a request may have {message.max_draft_tokens} drafts; {MOST_DRAFTS} are the most"
    try:
        scheduler_pb2.RequestMeta.FromString(message.scheduler_meta)
    except DecodeError:
        return "what the scheduler is to know of a request cannot be read"
    return None
