"""What no scheduler of ours sends: steps and requests that do not fit the worker (docs/design.md, K10).

Whoever stands where the scheduler should be may send anything. A number that is no slot or block of ours would end the
process, or write into somebody else's cache; so all that indexes anything is looked at first, and the link is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.protocol.parts.blocks import PartBounds
from signalbox.protocol.parts.codecs import validate_orders
from signalbox.v1 import from_frontend_pb2, to_worker_pb2
from worker_svc.core.batch import BlockCopy, RunnerInfo
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.core.step import SlotStart, StepDelta

MOST_DRAFTS = 255
"""Draft tokens per step that the columns of steps can name."""
STARTABLE = (SlotStatus.PREPARING, SlotStatus.PREEMPTED, SlotStatus.IMPORTED)
"""What a slot can be that starts; one that is taken over, once it is committed."""
STILL = (SlotStatus.IMPORTING, SlotStatus.IMPORTED, SlotStatus.FROZEN)
"""What a slot is on its way from one worker to another."""


@dataclass(frozen=True)
class Bounds:
    """How far the numbers of a step can go."""

    num_slots: int
    num_blocks: int
    num_host_blocks: int
    most_tokens: int
    """Prefill tokens that the runner takes in a step."""
    groups: tuple[int, ...] = ()
    """Blocks of each group but the spine."""
    num_checkpoints: int = 0
    host_groups: tuple[int, ...] = ()
    """Blocks of each group but the spine in the host tier."""
    num_host_checkpoints: int = 0
    num_lanes: int = 1

    @classmethod
    def of(cls, info: RunnerInfo, num_slots: int, most_tokens: int) -> Bounds:
        """The bounds of a runner with so many slots."""
        groups = tuple(group.num_blocks for group in info.groups)
        host_groups = tuple(group.num_host_blocks for group in info.groups)
        states = info.state_group
        return cls(
            num_slots,
            info.num_blocks,
            info.num_host_blocks,
            most_tokens,
            groups,
            states.num_checkpoints if states else 0,
            host_groups,
            states.num_host_checkpoints if states else 0,
            info.num_lanes,
        )

    @property
    def of_parts(self) -> PartBounds:
        """The bounds of orders of parts."""
        return PartBounds(self.num_slots, (self.num_blocks, *self.groups), self.num_lanes)

    def copied(self, group: int) -> tuple[int, int] | None:
        """Blocks of a group that copies can name, on the device and in the host tier; None: there is no such group."""
        devices = (self.num_blocks, *self.groups, self.num_checkpoints)
        hosts = (self.num_host_blocks, *self.host_groups, self.num_host_checkpoints)
        return (devices[group], hosts[group]) if group < len(devices) else None


def misfit_of(delta: StepDelta, bounds: Bounds) -> str | None:
    """Why a step can fit no worker of these bounds; None: it can. What the worker holds is not asked."""
    starts = (*delta.started, *delta.resumed)
    runs = [start.slot for start in starts] + [slot for slot, _, _ in delta.chunks]
    lengths = [start.length for start in starts] + [length for _, _, length in delta.chunks]
    slots = [*delta.finished_slots, *delta.preempted_slots, *delta.paused_slots, *delta.unpaused_slots]
    slots += [*delta.aside_slots, *runs, *(slot for slot, _ in delta.draft_limits)]
    slots += [order.slot for order in delta.checkpoints]
    granted = [delta.grant_slots, *(granted for _, granted, _ in delta.group_grants)]
    largest = max(max(slots, default=0), *(int(named.max(initial=0)) for named in granted))
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
    misfit = _groups_misfit(delta, starts, bounds) or _checkpoints_misfit(delta, starts, bounds)
    misfit = misfit or _copies_misfit(delta.all_copies, bounds)
    return misfit or (validate_orders(delta.orders, bounds.of_parts) if delta.orders else None)


def _groups_misfit(delta: StepDelta, starts: Sequence[SlotStart], bounds: Bounds) -> str | None:
    """Why what it says of the groups but the spine can fit no worker of these bounds."""
    num_groups = len(bounds.groups)
    if any(number > num_groups for number, _, _ in delta.group_grants):
        return f"it names a group of blocks, and there are {num_groups} beside the first"
    if any(len(start.groups) != num_groups for start in starts):
        return f"it starts a slot without its blocks in {num_groups} groups, or with others"
    for number, size in enumerate(bounds.groups, SPINE + 1):
        named = [delta.grants_of(number)[1], *(start.blocks_of(number) for start in starts)]
        if any(blocks.min(initial=0) < 0 or blocks.max(initial=0) >= size for blocks in named):
            return f"it names a block of group {number} that is none of {size}"
    return None


def _checkpoints_misfit(delta: StepDelta, starts: Sequence[SlotStart], bounds: Bounds) -> str | None:
    """Why what it says of checkpoints can fit no worker of these bounds: each is written once, or read."""
    written = [order.checkpoint for order in delta.checkpoints]
    read = [start.checkpoint for start in starts if start.checkpoint != NOTHING]
    states = SPINE + 1 + len(bounds.groups)
    brought = [copy.target for copy in delta.copies if copy.group == states and not copy.target_is_host]
    if max([*written, *read], default=-1) >= bounds.num_checkpoints:
        return f"it names a checkpoint that is none of {bounds.num_checkpoints}"
    if len(set(written)) != len(written) or not set(written).isdisjoint((*read, *brought)):
        return "it writes a checkpoint twice, or one that a slot is to go on from"
    return None


def _copies_misfit(copies: list[BlockCopy], bounds: Bounds) -> str | None:
    for copy in copies:
        counts = bounds.copied(copy.group)
        if counts is None:
            return f"it copies a block of group {copy.group}, and there is none"
        for block, is_host in ((copy.source, copy.source_is_host), (copy.target, copy.target_is_host)):
            if block >= counts[is_host]:
                place = f"{' of the host tier' * is_host}{f' of group {copy.group}' * (copy.group != SPINE)}"
                return f"it copies block {block}{place}, and there are {counts[is_host]}"
    return None


def misfit_with(delta: StepDelta, table: RequestTable) -> str | None:
    """Why a step that could fit does not fit what the worker holds; None: it does."""
    starts = (*delta.started, *delta.resumed)
    freed = set(delta.finished_slots)
    named = [*delta.preempted_slots, *delta.grant_slots.tolist(), *(start.slot for start in starts)]
    named += [slot for _, slots, _ in delta.group_grants for slot in slots.tolist()]
    for slot in named:
        if table.status[slot] == SlotStatus.FREE or slot in freed:
            return f"it moves slot {slot}, which holds no request"
    num_blocks = table.num_blocks.copy()
    for coming in delta.given_tables:
        num_blocks[coming.slot] = len(coming.blocks)
    if len(delta.grant_slots):
        np.add.at(num_blocks, delta.grant_slots, 1)
        if (num_blocks[delta.grant_slots] > table.blocks.shape[1]).any():
            return f"it gives a slot more than {table.blocks.shape[1]} blocks"
    for number, group in enumerate(table.groups, SPINE + 1):
        ends = group.ends.copy()
        for coming in delta.given_tables:
            ends[coming.slot] = coming.groups[number - 1][0] + len(coming.blocks_of(number))
        np.add.at(ends, delta.grants_of(number)[0], 1)
        if (ends > table.blocks.shape[1]).any():
            return f"it gives a slot more than {table.blocks.shape[1]} blocks"
        num_blocks = np.minimum(num_blocks, ends)
    for start in starts:
        misfit = _start_misfit(start, table, is_preempted=start.slot in delta.preempted_slots)
        if misfit is not None:
            return misfit
    for slot, begin, length in delta.chunks:
        room = min(int(num_blocks[slot]) * table.block_size, int(table.prefill_target[slot]))
        may_run = table.status[slot] == SlotStatus.PREFILL or slot in delta.going_on
        if may_run and begin + length > room:
            return f"a chunk of slot {slot} ends at {begin + length}, and there is room up to {room}"
    return _still_misfit(delta, table) or _writers_misfit(delta, table)


def _still_misfit(delta: StepDelta, table: RequestTable) -> str | None:
    """Nobody runs, or loses blocks, on its way from one worker to another, unless orders of a part let it go on."""
    for slot in (*delta.preempted_slots, *(start.slot for start in (*delta.resumed, *delta.started))):
        if table.status[slot] in STILL and slot not in delta.going_on:
            return f"it moves slot {slot}, which is on its way to another worker, or from one"
    return None


def _writers_misfit(delta: StepDelta, table: RequestTable) -> str | None:
    """C1: a block that is written has one holder, but for what the delta itself frees."""
    size, starts = table.block_size, (*delta.started, *delta.resumed)
    written = [delta.grant_blocks]
    written += [start.blocks[-(-start.start // size) :] for start in starts]
    written.append(_copied_to(delta, SPINE))
    freed = {*delta.finished_slots, *delta.preempted_slots}
    tables = [table.blocks[slot, : table.num_blocks[slot]] for slot in freed]
    block = _written_of_another(np.concatenate(written), table.holders, tables)
    for number, group in enumerate(table.groups, SPINE + 1):
        if block is not None:
            break
        written = [delta.grants_of(number)[1], _copied_to(delta, number)]
        for start in starts:
            first, blocks = start.groups[number - 1]
            written.append(blocks[-(-start.start // size) - first :])
        blocks = np.concatenate(written)
        if group.holders[blocks].any():  # of a slot perhaps that has gone on since
            table.leave_behind()
        block = _written_of_another(blocks, group.holders, [group.table(slot) for slot in freed])
    return None if block is None else f"block {block} is to be written, and another request holds it"


def _copied_to(delta: StepDelta, group: int) -> NDArray[np.int32]:
    """Blocks of a group on the device that the step's copies write, and those that parts write beside the steps."""
    targets = [copy.target for copy in delta.copies if copy.group == group and not copy.target_is_host]
    targets += delta.brought_to(group)
    return np.array(targets, np.int32)


def _written_of_another(
    blocks: NDArray[np.int32], holders: NDArray[np.int32], freed: Sequence[NDArray[np.int32]]
) -> int | None:
    """One of `blocks` that a table other than the `freed` has; None: there is none."""
    held = blocks[holders[blocks] > 0]
    if not len(held):
        return None
    counts = holders[held].copy()
    for table in freed:
        counts -= np.isin(held, table)
    return int(held[counts > 0][0]) if (counts > 0).any() else None


def _start_misfit(start: SlotStart, table: RequestTable, *, is_preempted: bool) -> str | None:
    """`is_preempted`: by the same delta, ahead of the start (K3)."""
    slot, end, size = start.slot, start.start + start.length, table.block_size
    if len(start.blocks) > table.blocks.shape[1]:
        return f"it gives slot {slot} more than {table.blocks.shape[1]} blocks"
    # A frozen one may go on with the same delta, ahead of its start; `_still_misfit` asks whether it does.
    is_still = table.status[slot] == SlotStatus.FROZEN and not table.num_blocks[slot]
    may_start = table.status[slot] in STARTABLE or is_still
    if may_start or (is_preempted and table.status[slot] != SlotStatus.ENDED):
        room = min(len(start.blocks) * size, int(table.num_tokens[slot]))
        if end > room:
            return f"slot {slot} starts with a chunk up to {end}, and there is room up to {room}"
        if len(np.unique(start.blocks)) != len(start.blocks):
            return f"slot {slot} starts with a block twice"
        return _group_start_misfit(start, table)
    if table.status[slot] != SlotStatus.ENDED:
        return f"it starts slot {slot}, which runs"
    return None


def _group_start_misfit(start: SlotStart, table: RequestTable) -> str | None:
    slot, end, size = start.slot, start.start + start.length, table.block_size
    for group, (first, blocks) in zip(table.groups, start.groups, strict=True):
        last = first + len(blocks)
        if (
            first * size > group.group.first_seen(start.start)
            or last * size < end
            or last > table.blocks.shape[1]
        ):
            return (
                f"slot {slot} starts at {start.start} with blocks {first} to {last} of a group, up to {end}"
            )
        if len(np.unique(blocks)) != len(blocks):
            return f"slot {slot} starts with a block twice"
    return None


def misfit_of_request(message: to_worker_pb2.NewRequestData, table: RequestTable) -> str | None:
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
        from_frontend_pb2.RequestMeta.FromString(message.scheduler_meta)
    except DecodeError:
        return "what the scheduler is to know of a request cannot be read"
    return None
