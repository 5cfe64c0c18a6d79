"""Checkpoints of recurrent states: which a worker has, which are to be made, and who may wait for one (CK).

A model with recurrent layers goes on from a prefix where its blocks are there and the state behind them, too. A
checkpoint is that state, at a boundary; it is named by the hash of the last block ahead of it, as the block is. The
worker keeps the running state of a request; the scheduler says where a copy of it will be worth its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import Blocks, Hashes
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.blocks.tier import Found, Tier
from scheduler_svc.core.state.blocks.window_pool import WindowPool
from scheduler_svc.core.state.steps.step import CheckpointOrder, Chunk
from signalbox.protocol.block_groups import StateGroup
from signalbox.protocol.columns import HOST_BIT

NO_CHECKPOINT = -1


class Kind(IntEnum):
    """Where a checkpoint was made."""

    PARTING = 0
    """Where prompts part: it is worth the most, and outlives others."""
    PROMPT = 1
    """At the end of a prompt: callers that leave out what was reasoned go on from there."""
    END = 2
    """Where a request ended, or lost its blocks: callers that send the whole conversation go on from there."""


class Holding(NamedTuple):
    """A checkpoint that a slot has made, or gone on from: no other one's while its generation is the same."""

    checkpoint: int
    generation: int


@dataclass
class CheckpointCounts:
    """What became of checkpoints, since the worker attached."""

    num_made: int = 0
    """Kept, so that somebody could go on from them."""
    num_used: int = 0
    """Starts that went on from one, after a preemption too."""
    num_evicted: int = 0
    """Lost their place to another."""


class Checkpoints:
    """The pool of one worker's checkpoints, and what is to be kept of each slot."""

    def __init__(self, group: StateGroup, num_slots: int, block_size: int) -> None:
        self.group, self.block_size = group, block_size
        self.stride = group.boundary // block_size
        """Blocks from one boundary to the next."""
        self.pool = WindowPool(group.num_checkpoints)
        self.wanted: dict[int, dict[int, bool]] = {}
        """By slot that prefills: positions at which its state is to be kept, and whether others will go on from there;
        no chunk up to there has been sent."""
        self.ordered: dict[int, set[int]] = {}
        """By slot: positions for which an order has been sent, and not been reported."""
        self.is_kept = np.zeros(num_slots, np.bool_)
        """Somebody could go on from the slot's state."""
        self.kept = np.zeros(num_slots, np.int64)
        """Position of the last checkpoint that the slot has made, or has gone on from."""
        self._last: dict[int, Holding] = {}
        """By slot: that checkpoint, but for those where prompts part."""
        self.origins: dict[int, Holding] = {}
        """By slot: the checkpoint that it has gone on from."""
        self._kinds = np.zeros(group.num_checkpoints, np.uint8)
        self._saved_kinds = np.zeros(group.num_host_checkpoints, np.uint8)
        """Where each checkpoint of the host tier was made."""
        self.leaving: list[int] = []
        """Slots that have ended, or were preempted, whose last boundary is to be kept with the delta that says so."""
        self.making: dict[int, Chunk] = {}
        """By slot: its chunk of the step that is being made."""
        self.counts = CheckpointCounts()
        self.on_change: Callable[[], None] = lambda: None
        """Called when a slot has a chunk, or leaves a state: the step that is made, or the next one, has orders."""

    # -- what there is --

    def longest(self, hashes: Hashes) -> tuple[int, int]:
        """How many of the blocks with these contents, which are there, can be gone on from, and with which
        checkpoint."""
        at_boundaries = hashes[self.stride - 1 :: self.stride]
        checkpoints = self.pool.find(at_boundaries)
        found = np.flatnonzero(checkpoints >= 0)
        if not len(found):
            return 0, NO_CHECKPOINT
        last = int(found[-1])
        return (last + 1) * self.stride, int(checkpoints[last])

    def longest_in(self, tier: Tier, hashes: Hashes) -> tuple[int, Found | None]:
        """As `longest`, with what is in the host tier, too, as far as a checkpoint is to be had for it."""
        at_boundaries = hashes[self.stride - 1 :: self.stride]
        found = tier.find(at_boundaries)
        is_there = found.blocks >= 0
        if self.pool.num_available:
            is_there |= found.host_blocks >= 0
        places = np.flatnonzero(is_there)
        if not len(places):
            return 0, None
        last = int(places[-1])
        return (last + 1) * self.stride, Found(found.blocks[[last]], found.host_blocks[[last]])

    def is_coming(self, slot: int, position: int) -> bool:
        """The state of `slot` behind so many tokens will be reported, unless something happens to it."""
        return position in self.wanted.get(slot, ()) or position in self.ordered.get(slot, ())

    def can_keep(self, slot: int, position: int, num_sent: int) -> bool:
        """The state of `slot` behind so many tokens can be kept yet: it has not been sent for them."""
        chunk = self.making.get(slot)
        return bool(self.is_kept[slot]) and position > (chunk.start if chunk is not None else num_sent)

    def last_coming(self, slot: int, position: int) -> int:
        """The last position up to this one at which a state of `slot` is coming; 0: none is."""
        coming = (*self.wanted.get(slot, ()), *self.ordered.get(slot, ()))
        return max((each for each in coming if each <= position), default=0)

    def rounded(self, start: int, length: int, target: int) -> int:
        """Length of a chunk of at most `length` that ends at a boundary or at the target, if one does: a prompt's
        states do not depend on how it was cut then (SG6)."""
        end = start + length
        if end >= target:
            return length
        boundary = self.group.last_boundary(end)
        return boundary - start if boundary > start else length

    # -- a slot runs --

    def start(self, slot: int, position: int, checkpoint: int, *, is_kept: bool) -> None:
        """Starts a slot that has no blocks: at its first token, or from a checkpoint that it holds, at `position`."""
        self.forget_slot(slot)
        self.is_kept[slot], self.kept[slot] = is_kept, position
        if checkpoint == NO_CHECKPOINT:
            return
        self.counts.num_used += 1
        self.origins[slot] = self._last[slot] = self._holding(checkpoint)

    def want(self, slot: int, position: int, *, is_shared: bool) -> None:
        """The state of `slot` behind so many tokens, which no chunk has been sent for, is to be kept."""
        if position > self.kept[slot] and self.is_kept[slot]:
            wanted = self.wanted.setdefault(slot, {})
            wanted[position] = wanted.get(position, False) or is_shared

    def want_ends(self, slot: int, num_known: int, num_spine_blocks: int) -> None:
        """Others may go on from where the prompt of `num_known` tokens ends, and from where the spine's blocks ended
        without a state: there prompts part."""
        self.want(slot, self.group.last_boundary(num_known - 1), is_shared=False)
        self.want(slot, self.group.last_boundary(num_spine_blocks * self.block_size), is_shared=True)

    def adopt(self, slot: int, num_computed: int, target: int, *, is_kept: bool) -> None:
        """A slot runs on a worker that was taken over: where its last checkpoint is, nobody knows."""
        self.start(slot, 0, NO_CHECKPOINT, is_kept=is_kept)
        end = self.group.last_boundary(target - 1)
        if end > num_computed:
            self.want(slot, end, is_shared=False)

    def go_on(self, slot: int, num_computed: int, target: int, *, is_kept: bool) -> None:
        """A slot goes on behind so many tokens from the state that came with it from another worker: of those before
        that, this one has no state."""
        self.adopt(slot, num_computed, target, is_kept=is_kept)
        self.kept[slot] = num_computed

    def keep_from(self, old: Checkpoints) -> None:
        """The process has its checkpoints yet, and `old.pool` says that nobody holds one. What was being written has no
        name, and nobody will say one."""
        self.pool, self._kinds, self._saved_kinds = old.pool, old._kinds, old._saved_kinds

    def follow(self, copies: list[BlockCopy]) -> None:
        """Checkpoints are copied to the host tier, or back: where they were made stays known."""
        for source, target, _ in copies:
            if target & HOST_BIT:
                self._saved_kinds[target & ~HOST_BIT] = self._kinds[source]
            else:
                self._kinds[target] = self._saved_kinds[source & ~HOST_BIT]

    def orders_for(self, chunk: Chunk) -> list[CheckpointOrder]:
        """The orders that go with a chunk of the step that is being made."""
        self.making[chunk.slot] = chunk
        self.on_change()
        slot, wanted = chunk.slot, self.wanted.get(chunk.slot, {})
        orders = []
        for position in sorted(wanted):
            if position <= chunk.start + chunk.length:
                is_shared = wanted.pop(position)
                if position > chunk.start:
                    orders += self.order(slot, position, is_shared=is_shared)
        return orders

    def order(self, slot: int, position: int, *, is_shared: bool = False) -> list[CheckpointOrder]:
        """An order for the state of `slot` behind so many tokens, or 0: behind its last boundary. None where all
        checkpoints are being written or read, or that one is coming already."""
        if position in self.ordered.get(slot, ()) or not self.pool.num_available:
            return []
        self.counts.num_evicted += not self.pool.num_free
        checkpoint = int(self.pool.take(1)[0])
        self._kinds[checkpoint] = Kind.PARTING if is_shared else Kind.PROMPT if position else Kind.END
        self.ordered.setdefault(slot, set()).add(position)
        return [CheckpointOrder(slot, checkpoint, position)]

    def leave(self, slot: int, confirmed: int) -> None:
        """A slot that has computed `confirmed` tokens at least ends, or is preempted: somebody may go on from its last
        boundary, as a conversation does."""
        self.wanted.pop(slot, None)
        if self.is_kept[slot] and self.group.last_boundary(confirmed) > self.kept[slot]:
            self.leaving.append(slot)
            self.on_change()

    def end_step(self) -> None:
        """A step has been made: the next one has no chunk yet."""
        self.making = {}

    def name_leaving(self) -> list[CheckpointOrder]:
        """The orders for the slots that have ended since the last delta, or are preempted with this one. Behind all
        that starts in it: what is found for a start is not to be given away before it has it."""
        if not self.leaving:
            return []
        leaving, self.leaving = self.leaving, []
        return [order for slot in leaving for order in self.order(slot, 0)]

    def forget_slot(self, slot: int) -> None:
        """The slot is another's, or its request starts anew. What was ordered is reported all the same."""
        self.wanted.pop(slot, None)
        self._last.pop(slot, None)
        self.origins.pop(slot, None)
        self.is_kept[slot], self.kept[slot] = False, 0

    # -- what a report says --

    def release(self, checkpoint: int) -> None:
        """A slot has gone on from a checkpoint: it is nobody's."""
        self.pool.release(np.array([checkpoint], np.int32))

    def take_report(self, order: CheckpointOrder, position: int, name: Hashes | None) -> None:
        """The worker has kept what was ordered, at `position`; 0: it has not. `name`: what it is to be found by; None:
        it is not to be found."""
        slot, checkpoint = order.slot, order.checkpoint
        self.ordered[slot].discard(order.position)
        if not self.ordered[slot]:
            del self.ordered[slot]
        block = np.array([checkpoint], np.int32)
        if position and name is not None:
            self.pool.publish(block, name)
        self.pool.release(block)
        if self.pool.has_content[checkpoint]:
            self.counts.num_made += 1
            self._follow(slot, checkpoint, position)

    def _follow(self, slot: int, checkpoint: int, position: int) -> None:
        """The slot has a new checkpoint. Of its own, one is kept as long as others: the last, or the prompt's where
        those of prompts alone are kept."""
        if position <= self.kept[slot]:
            return
        self.kept[slot] = position
        kind = self._kinds[checkpoint]
        if kind == Kind.PARTING:
            return
        before, self._last[slot] = self._last.get(slot), self._holding(checkpoint)
        to_prompts = self.group.prompts_only
        if kind == Kind.PROMPT and not to_prompts:
            self.pool.demote(checkpoint)
        if before is None or not self._is_valid(before) or self._kinds[before.checkpoint] == Kind.PARTING:
            return
        is_of_prompt = self._kinds[before.checkpoint] == Kind.PROMPT
        self.pool.demote(
            checkpoint if to_prompts and is_of_prompt and kind == Kind.END else before.checkpoint
        )

    def _holding(self, checkpoint: int) -> Holding:
        return Holding(checkpoint, int(self.pool.generations[checkpoint]))

    def _is_valid(self, holding: Holding) -> bool:
        return int(self.pool.generations[holding.checkpoint]) == holding.generation

    def origin_of(self, slot: int) -> int:
        """The checkpoint that `slot` has gone on from, if that has not been given to another state since."""
        origin = self.origins.get(slot)
        return origin.checkpoint if origin is not None and self._is_valid(origin) else NO_CHECKPOINT

    # -- checks --

    def check_integrity(self, written: list[int], read: list[int]) -> None:
        """Asserts the invariants; `written` and `read` are the checkpoints that steps in flight write, and go on
        from."""
        tables: list[Blocks] = [np.array([each], np.int32) for each in (*written, *read)]
        self.pool.check_integrity(tables)
        assert len(set(written)) == len(written), "a checkpoint is written twice"
        assert not self.pool.has_content[written].any(), "a checkpoint can be hit that is being written"
        num_ordered = sum(len(positions) for positions in self.ordered.values())
        assert num_ordered == len(written), "orders are miscounted"
