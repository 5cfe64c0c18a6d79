"""One worker as the scheduler sees it: its limits, its table, its blocks, its steps in flight."""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.admission.recent_classes import RecentClasses
from scheduler_svc.core.blocks.block_pool import BlockPool, Blocks
from scheduler_svc.core.blocks.fence import Fence
from scheduler_svc.core.blocks.host_cache import HOST_BIT, HostCache
from scheduler_svc.core.blocks.loans import Loan
from scheduler_svc.core.cluster.worker_info import WorkerInfo
from scheduler_svc.core.cluster.worker_stats import WorkerStats
from scheduler_svc.core.config import WorkerLimits
from scheduler_svc.core.liveness.evidence import Process
from scheduler_svc.core.liveness.vitals import Health, Vitals
from scheduler_svc.core.request import Request, RequestStatus
from scheduler_svc.core.slots.request_table import (
    DISPLACED,
    HELD,
    NEVER,
    NO_PLACE,
    RESTING,
    SUSPENDED,
    RequestTable,
    SlotState,
    rest_of,
)
from scheduler_svc.core.step.pacing import Pacer
from scheduler_svc.core.step.step import Slots, StepDecision, StepRecord

ENDED = (SlotState.FREE, SlotState.RELEASING)


@dataclass
class Worker:
    """State of one worker. Its methods, and the functions of `pauses` and `grants`, keep table, pool and lists in step
    with each other; what to do is decided in `step_builder` and `report_reader`."""

    info: WorkerInfo
    limits: WorkerLimits
    table: RequestTable = field(init=False)
    pool: BlockPool = field(init=False)
    host: HostCache = field(init=False)
    records: deque[StepRecord] = field(default_factory=deque)
    """Steps in flight, oldest first."""
    fences: dict[int, Fence] = field(default_factory=dict)
    """Groups of copies that run beside the steps, by their number."""
    next_step_id: int = 1
    last_reported: int = 0
    prefilling: list[int] = field(default_factory=list)
    """Slots with known tokens that have not been sent, in order of arrival."""
    settling: list[int] = field(default_factory=list)
    """Slots whose final chunk was in the last step: decode rows from the next one on."""
    preempted: list[int] = field(default_factory=list)
    """Slots whose blocks were taken."""
    prepared: list[int] = field(default_factory=list)
    """Slots whose grammar is ready and that have not started."""
    displaced: list[int] = field(default_factory=list)
    """Slots that were paused for somebody of a higher class, or that rest."""
    held: list[int] = field(default_factory=list)
    """Decode slots that wait for a block."""
    refused: list[int] = field(default_factory=list)
    """Slots with a row that the worker did not run: their counts are uncertain until they are preempted."""
    releasing: list[int] = field(default_factory=list)
    """Slots that the next delta names as finished."""
    reset_at: int = 0
    """First step after the last reset of the prefix cache: what started before is never published."""
    toggled: list[int] = field(default_factory=list)
    """Slots that have begun to rest, or have ended it, since the last delta."""
    aside: list[int] = field(default_factory=list)
    """Slots that the last step has paused for a suspect that ran alone in it: the next one lets them go on."""
    is_suspects_turn: bool = True
    """A step of the suspects is next, if one of them can go on."""
    no_suspect_before: int = 0
    """Step before which no suspect could go on when it was last tried."""
    may_suspend: bool = False
    """Safe mode pauses requests here, or did when it was last told."""
    wanted_drafts: dict[int, int] = field(default_factory=dict)
    """Drafts that slots have asked for since the last delta, which allows them."""
    owing_order: tuple[list[int], float, list[int]] = field(default_factory=lambda: ([], 0.0, []))
    """Slots that are owed a place, until when their order holds, and the order."""
    num_running: int = 0
    """Requests that hold blocks: prefilling, decoding, paused."""
    fruitless: int | None = None
    """Version of the waiting requests when, with every place taken, none of them could take one."""
    recent_classes: RecentClasses = field(default_factory=RecentClasses)
    rows_by_account: tuple[Slots, NDArray[np.int64]] | None = None
    """Decode slots, and how many of them each account has; kept while they are the same."""
    pacer: Pacer = field(default_factory=Pacer)
    hold_until: float = 0.0
    """The next step is not to be sent before this time, so that arrivals still make it."""
    draining: bool = False
    """Nothing more is placed here; what runs here goes on."""
    is_arriving: bool = False
    """Its table is being taken over from its snapshot (`Adoption`). It gets no steps, and is not gone."""
    attached: bool = True
    detached_at: float = 0.0
    vitals: Vitals = field(default_factory=Vitals)
    loan: Loan = field(default_factory=Loan)
    stats: WorkerStats = field(default_factory=WorkerStats)

    def __post_init__(self) -> None:
        block_size = self.info.block_size
        # Not by our limits: a request that was placed under other settings may be longer.
        self.table = RequestTable(self.info.num_slots, self.info.max_blocks_per_request, block_size)
        self.pool = BlockPool(self.info.num_blocks)
        self.host = HostCache(self.info.num_host_blocks)
        if self.info.num_host_blocks:
            self.pool.evicted = []

    # -- how it is --

    @property
    def process(self) -> Process:
        """The process that said hello."""
        return Process(self.info.worker_id, self.info.instance)

    @property
    def health(self) -> Health:
        """Whether it gets anything new, and why not."""
        return self.vitals.health if self.attached else Health.AWAY

    @property
    def takes_new(self) -> bool:
        """Requests may be placed here."""
        is_well = self.vitals.health is Health.GOOD and not self.vitals.has_left
        return self.attached and is_well and not self.draining

    def renew_loan(self, now: float) -> Blocks | None:
        """Blocks that the worker is to have for a time without a scheduler; None: it has been lent enough."""
        if self.vitals.has_left:
            return None
        num_output_tokens, block_size = self.stats.num_output_tokens, self.info.block_size
        return self.loan.renew(self.pool, self.num_running, num_output_tokens, block_size, now)

    # -- what there is to do --

    @property
    def has_own_work(self) -> bool:
        """A step would have something in it even if no waiting request is admitted."""
        return bool(
            self.table.decode_tokens
            or self.settling
            or self.releasing
            or self.prefilling
            or self.refused
            or self.toggled
            or self.held
            or any(self.is_resumable(slot) for slot in (*self.preempted, *self.prepared, *self.displaced))
        )

    @property
    def num_preparing(self) -> int:
        """Requests that wait for their grammar, those of suspended classes apart."""
        is_preparing = self.table.state == SlotState.PREPARING
        if not self.may_suspend:
            return int(np.count_nonzero(is_preparing))
        slots = np.flatnonzero(is_preparing).tolist()
        return sum(not self.request(slot).suspended for slot in slots)

    @property
    def num_suspended(self) -> int:
        """Requests that hold blocks and are paused by safe mode, with the next delta at the latest."""
        told = self.table.paused & SUSPENDED
        changes = (self.request(slot).suspended - bool(told[slot]) for slot in self.toggled)
        return int(np.count_nonzero(told)) + sum(changes)

    @property
    def load(self) -> int:
        """Requests that are placed here and run, or will as soon as they can."""
        return self.num_running - self.num_suspended + self.num_preparing

    @property
    def num_displaced(self) -> int:
        """Requests without a place that want to run."""
        return sum(not self.request(slot).rests for slot in self.displaced)

    @property
    def num_active(self) -> int:
        """Requests that hold blocks and have a place in the batch."""
        return self.num_running - len(self.displaced)

    @property
    def may_prepare(self) -> bool:
        """Another request may wait here for its grammar: they leave half of the slots to the others."""
        return self.num_preparing < max(self.table.num_slots // 2, 1)

    def is_resumable(self, slot: int) -> bool:
        """All steps that ran the slot have reported, so its length is exact; and it does not rest."""
        request = self.request(slot)
        return request.preempted_at <= self.last_reported + 1 and not request.rests

    def request(self, slot: int) -> Request:
        """The request that holds `slot`."""
        request = self.table.requests[slot]
        assert request is not None
        return request

    def requests(self) -> list[Request]:
        """All requests that have not ended."""
        states = self.table.state
        slots = np.flatnonzero((states != SlotState.FREE) & (states != SlotState.RELEASING)).tolist()
        return [self.request(slot) for slot in slots]

    def limit_of(self, request: Request) -> int:
        """Most tokens that prompt and output of `request` can have here together. A pooling request has no output."""
        if request.is_pooling:
            return request.num_prompt_tokens
        return min(request.num_prompt_tokens + request.max_tokens, self.limits.max_model_len)

    def max_known_tokens(self, is_pooling: bool) -> int:
        """Longest prompt, prior output included: it leaves room for an output token, whose KV is not needed. A pooling
        request makes none, but needs the KV of all its tokens."""
        if is_pooling:
            return min(self.limits.max_model_len, self.info.num_blocks * self.info.block_size)
        return self.limits.max_model_len - 1

    def can_run(self, request: Request) -> bool:
        """It is of a kind that is served here, fits when nothing else runs, and its frontend hears the worker."""
        return (
            self.info.serves(request)
            and request.num_known_tokens <= self.max_known_tokens(request.is_pooling)
            and request.key.frontend_instance not in self.vitals.unheard_by
        )

    # -- changes --

    def start(
        self, slot: int, hits: Blocks, host_hits: list[int], num_new: int, step: StepDecision
    ) -> Blocks:
        """Gives a slot without blocks its block table: shared `hits` first, then copies of `host_hits`, `num_new` new
        blocks with these. Returns the table."""
        table, pool = self.table, self.pool
        pool.share(hits)
        fresh = self.take_blocks(num_new, step, frozenset(host_hits))
        blocks = np.concatenate((hits, fresh))
        num_known = len(hits) + len(host_hits)
        table.started_at[slot], table.num_found[slot] = step.step_id, num_known
        table.target[slot] = table.num_prompt[slot] + table.num_output[slot]
        table.num_computed[slot] = table.num_sent[slot] = num_known * table.block_size
        table.set_blocks(slot, blocks, pool.generations[blocks])
        if host_hits:
            copied = fresh[: len(host_hits)]
            step.copies += [
                (source | HOST_BIT, target) for source, target in zip(host_hits, copied.tolist(), strict=True)
            ]
            # The copies come before all work of the step, so whoever starts in it may share these blocks already.
            pool.publish(copied, table.hashes(slot, len(hits), num_known))
        table.state[slot] = SlotState.PREFILL
        table.rank[slot] = table.place_rank[slot] = self.request(slot).rank
        self.request(slot).waits_since = self.request(slot).fence = None
        self.num_running += 1
        if self.request(slot).rests:  # it was paused before it had a slot: from the next step on
            self.toggled.append(slot)
        return blocks

    def prepare(self, slot: int) -> None:
        """The request in `slot` waits for its grammar."""
        self.table.state[slot] = SlotState.PREPARING
        self.request(slot).move(RequestStatus.WAITING_FOR_FSM)

    def grammar_ready(self, slot: int) -> None:
        """The request in `slot` may start. Saying so twice changes nothing."""
        if slot not in self.prepared:
            self.prepared.append(slot)

    def insert_prefilling(self, slot: int) -> None:
        """Puts `slot` among the prefills, by arrival."""
        insort(self.prefilling, slot, key=lambda other: self.request(other).order)

    def settle(self, slot: int) -> None:
        """The final chunk is sent: one token comes from it, and from the next step on the slot is a decode row. A
        pooling request ends with it, so nothing follows."""
        self.table.bound[slot] = self.table.target[slot] + 1
        if not self.request(slot).is_pooling:
            self.settling.append(slot)

    def become_decoding(self, slot: int) -> None:
        """Makes a settled slot a decode row, unless it is paused."""
        self.table.state[slot] = SlotState.DECODE
        self.table.set_row(slot, not self.table.paused[slot])

    def reset_cache(self) -> int:
        """Forgets all cached content, and what steps in flight and running requests would add to it: they read what was
        computed before. Returns the number of blocks that had some."""
        self.reset_at = self.next_step_id
        return self.pool.reset_cache() + self.host.clear()

    def take_blocks(self, count: int, step: StepDecision, pinned: frozenset[int] = frozenset()) -> Blocks:
        """Allocates blocks; what they evict from the device is copied to the host tier before it is overwritten."""
        blocks = self.pool.take(count)
        for block, content in self.pool.take_evicted():
            target = self.host.store(content, pinned)
            if target is not None:
                step.copies.append((block, target | HOST_BIT))
        return blocks

    def preempt(self, slot: int, step: StepDecision) -> None:
        """Takes all blocks of a running slot with the delta of `step`; what they hold stays findable while it can."""
        self._leave(slot)
        self.table.set_row(slot, False)
        self.table.paused[slot] = 0
        self.table.state[slot] = SlotState.PREEMPTED
        for toggles in (step.paused_slots, step.unpaused_slots):
            if slot in toggles:
                toggles.remove(slot)
        step.preempted_slots.append(slot)
        if len(step.grant_slots):  # what it was granted in this step went with its blocks
            keep = step.grant_slots != slot
            step.grant_slots, step.grant_blocks = step.grant_slots[keep], step.grant_blocks[keep]
        request = self.request(slot)
        request.move(RequestStatus.PREEMPTED)
        request.preempted_at = step.step_id
        request.num_preemptions += 1
        self.stats.num_preemptions += 1
        self.preempted.append(slot)

    def release(self, slot: int, status: RequestStatus) -> None:
        """Ends whatever the slot does and returns its blocks: for finish, cancel, error and loss alike. Idempotent."""
        if self.table.state[slot] in (SlotState.FREE, SlotState.RELEASING):
            return
        if self.table.state[slot] == SlotState.PREEMPTED:
            self.preempted.remove(slot)
        elif self.table.state[slot] == SlotState.PREPARING:
            if slot in self.prepared:
                self.prepared.remove(slot)
        else:
            self._leave(slot)
        self.table.state[slot], self.table.paused[slot] = SlotState.RELEASING, 0
        self.releasing.append(slot)
        self.request(slot).move(status)

    def _leave(self, slot: int) -> None:
        """Takes a running slot out of every list and gives its blocks back."""
        self.pool.release(self.table.table(slot))
        self.table.num_blocks[slot] = 0
        self.table.trigger[slot] = NEVER
        self.table.place_rank[slot] = NO_PLACE
        self.num_running -= 1
        lists = (self.prefilling, self.settling, self.held, self.displaced, self.refused, self.toggled)
        for members in lists:
            if slot in members:
                members.remove(slot)

    # -- checks --

    def check_integrity(self) -> None:
        """Asserts all invariants of table, pool, lists and records together."""
        table, states = self.table, self.table.state
        table.check_integrity()
        fences = self.fences.values()
        self.host.check_integrity(
            block for fence in fences for block in (*fence.host_sources, *fence.saved.values())
        )
        fenced = [block for fence in fences for block in fence.blocks.tolist()]
        assert len(fenced) == len(set(fenced)) == self.pool.num_fenced, "a block has no fence, or two"
        decoding = np.flatnonzero(states == SlotState.DECODE).tolist()
        running = [*decoding, *np.flatnonzero(states == SlotState.PREFILL).tolist()]
        assert len(running) == self.num_running, "running slots miscounted"
        self.pool.check_integrity([table.table(slot) for slot in running])
        for slot in running:
            blocks = table.table(slot)
            held = table.generations[slot, : len(blocks)]
            assert np.array_equal(self.pool.generations[blocks], held), "a held block was given to another"
        for slot in decoding:
            need = min(int(table.bound[slot]), int(table.limit[slot])) - 1
            assert int(table.num_blocks[slot]) * table.block_size >= need, "a decode row lacks a block"
        assert set(self.preempted) == set(np.flatnonzero(states == SlotState.PREEMPTED).tolist())
        preparing = np.flatnonzero(states == SlotState.PREPARING).tolist()
        assert set(self.prepared) <= set(preparing), "a slot is ready that nobody prepared"
        assert all(self.request(slot).status is RequestStatus.WAITING_FOR_FSM for slot in preparing)
        released = {slot for record in self.records for slot in record.released_slots}
        assert released | set(self.releasing) == set(np.flatnonzero(states == SlotState.RELEASING).tolist())
        assert set(self.held) == set(np.flatnonzero(table.paused & HELD).tolist())
        for slot in self.aside:
            assert not table.paused[slot], "a slot that is set aside is paused for something else"
        for record in self.records if len(self.records) > 1 else ():
            has_ended = not record.chunks or states[record.chunks[0].slot] in ENDED
            assert not record.is_solo or has_ended, "a suspect has company"
        assert np.count_nonzero(table.place_rank != NO_PLACE) == self.num_active, "places miscounted"
        assert sorted(self.displaced) == np.flatnonzero(table.paused & DISPLACED).tolist()
        for slot in running:
            if slot not in self.toggled:
                assert table.paused[slot] & RESTING == rest_of(self.request(slot)), "a rest was not told"
