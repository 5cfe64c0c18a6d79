"""The columns of a step's message that tell of blocks: grants, starts, copies. ValueError where they do not fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol import columns
from signalbox.protocol.arrays import read_arrays, unpack_blocks
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.columns import HOST_BIT
from signalbox.v1 import to_worker_pb2
from worker_svc.core.batch import BlockCopy
from worker_svc.core.step import SideCopies, SlotStart

Slots = NDArray[np.int64]
I32 = NDArray[np.int32]
NO_SLOTS: Slots = np.empty(0, np.int64)


def parse_grants(
    cached: to_worker_pb2.CachedRequestData,
) -> tuple[tuple[Slots, Slots], list[tuple[int, Slots, NDArray[np.int32]]]]:
    """Slots and blocks of the spine, and of each other group that is named."""
    if not (cached.new_block_slots or cached.new_block_ids or cached.new_block_groups):
        return (NO_SLOTS, NO_SLOTS), []
    slots, blocks = read_arrays(cached, columns.GRANTS)
    groups = np.frombuffer(cached.new_block_groups, np.uint8)
    if len(slots) != len(blocks):
        raise ValueError("new_block_slots and new_block_ids differ in length")
    if not len(groups):
        return (slots, blocks), []
    if len(groups) != len(slots):
        raise ValueError("new_block_slots and new_block_groups differ in length")
    numbers = [number for number in np.unique(groups).tolist() if number != SPINE]
    others = [(n, slots[groups == n], blocks[groups == n].astype(np.int32)) for n in numbers]
    return (slots[groups == SPINE], blocks[groups == SPINE]), others


def parse_side_copies(message: to_worker_pb2.SchedulerOutput) -> SideCopies | None:
    """Copies beside the steps; None: there are none."""
    if not message.HasField("side_copies"):
        return None
    return SideCopies(message.side_copies.fence, parse_copies(message.side_copies))


def parse_copies(message: to_worker_pb2.BlockCopies) -> list[BlockCopy]:
    """Copies, in order."""
    pairs, groups = columns.COPIES.read(message), columns.unpack(message.groups, columns.U8)
    if groups and len(groups) != len(pairs):
        raise ValueError("source_block_ids and groups of copies differ in length")
    return [
        BlockCopy(
            source & ~HOST_BIT, bool(source & HOST_BIT), target & ~HOST_BIT, bool(target & HOST_BIT), group
        )
        for (source, target), group in zip(pairs, groups or [SPINE] * len(pairs), strict=True)
    ]


def parse_starts(message: to_worker_pb2.ScheduledNewReqs) -> list[SlotStart]:
    """Slots that run for the first time, or again."""
    rows = columns.STARTS.read(message)
    tables, groups = _parse_tables(message, [row[1] for row in rows])
    if not rows:
        return []
    checkpoints = columns.unpack(message.from_checkpoints, columns.U32) or [0] * len(rows)
    if len(checkpoints) != len(rows):
        raise ValueError(f"from_checkpoints are {len(checkpoints)}, and {len(rows)} slots start")
    return [
        SlotStart(slot, table, start, length, tuple(group[row] for group in groups), checkpoints[row] - 1)
        for row, ((slot, _, start, length), table) in enumerate(zip(rows, tables, strict=True))
    ]


def _parse_group(message: to_worker_pb2.GroupStarts, num_slots: int) -> list[tuple[int, NDArray[np.int32]]]:
    """The table of each slot in one group."""
    rows, blocks = columns.GROUP_STARTS.read(message), unpack_blocks(message.block_ids)
    counts = [count for _, count in rows]
    if len(rows) != num_slots or sum(counts) != len(blocks):
        raise ValueError(
            f"a group has {len(rows)} slots of {num_slots}, {sum(counts)} blocks of {len(blocks)}"
        )
    tables = np.split(blocks, np.cumsum(counts)[:-1])
    return [(first, table) for (first, _), table in zip(rows, tables, strict=True)]


def _parse_tables(
    message: to_worker_pb2.ScheduledNewReqs, counts: list[int]
) -> tuple[list[I32], list[list[tuple[int, I32]]]]:
    """Block tables of slots with so many blocks of the spine each: those, and of each other group one per slot."""
    blocks = unpack_blocks(message.block_ids)
    if sum(counts) != len(blocks):
        raise ValueError(f"block_counts say {sum(counts)} blocks, and there are {len(blocks)}")
    groups = [_parse_group(group, len(counts)) for group in message.groups] if counts else []
    return np.split(blocks, np.cumsum(counts)[:-1]), groups
