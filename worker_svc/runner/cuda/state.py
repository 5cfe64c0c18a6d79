"""Last token, next position and block table of every slot, on the device; the host sends only what differs.

The host knows what the device holds, but for tokens sampled there that have not been copied back yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE, BlockGroup
from worker_svc.runner.cuda.transfers import upload

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class DecodeRows:
    """Decode rows of one token each, as a step has them; R rows."""

    slots: I32
    """[R] slot of each row."""
    tokens: I32
    """[R] query tokens; meaningless where `in_flight`."""
    positions: I32
    """[R] of the query tokens."""
    block_tables: list[I32]
    """[R, W] block ids of each row, in the spine and each other group."""
    in_flight: NDArray[np.bool_]
    """[R] the query token is one that a step launched before has sampled, and only the device knows it."""


@dataclass(frozen=True)
class StateUpdate:
    """What the device has to be told, as columns."""

    slots: I64
    """[U] slots that get a new token and position."""
    tokens: I64
    positions: I32
    cells: I64
    """[C] places in the flattened block tables of all groups that get a new block id."""
    blocks: I32


def filled_tables(scratch_blocks: tuple[int, ...], num_slots: int, max_blocks: int) -> I32:
    """[G, num_slots + 1, max_blocks] tables of each group that are full of its scratch block."""
    shape = (len(scratch_blocks), num_slots + 1, max_blocks)
    return np.array(np.broadcast_to(np.array(scratch_blocks, np.int32)[:, None, None], shape))


class StateMirror:
    """The host's copy of `DecodeState`."""

    def __init__(
        self, num_slots: int, max_blocks: int, scratch_block: int, groups: tuple[BlockGroup, ...] = ()
    ) -> None:
        """scratch_block: of the spine, behind the blocks that rows have; so are those of the other `groups`."""
        self._groups = groups
        self.scratch_blocks = (scratch_block, *(group.num_blocks for group in groups))
        """[G] of the spine and each other group."""
        self.tokens = np.zeros(num_slots + 1, np.int32)
        self.is_known = np.ones(num_slots + 1, np.bool_)
        """False where a token was sampled that the host has not seen."""
        self.positions = np.zeros(num_slots + 1, np.int32)
        self.block_tables = filled_tables(self.scratch_blocks, num_slots, max_blocks)
        """[G, num_slots + 1, max_blocks]"""

    def update_for(self, rows: DecodeRows, block_size: int) -> StateUpdate:
        """What makes the device ready to run `rows`; taken for sent.

        ValueError if a token is nowhere, or if a row would write behind its block table.
        """
        slots, ahead = rows.slots, rows.in_flight
        outside = rows.positions >= rows.block_tables[SPINE].shape[1] * block_size
        if outside.any():
            raise ValueError(f"slot {slots[outside][0]}: position {rows.positions[outside][0]} has no block")
        same_position = self.positions[slots] == rows.positions
        lost = ahead & (self.is_known[slots] | ~same_position)
        if lost.any():
            raise ValueError(
                f"slot {slots[lost][0]}: no step in flight samples its token {rows.positions[lost][0]}"
            )
        same = same_position & self.is_known[slots] & (self.tokens[slots] == rows.tokens)
        sent = np.flatnonzero(~(same | ahead))
        self.tokens[slots[sent]], self.positions[slots[sent]] = rows.tokens[sent], rows.positions[sent]
        self.is_known[slots[sent]] = True
        cells, blocks = zip(
            *(self._update_table(group, rows, block_size) for group in range(len(self.scratch_blocks))),
            strict=True,
        )
        return StateUpdate(
            slots[sent].astype(np.int64),
            rows.tokens[sent].astype(np.int64),
            rows.positions[sent],
            np.concatenate(cells),
            np.concatenate(blocks),
        )

    def _update_table(self, group: int, rows: DecodeRows, block_size: int) -> tuple[I64, I32]:
        """Entries behind the block of the query token, and ahead of what it looks at, are arbitrary and stay as they
        are."""
        told, held = rows.block_tables[group], self.block_tables[group]
        width = told.shape[1]
        needed = np.arange(width) <= (rows.positions // block_size)[:, None]
        if group != SPINE:
            first = self._groups[group - 1].first_seen(rows.positions) // block_size
            needed &= np.arange(width) >= first[:, None]
        row, column = np.nonzero(needed & (held[rows.slots, :width] != told))
        slots, blocks = rows.slots[row], told[row, column]
        held[slots, column] = blocks
        return (group * len(held) + slots.astype(np.int64)) * held.shape[1] + column, blocks

    def launched(self, slots: I32, positions: I32) -> None:
        """A step that samples a token for `slots` is on its way; that token's position is `positions`."""
        self.is_known[slots] = False
        self.positions[slots] = positions

    def collected(self, slots: I32, positions: I32, tokens: I32) -> None:
        """The tokens of such a step have come; no news of slots that a later step, or a new request, has moved on."""
        current = ~self.is_known[slots] & (self.positions[slots] == positions)
        self.tokens[slots[current]] = tokens[current]
        self.is_known[slots[current]] = True

    def forget(self) -> None:
        """Something failed on the way: everything is sent again."""
        self.is_known[:] = True
        self.positions[:] = 0
        self.tokens[:] = -1
        self.block_tables[:, :-1] = -1


class DecodeState:
    """The columns on the device. The last row is that of rows that fill up a bucket: it writes to scratch blocks."""

    def __init__(
        self, num_slots: int, max_blocks: int, scratch_blocks: tuple[int, ...], device: torch.device
    ) -> None:
        """scratch_blocks: `[G]` of the spine and each other group."""
        self.num_slots, self.device = num_slots, device
        self.tokens = torch.zeros(num_slots + 1, dtype=torch.int64, device=device)
        self.positions = torch.zeros(num_slots + 1, dtype=torch.int32, device=device)
        tables = filled_tables(scratch_blocks, num_slots, max_blocks)
        self.block_tables = torch.from_numpy(tables).to(device)
        """[G, num_slots + 1, max_blocks]"""

    def apply(self, update: StateUpdate) -> None:
        """Takes an update, on the current stream."""
        if len(update.slots):
            slots, tokens, positions = upload([update.slots, update.tokens, update.positions], self.device)
            self.tokens[slots] = tokens
            self.positions[slots] = positions
        if len(update.cells):
            cells, blocks = upload([update.cells, update.blocks], self.device)
            self.block_tables.view(-1)[cells] = blocks

    def take(self, slots: torch.Tensor, positions: torch.Tensor, tokens: torch.Tensor) -> None:
        """Keeps the `tokens` sampled for `slots` `[N]`, whose `positions` they get; nothing of it is copied back."""
        self.tokens[slots] = tokens
        self.positions[slots] = positions.to(torch.int32)
