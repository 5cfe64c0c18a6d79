"""The blocks of a group of layers that look back so far and no farther: which of them each slot has.

A slot's table in such a group has the indexes of its table in the spine, and only a stretch of it, `[first, end)`:
what lies ahead was released when no step in flight could read it any more, by confirmed counts, and what lies behind
comes with the chunk, or the row, that writes it (GR, WB).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.blocks.block_pool import Blocks, Hashes
from scheduler_svc.core.state.blocks.pieces import TABLE_COST, Pieces
from scheduler_svc.core.state.blocks.tier import Found, Tier
from scheduler_svc.core.state.blocks.window_pool import WindowPool
from scheduler_svc.core.state.slots.columns import SlotColumns, cells
from scheduler_svc.core.state.steps.step import Slots
from signalbox.protocol.block_groups import BlockGroup

Generations = NDArray[np.uint32]
NO_GENERATION = np.iinfo(np.uint32).max
"""Generation of a place in a table that holds no block of it: no block comes so far."""


class WindowBlocks:
    """The pool of one group, and the tables of all slots in it."""

    def __init__(
        self, number: int, group: BlockGroup, num_slots: int, max_blocks: int, block_size: int
    ) -> None:
        self.number, self.group, self.block_size = number, group, block_size
        self.pool = WindowPool(group.num_blocks)
        self.blocks = np.zeros((num_slots, max_blocks), np.int32)
        self.generations = np.full((num_slots, max_blocks), NO_GENERATION, np.uint32)
        self.firsts = np.zeros(num_slots, np.int64)
        self.ends = np.zeros(num_slots, np.int64)
        self.branches = np.zeros((num_slots, 2), np.int64)
        """Indexes at which others may go on from a slot's prompt: where the spine's blocks ended and the group's did
        not reach, and where the prompt ends."""

    def first_block(self, position: int) -> int:
        """Index of the first block that a query at `position`, or behind it, looks into."""
        return int(self.group.first_seen(position)) // self.block_size

    def table(self, slot: int) -> Blocks:
        """The blocks of `slot`, in order; the first has the index `firsts[slot]`."""
        held: Blocks = self.blocks[slot, self.firsts[slot] : self.ends[slot]]
        return held

    def num_lacking(self, slot: int, end: int) -> int:
        """Blocks that `slot` lacks for the positions up to `end`."""
        return max(-(-end // self.block_size) - int(self.ends[slot]), 0)

    def room(self, slot: int, num_available: int) -> int:
        """Positions that `slot` could have blocks for, at most, if it got so many more."""
        return (int(self.ends[slot]) + num_available) * self.block_size

    def _firsts_seen(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """As `first_block`, of each of `positions`."""
        blocks: NDArray[np.int64] = self.group.first_seen(positions) // self.block_size
        return blocks

    def find(self, hashes: Hashes) -> Blocks:
        """The block with each of these contents; -1: there is none."""
        return self.pool.find(hashes)

    # -- changes --

    def start(self, slot: int, num_found: int, hits: Blocks, branches: tuple[int, int]) -> None:
        """A slot without blocks begins behind `num_found` blocks, the last of which are `hits`, which it holds already.
        Others may go on at `branches`."""
        self.branches[slot] = branches
        first = num_found - len(hits)
        self.generations[slot] = NO_GENERATION
        self.blocks[slot, first:num_found] = hits
        self.generations[slot, first:num_found] = self.pool.generations[hits]
        self.firsts[slot], self.ends[slot] = first, num_found

    def extend(self, slot: int, count: int) -> Blocks:
        """Gives `slot` so many more blocks, which the pool has."""
        blocks = self.pool.take(count)
        end = int(self.ends[slot])
        self.blocks[slot, end : end + count] = blocks
        self.generations[slot, end : end + count] = self.pool.generations[blocks]
        self.ends[slot] = end + count
        return blocks

    def append(self, slots: Slots, recycled: Blocks | None = None) -> Blocks:
        """Gives each of `slots` one more block: the one that was recycled for it, or one that the pool has."""
        blocks = self.pool.take(len(slots)) if recycled is None else self.pool.renew(recycled)
        ends = self.ends[slots]
        self.blocks[slots, ends] = blocks
        self.generations[slots, ends] = self.pool.generations[blocks]
        self.ends[slots] = ends + 1
        return blocks

    def recycle(self, slots: Slots, positions: NDArray[np.int64]) -> Blocks | None:
        """What `leave_behind` would release, where that is one block of each of `slots`, which nobody else has and
        nobody can hit: taken out of their tables, and still held, for `append` to give them again, or for the pool to
        release. None: it is something else, and has been released."""
        firsts, behind = self.firsts[slots], self.group.first_seen(positions) // self.block_size
        if not np.count_nonzero(behind - firsts - 1):
            blocks: Blocks = self.blocks[slots, firsts]
            if self.pool.are_private(blocks):
                self.firsts[slots] = behind
                return blocks
        self._leave(slots, firsts, np.minimum(behind, self.ends[slots]) - firsts)
        return None

    def leave_behind(self, slots: Slots, positions: NDArray[np.int64]) -> None:
        """Releases what no query at `positions`, one of each of `slots`, or behind them, looks into. Their content can
        still be hit."""
        firsts = self.firsts[slots]
        self._leave(slots, firsts, np.minimum(self._firsts_seen(positions), self.ends[slots]) - firsts)

    def _leave(self, slots: Slots, firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Releases the first `counts` blocks of `slots`, at `firsts`, of those where that is more than none."""
        passing = counts > 0
        num_passing = np.count_nonzero(passing)
        if not num_passing:
            return
        if num_passing < len(slots):
            slots, firsts, counts = slots[passing], firsts[passing], counts[passing]
        self.firsts[slots] = firsts + counts
        rows, indexes = slots, firsts
        if counts.max() > 1:
            rows, offsets = cells(slots, counts)
            indexes = np.repeat(firsts, counts) + offsets
        blocks = self.blocks[rows, indexes]
        is_wanted = self._are_wanted(rows, indexes)
        if np.count_nonzero(
            self.pool.ref_counts[blocks] > 1
        ):  # what several slots share, each of them leaves
            for block, wanted in zip(blocks, is_wanted, strict=True):
                self.pool.leave(np.array([block]), np.array([wanted]))
        else:
            self.pool.leave(blocks, is_wanted)

    def _are_wanted(self, slots: Slots, indexes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the blocks, one of each of `slots`, are looked at from a branch of the slot's."""
        branches = self.branches[slots]
        if not np.count_nonzero(indexes[:, None] < branches):
            return np.zeros(len(slots), np.bool_)
        firsts: NDArray[np.int64] = self.group.first_seen(branches * self.block_size) // self.block_size
        looked_at = (indexes[:, None] >= firsts) & (indexes[:, None] < branches)
        return np.asarray(looked_at.any(axis=1))

    def drop(self, slot: int) -> None:
        """Releases all that `slot` has."""
        self.pool.release(self.table(slot))
        self.firsts[slot] = self.ends[slot] = 0

    def adopt(self, slot: int, first: int, blocks: Blocks) -> None:
        """The table that a worker says `slot` has. The pool has been told that they are held."""
        self.recall(slot, first, blocks)
        self.firsts[slot], self.ends[slot] = first, first + len(blocks)

    def recall(self, slot: int, first: int, blocks: Blocks) -> None:
        """The table that a slot had when its request ended."""
        self.generations[slot] = NO_GENERATION
        self.blocks[slot, first : first + len(blocks)] = blocks
        self.generations[slot, first : first + len(blocks)] = self.pool.generations[blocks]

    def still_theirs(self, slots: Slots, indexes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each block has not been allocated again since the slot's table got it."""
        same: NDArray[np.bool_] = (
            self.pool.generations[self.blocks[slots, indexes]] == self.generations[slots, indexes]
        )
        return same

    # -- checks --

    def check_blocks(self, slots: list[int], pinned: Sequence[Blocks], pieces: Pieces) -> Iterator[None]:
        """Asserts the invariants, piece by piece; `slots` are those that have blocks, `pinned` are held because a disk
        is to have them."""
        yield from self.pool.check_pieces([*(self.table(slot) for slot in slots), *pinned], pieces)
        for slot in slots:
            if pieces.is_full(TABLE_COST):
                yield
            held = self.generations[slot, self.firsts[slot] : self.ends[slot]]
            assert np.array_equal(self.pool.generations[self.table(slot)], held), (
                f"a held block of group {self.number} was given to another"
            )
        others = np.ones(len(self.ends), np.bool_)
        others[slots] = False
        assert not (self.ends[others] - self.firsts[others]).any(), "a slot without blocks has some"

    def check_slots(
        self,
        columns: SlotColumns,
        running: list[int],
        decoding: list[int],
        importing: list[int],
        pinned: Sequence[Blocks],
        pieces: Pieces,
    ) -> Iterator[None]:
        """Asserts, piece by piece, that each slot that runs has what its queries write and look at; `decoding` are rows
        among them. Those that are `importing` have blocks, too; `pinned`: see `check_blocks`."""
        yield from self.check_blocks([*running, *importing], pinned, pieces)
        for slot in running:
            if pieces.is_full(TABLE_COST):
                yield
            assert self.ends[slot] * self.block_size >= columns.num_sent[slot], (
                f"group {self.number}: a chunk lacks a block"
            )
            first = self.first_block(int(columns.confirmed(np.array([slot]))[0]))
            assert self.firsts[slot] <= first, f"group {self.number}: released too early"
        for slot in decoding:
            assert self.ends[slot] == columns.num_blocks[slot], f"group {self.number}: a row lacks a block"


def longest_hit(windows: list[WindowBlocks], hashes: Hashes) -> tuple[int, tuple[Blocks, ...]]:
    """How many of `hashes`, which the spine has all of, can be gone on from in every group: what the next query looks
    back at is on the device. And the blocks of each group with that."""
    found = [window.find(hashes) for window in windows]
    length = longest_without(windows, [blocks < 0 for blocks in found])
    return length, tuple(
        blocks[window.first_block(length * window.block_size) : length]
        for window, blocks in zip(windows, found, strict=True)
    )


def longest_in(
    windows: list[WindowBlocks], tiers: list[Tier], hashes: Hashes
) -> tuple[int, tuple[Found, ...]]:
    """As `longest_hit`, with what is in the host tier, too: `tiers` are those of the groups."""
    found = [tier.find(hashes) for tier in tiers]
    length = longest_without(windows, [(each.blocks < 0) & (each.host_blocks < 0) for each in found])
    spans = [slice(window.first_block(length * window.block_size), length) for window in windows]
    return length, tuple(
        Found(each.blocks[span], each.host_blocks[span]) for each, span in zip(found, spans, strict=True)
    )


def longest_without(windows: list[WindowBlocks], missing: list[NDArray[np.bool_]]) -> int:
    """The last index at which no group misses a block of those that a query there looks back at."""
    most = len(missing[0])
    good = np.ones(most + 1, np.bool_)
    ends = np.arange(most + 1)
    for window, is_missing in zip(windows, missing, strict=True):
        behind_missing = np.zeros(most + 1, np.int64)
        behind_missing[1:] = np.maximum.accumulate(np.where(is_missing, ends[:-1], -1)) + 1
        firsts = window.group.first_seen(ends * window.block_size) // window.block_size
        good &= behind_missing <= firsts
    return int(np.flatnonzero(good)[-1])
