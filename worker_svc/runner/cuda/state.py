"""Last token, next position and block table of every slot, on the device; the host sends only what differs.

The host knows what the device holds, but for tokens sampled there that have not been copied back yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

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
    block_tables: I32
    """[R, W] block ids of each row."""
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
    """[C] places in the flattened block tables that get a new block id."""
    blocks: I32


class StateMirror:
    """The host's copy of `DecodeState`."""

    def __init__(self, num_slots: int, max_blocks: int, scratch_block: int) -> None:
        self.tokens = np.zeros(num_slots + 1, np.int32)
        self.is_known = np.ones(num_slots + 1, np.bool_)
        """False where a token was sampled that the host has not seen."""
        self.positions = np.zeros(num_slots + 1, np.int32)
        self.block_tables = np.full((num_slots + 1, max_blocks), scratch_block, np.int32)

    def update_for(self, rows: DecodeRows, block_size: int) -> StateUpdate:
        """What makes the device ready to run `rows`; taken for sent.

        ValueError if a token is nowhere, or if a row would write behind its block table.
        """
        slots, ahead = rows.slots, rows.in_flight
        outside = rows.positions >= rows.block_tables.shape[1] * block_size
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
        cells, blocks = self._update_tables(rows, block_size)
        return StateUpdate(
            slots[sent].astype(np.int64),
            rows.tokens[sent].astype(np.int64),
            rows.positions[sent],
            cells,
            blocks,
        )

    def _update_tables(self, rows: DecodeRows, block_size: int) -> tuple[I64, I32]:
        """Entries behind the block of the query token are arbitrary, and stay as they are."""
        width = rows.block_tables.shape[1]
        needed = np.arange(width) <= (rows.positions // block_size)[:, None]
        changed = needed & (self.block_tables[rows.slots, :width] != rows.block_tables)
        row, column = np.nonzero(changed)
        slots, blocks = rows.slots[row], rows.block_tables[row, column]
        self.block_tables[slots, column] = blocks
        return slots.astype(np.int64) * self.block_tables.shape[1] + column, blocks

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
        self.block_tables[:-1] = -1


class DecodeState:
    """The columns on the device. The last row is that of rows that fill up a bucket: it writes to a scratch block."""

    def __init__(self, num_slots: int, max_blocks: int, scratch_block: int, device: torch.device) -> None:
        self.num_slots, self.device = num_slots, device
        self.tokens = torch.zeros(num_slots + 1, dtype=torch.int64, device=device)
        self.positions = torch.zeros(num_slots + 1, dtype=torch.int32, device=device)
        self.block_tables = torch.full(
            (num_slots + 1, max_blocks), scratch_block, dtype=torch.int32, device=device
        )

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
