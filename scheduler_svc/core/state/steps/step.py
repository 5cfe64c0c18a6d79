"""A step as the scheduler sees it: what it decided, what it remembers of it, what the worker reported."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, NO_BLOCKS, Blocks, Hashes
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.fence import Fence
from signalbox.protocol.block_groups import SPINE

Slots = NDArray[np.int64]
NO_SLOTS: Slots = np.empty(0, np.int64)
OrdersT = TypeVar("OrdersT")


class Chunk(NamedTuple):
    """A prefill chunk: positions `[start, start + length)` of the request in `slot`."""

    slot: int
    start: int
    length: int
    is_final: bool
    """It ends at the prefill target and samples one token; that of a pooling request, reported as 0 tokens, ends it."""


class CheckpointOrder(NamedTuple):
    """A recurrent state that is to be kept."""

    slot: int
    checkpoint: int
    position: int
    """Behind so many tokens, the last of which a chunk of the step computes; 0: behind the last boundary that the slot
    has passed."""


class Start(NamedTuple):
    """A slot that runs for the first time, or again after a preemption, with its whole block table."""

    blocks: Blocks
    chunk: Chunk
    windows: tuple[tuple[int, Blocks], ...] = ()
    """Its table in each group but the spine: index of the first block, and the blocks."""
    checkpoint: int = -1
    """The checkpoint of the recurrent state that it goes on from; -1: there is none."""


@dataclass
class StepDecision:
    """What changes with a step. Everything not named goes on as it was."""

    step_id: int
    placed: list[Request] = field(default_factory=list)
    """Requests that become this worker's with the step; their payload travels ahead of it."""
    prepared: list[Request] = field(default_factory=list)
    """Requests placed with an earlier step that start with this one: their grammar is ready."""
    started: list[Start] = field(default_factory=list)
    resumed: list[Start] = field(default_factory=list)
    grant_slots: Slots = field(default_factory=lambda: NO_SLOTS)
    """One row per block granted."""
    grant_blocks: Blocks = field(default_factory=lambda: NO_BLOCKS)
    grant_groups: NDArray[np.uint8] | None = None
    """The group that each is of; None: all are of the spine."""
    chunks: list[Chunk] = field(default_factory=list)
    """Chunks of prefills that go on."""
    finished_slots: list[int] = field(default_factory=list)
    preempted_slots: list[int] = field(default_factory=list)
    paused_slots: list[int] = field(default_factory=list)
    unpaused_slots: list[int] = field(default_factory=list)
    draft_limits: list[tuple[int, int]] = field(default_factory=list)
    """Limits that slots ask for: (slot, drafts that it wants to be allowed)."""
    copies: list[BlockCopy] = field(default_factory=list)
    """In order, ahead of the step's work, and of the states that it keeps."""
    checkpoints: list[CheckpointOrder] = field(default_factory=list)
    fence: Fence | None = None
    """Copies that begin behind these and run beside the steps."""
    fetch: Fence | None = None
    """Blocks that a source (a disk, or another worker) brings beside the steps, after the copies."""
    num_decode_rows: int = 0
    num_prefill_tokens: int = 0
    is_solo: bool = False
    """It is a suspect's own."""
    aside_slots: list[int] = field(default_factory=list)
    """Slots that are paused for this step alone: a worker that is left alone behind it lets them go on."""
    may_be_skipped: bool = False
    """It is one of several that were sent at once, and names nobody but those who get blocks (K12)."""
    orders: dict[type[Any], Any] = field(default_factory=dict)
    """Orders of parts, by their type. What a part writes into the fields above is not among them (PT2)."""
    spared_slots: set[int] = field(default_factory=set)
    """Slots that go on with this step by an order of a part, and are not preempted in it."""
    limit_s: float = 0.0
    """How long it may take, and those after it (U7); 0: as long as the step before."""
    passes: bool = False
    """Another lane has rows: it is sent, whatever there is in it, so that their turn comes (LA4)."""

    def grant(self, slots: Slots, blocks: Blocks, group: int = SPINE) -> None:
        """One block of `group` for each of `slots`, which may be one slot several times."""
        if group != SPINE or self.grant_groups is not None:
            before = (
                np.zeros(len(self.grant_slots), np.uint8) if self.grant_groups is None else self.grant_groups
            )
            self.grant_groups = np.concatenate((before, np.full(len(slots), group, np.uint8)))
        if len(self.grant_slots):
            slots = np.concatenate((self.grant_slots, slots))
            blocks = np.concatenate((self.grant_blocks, blocks))
        self.grant_slots, self.grant_blocks = slots, blocks

    def grant_of_all(self, slots: Slots, blocks: list[Blocks]) -> None:
        """One block of each group, the spine's first, for each of `slots`."""
        groups = np.arange(len(blocks), dtype=np.uint8).repeat(len(slots))
        if len(self.grant_slots):
            before = self.grant_groups
            if before is None:
                before = np.zeros(len(self.grant_slots), np.uint8)
            groups = np.concatenate((before, groups))
        self.grant_groups = groups
        self.grant_slots = np.concatenate((self.grant_slots, *[slots] * len(blocks)))
        self.grant_blocks = np.concatenate((self.grant_blocks, *blocks))

    def ungrant(self, slot: int) -> None:
        """What `slot` was granted in this step has gone."""
        if not len(self.grant_slots):
            return
        keep = self.grant_slots != slot
        self.grant_slots, self.grant_blocks = self.grant_slots[keep], self.grant_blocks[keep]
        if self.grant_groups is not None:
            self.grant_groups = self.grant_groups[keep]

    def order(self, kind: type[OrdersT]) -> OrdersT:
        """The orders of that type, which a part adds to."""
        orders: OrdersT | None = self.orders.get(kind)
        if orders is None:
            orders = self.orders[kind] = kind()
        return orders

    def ordered(self, kind: type[OrdersT]) -> OrdersT | None:
        """The orders of that type; None: there are none."""
        orders: OrdersT | None = self.orders.get(kind)
        return orders

    @property
    def names_slots(self) -> bool:
        """The delta names a slot, or has orders of a part, or what runs beside the steps; grants, and copies within the
        step, apart."""
        return bool(
            self.started
            or self.resumed
            or self.chunks
            or self.finished_slots
            or self.preempted_slots
            or self.paused_slots
            or self.unpaused_slots
            or self.draft_limits
            or self.checkpoints
            or self.placed
            or self.orders
            or self.fence is not None
            or self.fetch is not None
        )

    @property
    def only_decodes(self) -> bool:
        """It names only slots that get blocks, and copies nothing."""
        has_rows = self.num_decode_rows > 0 or self.passes
        return has_rows and not (self.copies or self.is_solo or self.names_slots)

    @property
    def is_empty(self) -> bool:
        """Nothing runs and nothing changes."""
        if self.num_decode_rows or self.passes or len(self.grant_slots):
            return False
        return not self.names_slots


@dataclass
class StepRecord:
    """What the scheduler keeps of a step in flight, to read its report against."""

    step_id: int
    advance: NDArray[np.int32]
    """Most new tokens per slot: 1 + drafts for its decode rows, 0 elsewhere. Shared with the table until that
    changes."""
    decode_slots: Slots
    num_decode_rows: int
    has_drafts: bool
    chunks: list[Chunk]
    num_prefill_tokens: int
    released_slots: list[int]
    """Slots that the delta released: free for others once the report is back."""
    is_ahead: bool = False
    """Sent while an earlier step was in flight, and not behind others of a burst: how long it waits says something."""
    may_be_skipped: bool = False
    """The worker need not run it if the start of something arrives behind it (K12)."""
    limit_s: float = math.inf
    """How long it may take before it counts as hung (U6)."""
    is_solo: bool = False
    """It is a suspect's own: nothing else runs in it, and no other step is in flight beside it."""
    copies: list[BlockCopy] = field(default_factory=list)
    """The block copies of the decision."""
    checkpoints: list[CheckpointOrder] = field(default_factory=list)
    """Recurrent states that it is to keep."""
    read_checkpoints: list[int] = field(default_factory=list)
    """Checkpoints that slots go on from in it."""


class MaskWork(NamedTuple):
    """What the automaton of a request has worked since its slot was named last."""

    request: Request
    work_us: int


@dataclass
class StepReport:
    """A worker's account of one step, in counts. Columns of one group have the same length."""

    step_id: int
    num_decode_rows: int
    num_prefill_tokens: int
    exception_slots: Slots = field(default_factory=lambda: NO_SLOTS)
    exception_counts: NDArray[np.int64] = field(default_factory=lambda: NO_SLOTS)
    decode_counts: NDArray[np.uint8] | None = None
    """One per decode row in order of slots, instead of exceptions for decode rows."""
    not_run: list[tuple[int, int]] = field(default_factory=list)
    """Rows that the worker did not run: (slot, NotRunReason)."""
    finished: list[tuple[int, int, int]] = field(default_factory=list)
    """Requests that the worker ended: (slot, FinishReason, final count of output tokens)."""
    sealed_slots: Slots = field(default_factory=lambda: NO_SLOTS)
    sealed_indexes: NDArray[np.int64] = field(default_factory=lambda: NO_SLOTS)
    sealed_hashes: Hashes = field(default_factory=lambda: np.empty(0, HASH_DTYPE))
    draft_limits: list[tuple[int, int]] = field(default_factory=list)
    """(slot, drafts that it wants to be allowed)"""
    withdrawn: list[int] = field(default_factory=list)
    """Slots that failed because their numbers were not finite."""
    checkpoint_positions: list[int] = field(default_factory=list)
    """Positions of the states that were kept, one for each order of the step; 0: there is none."""
    mask_us: list[tuple[int, int]] = field(default_factory=list)
    """Work of automata since it was reported last: (slot, microseconds)."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    execute_us: int = 0
    duration_us: int = 0
    """Microseconds of all of the step on the worker, queueing apart."""
    queued_us: int = 0
