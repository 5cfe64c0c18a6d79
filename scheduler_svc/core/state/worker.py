"""One worker as the scheduler sees it: its limits, its table, its blocks, its steps in flight."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.blocks.block_pool import BlockPool, Blocks
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.blocks.host_cache import HostCache
from scheduler_svc.core.state.blocks.loans import Loan
from scheduler_svc.core.state.blocks.tier import Tier
from scheduler_svc.core.state.config import WorkerLimits
from scheduler_svc.core.state.groups.checkpoints import Checkpoints
from scheduler_svc.core.state.groups.window import WindowBlocks
from scheduler_svc.core.state.part import Parts
from scheduler_svc.core.state.recent_classes import RecentClasses
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.request import BlockNames, Request, RequestStatus
from scheduler_svc.core.state.slots.slot_state import OWNING, RUNNING, SUSPENDED, SlotState
from scheduler_svc.core.state.slots.table import SlotTable
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.steps.pacing import Pacer
from scheduler_svc.core.state.steps.step import Slots, StepDecision, StepRecord
from scheduler_svc.core.state.steps.step_limit import StepLimit
from scheduler_svc.core.state.vitals import Vitals
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.core.state.worker_stats import WorkerStats
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.enums import WorkerHealth, WorkerRole


@dataclass
class Worker:
    """State of one worker. Its methods, and the functions of `core/step/decode_blocks.py`, keep table and pool in step
    with each other; what to do is decided in `core/step`."""

    info: WorkerInfo
    limits: WorkerLimits
    table: SlotTable = field(init=False)
    pool: BlockPool = field(init=False)
    """Blocks of the spine."""
    windows: list[WindowBlocks] = field(init=False)
    """Blocks and tables of the other groups, in order."""
    checkpoints: Checkpoints | None = field(init=False)
    """Checkpoints of recurrent states; None: the model keeps none, or the worker has no room for any."""
    hosts: list[HostCache] = field(init=False)
    """What the host tier has of each group, the spine's first, that of checkpoints last."""
    pools: tuple[BlockPool, ...] = field(init=False)
    """Blocks of all groups, the spine's first."""
    tiers: tuple[Tier, ...] = field(init=False)
    """Device and host tier of each group, checkpoints included."""
    saved_tiers: tuple[Tier, ...] = field(init=False)
    """Tiers of groups whose evicted content the host tier has a place for."""
    records: deque[StepRecord] = field(default_factory=deque)
    """Steps in flight, oldest first."""
    parts: Parts = field(default_factory=Parts)
    """Its optional features."""
    disk_drops: dict[bytes, None] = field(default_factory=dict)
    """Names of contents to be deleted from the worker's disk; kept until its first news add the part (DT6)."""
    fences: dict[int, Fence] = field(default_factory=dict)
    """Groups of copies that run beside the steps, by their number."""
    next_step_id: int = 1
    last_reported: int = 0
    reset_at: int = 0
    """First step after the last reset of the prefix cache: what started before is never published."""
    is_suspects_turn: bool = True
    """A step of the suspects is next, if one of them can go on."""
    no_suspect_before: int = 0
    """Step before which no suspect could go on when it was last tried."""
    may_suspend: bool = False
    """Safe mode pauses requests here, or did when it was last told."""
    full_at_version: int | None = None
    """Version of the waiting requests when, with every place taken, none of them could take one."""
    recent_classes: RecentClasses = field(default_factory=RecentClasses)
    rows_by_account: tuple[Slots, NDArray[np.int64]] | None = None
    """Decode slots, and how many of them each account has; kept while they are the same."""
    pacer: Pacer = field(default_factory=Pacer)
    hold_until: float = 0.0
    """The next step is not to be sent before this time, so that arrivals still make it."""
    burst_left: int = 0
    """Steps that may be sent beyond those in flight, while it is steady (`core/step/bursts.py`)."""
    draining: bool = False
    """Nothing more is placed here; what runs here goes on."""
    role: WorkerRole = field(init=False)
    """What it is there for: by its setting, or as an operator said since (PD1)."""
    is_arriving: bool = False
    """Its table is being taken over from its snapshot (`Adoption`). It gets no steps, and is not gone."""
    attached: bool = True
    detached_at: float = 0.0
    vitals: Vitals = field(default_factory=Vitals)
    step_limit: StepLimit = field(default_factory=StepLimit)
    """How long its steps may take; that of its process while it is attached."""
    told_limit_s: float = 0.0
    """The limit of the last step, which those after it have that name none; 0: none was named by this link."""
    loan: Loan = field(default_factory=Loan)
    """Blocks of the spine that it has been lent."""
    window_loans: list[Loan] = field(init=False)
    """Blocks of the other groups, in order."""
    stats: WorkerStats = field(default_factory=WorkerStats)
    changed: dict[str, None] = field(default_factory=dict)
    """Ids of workers whose load or room may have changed since placement has read them (`Standings.changed`)."""

    def __post_init__(self) -> None:
        block_size = self.info.block_size
        self.role = self.info.role
        # Not by our limits: a request that was placed under other settings may be longer.
        self.table = SlotTable(
            self.info.num_slots,
            self.info.max_blocks_per_request,
            block_size,
            self.info.names_key,
            self.info.num_lanes,
        )
        self.pool = BlockPool(self.info.num_blocks)
        sizes = self.info.num_slots, self.info.max_blocks_per_request, block_size
        self.windows = [WindowBlocks(n, group, *sizes) for n, group in enumerate(self.info.groups, SPINE + 1)]
        states = self.info.state_group
        self.checkpoints = Checkpoints(states, self.info.num_slots, block_size) if states else None
        self.window_loans = [Loan() for _ in self.windows]
        counts = [self.info.num_host_blocks, *(group.num_host_blocks for group in self.info.groups)]
        self.hosts = [HostCache(count) for count in counts]
        if states is not None:
            self.hosts.append(HostCache(states.num_host_checkpoints))
        self._list_pools()
        for tier in self.saved_tiers:
            tier.pool.evicted = []

    def _list_pools(self) -> None:
        """Lists the pools and tiers of all groups, of which one was set."""
        self.pools = (self.pool, *(window.pool for window in self.windows))
        pools = self.pools if self.checkpoints is None else (*self.pools, self.checkpoints.pool)
        both = zip(pools, self.hosts, strict=True)
        self.tiers = tuple(Tier(group, pool, host) for group, (pool, host) in enumerate(both))
        self.saved_tiers = tuple(tier for tier in self.tiers if tier.host.num_blocks)

    # -- how it is --

    @property
    def process(self) -> Process:
        """The process that said hello."""
        return Process(self.info.worker_id, self.info.instance)

    @property
    def health(self) -> WorkerHealth:
        """Whether it gets anything new, and why not."""
        return self.vitals.health if self.attached else WorkerHealth.AWAY

    @property
    def takes_new(self) -> bool:
        """Requests may be placed here."""
        return self.is_well and not self.draining

    @property
    def is_well(self) -> bool:
        """It has a link, and is as it should be."""
        return self.health is WorkerHealth.GOOD and not self.vitals.has_left

    def renew_loan(self, now: float) -> list[Blocks] | None:
        """Blocks that the worker is to have for a time without a scheduler, of each group; None: it has been lent
        enough."""
        if self.vitals.has_left:
            return None
        num_output_tokens, block_size = self.stats.num_output_tokens, self.info.block_size
        loans = (self.loan, *self.window_loans)
        renewed = [
            loan.renew(pool, self.table.num_running, num_output_tokens, block_size, now)
            for loan, pool in zip(loans, self.pools, strict=True)
        ]
        if all(blocks is None for blocks in renewed):
            return None
        return [loan.left(pool) for loan, pool in zip(loans, self.pools, strict=True)]

    @property
    def host(self) -> HostCache:
        """What the host tier has of the spine."""
        return self.hosts[SPINE]

    @property
    def has_host_tier(self) -> bool:
        """It has a place for content that the device evicts, of one group at least."""
        return bool(self.saved_tiers)

    @property
    def nothing_reserved(self) -> list[int]:
        """No block of any group."""
        return [0] * len(self.hosts)

    @property
    def num_available(self) -> int:
        """Blocks that could be taken of each group."""
        least = self.pool.num_available
        for window in self.windows:
            least = min(least, window.pool.num_available)
        return least

    # -- what there is to do --

    @property
    def has_own_work(self) -> bool:
        """A step would have something in it even if no waiting request is admitted."""
        table = self.table
        return bool(
            table.decode_tokens
            or table.settling
            or table.releasing
            or table.prefilling
            or table.refused
            or table.rest_changes
            or table.held
            or any(self.is_resumable(slot) for slot in table.not_running)
            or any(part.has_work() for part in self.parts.ordering if not part.is_idle)
        )

    @property
    def num_preparing(self) -> int:
        """Requests that wait for their grammar, those of suspended classes apart."""
        if not self.may_suspend:
            return self.table.num_preparing
        slots = np.flatnonzero(self.table.state == SlotState.PREPARING).tolist()
        return sum(not self.request(slot).suspended for slot in slots)

    @property
    def num_suspended(self) -> int:
        """Requests that hold blocks and are paused by safe mode, with the next delta at the latest."""
        table = self.table
        if not (self.may_suspend or table.rest_changes or table.frozen):
            return 0  # nobody was, or all have been told otherwise
        told = table.paused & SUSPENDED
        changes = (self.request(slot).suspended - bool(told[slot]) for slot in table.rest_changes)
        return int(np.count_nonzero(told)) + sum(changes)

    @property
    def load(self) -> int:
        """Requests that are placed here and run, or will as soon as they can."""
        return self.table.num_running - self.num_suspended + self.num_preparing

    @property
    def num_due(self) -> int:
        """Steps in flight that are run whatever arrives behind them."""
        return sum(not record.may_be_skipped for record in self.records)

    @property
    def is_open(self) -> bool:
        """Another step may be sent, as far as those in flight are concerned."""
        return self.num_due < self.limits.max_inflight_steps

    @property
    def num_displaced(self) -> int:
        """Requests without a place that want to run."""
        return sum(not self.request(slot).rests for slot in self.table.displaced)

    @property
    def num_active(self) -> int:
        """Requests that hold blocks and have a place in the batch, or for which one is kept."""
        return self.table.num_running - len(self.table.displaced) + len(self.table.importing)

    @property
    def may_prepare(self) -> bool:
        """Another request may wait here for its grammar: they leave half of the slots to the others."""
        return self.num_preparing < max(self.table.num_slots // 2, 1)

    def is_resumable(self, slot: int) -> bool:
        """All steps that ran the slot have reported, so its length is exact; and it does not rest."""
        request = self.request(slot)
        return request.history.preempted_at <= self.last_reported + 1 and not request.rests

    def request(self, slot: int) -> Request:
        """The request that holds `slot`."""
        return self.table.request(slot)

    def requests(self) -> list[Request]:
        """All requests that are its own and have not ended."""
        slots = np.flatnonzero(OWNING[self.table.state]).tolist()
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

    def names_of(self, request: Request) -> BlockNames:
        """What the full blocks of `request` are called here; empty where its frontend has no names for them."""
        return request.names_on(self.table.identity, self.info.block_size)

    # -- changes --

    def add_copies(self, tier: Tier, copies: list[BlockCopy], to: list[BlockCopy]) -> None:
        """A step, or what runs beside it, makes these copies of one group behind those of `to`."""
        if self.checkpoints is not None and tier.pool is self.checkpoints.pool:
            self.checkpoints.follow(copies)
        to += copies

    def save_evicted(self, step: StepDecision) -> None:
        """Whatever has lost its place on the device goes out to the host tier with `step`."""
        for tier in self.saved_tiers:
            if tier.pool.evicted:
                self.add_copies(tier, tier.save_evicted(), step.copies)

    def keep_caches(self, old: Worker) -> None:
        """Takes over the blocks of `old`, the same process at an earlier link, in all groups and tiers."""
        self.pool, self.hosts = old.pool, old.hosts
        for window, before in zip(self.windows, old.windows, strict=True):
            window.pool = before.pool
        if self.checkpoints is not None and old.checkpoints is not None:
            self.checkpoints.keep_from(old.checkpoints)
        self._list_pools()

    def reset_cache(self) -> int:
        """Forgets all cached content, and what steps in flight and running requests would add to it: they read what was
        computed before. Returns the number of blocks that had some."""
        self.reset_at = self.next_step_id
        for part in self.parts.all:
            part.cache_reset()
        for window in self.windows:
            window.pool.reset_cache()
        return self.pool.reset_cache() + sum(host.clear() for host in self.hosts)

    def take_blocks(self, count: int, step: StepDecision) -> Blocks:
        """Allocates blocks of the spine; what they evict from the device is saved before it is overwritten."""
        blocks = self.pool.take(count)
        if self.pool.evicted:
            self.save_evicted(step)
        return blocks

    def cover(self, slot: int, end: int) -> list[tuple[int, Blocks]]:
        """Gives `slot` the blocks for its positions up to `end` in all groups but the spine, which have them. Returns
        (group, blocks) of those that got some."""
        lacking = [(window, window.num_lacking(slot, end)) for window in self.windows]
        return [(window.number, window.extend(slot, count)) for window, count in lacking if count]

    def leave_behind(self, slots: Slots) -> None:
        """Releases what of the windows of `slots`, which run, no step reads any more. Positions are confirmed: what is
        in flight, or runs once more, is at them or behind them (WB2)."""
        positions = self.table.confirmed(slots)
        for window in self.windows:
            window.leave_behind(slots, positions)

    def preempt(self, slot: int, step: StepDecision) -> None:
        """Takes all blocks of a running slot with the delta of `step`; what they hold stays findable while it can."""
        for part in self.parts.all:
            part.blocks_change(slot, "preempted")
        self._leave_state(slot)
        self.pool.release(self.table.preempt(slot, step))
        self._drop_windows(slot)
        self.stats.num_preemptions += 1

    def _leave_state(self, slot: int, *, has_failed: bool = False) -> None:
        """A running slot ends, or loses its blocks: what can be gone on from of its state is kept."""
        if self.checkpoints is not None:
            decodes = self.table.state[slot] == SlotState.DECODE
            is_lost = has_failed or (decodes and self.checkpoints.group.prompts_only)
            self.checkpoints.leave(slot, 0 if is_lost else self._confirmed(slot))

    def _confirmed(self, slot: int) -> int:
        return int(self.table.confirmed(np.array([slot]))[0])

    def _drop_windows(self, slot: int) -> None:
        """Releases what `slot` has in groups but the spine. What it has of an output is findable from now on: nobody
        goes on from the middle of one (WB9)."""
        if not self.windows:
            return
        num_known = min(
            int(self.table.num_hashes[slot]),
            self._confirmed(slot) // self.table.block_size,
        )
        may_publish = self.table.started_at[slot] >= self.reset_at and not self.table.is_spoilt[slot]
        for window in self.windows:
            first = int(window.firsts[slot])
            blocks = window.table(slot)[: max(num_known - first, 0)]
            if may_publish and len(blocks):
                window.pool.publish(blocks, self.table.hashes(slot, first, first + len(blocks)))
            window.drop(slot)

    def displace(self, slot: int, step: StepDecision) -> None:
        """Takes the place of a running slot, which keeps its blocks."""
        self.table.displace(slot, step)
        self.stats.num_displacements += 1

    def release(self, slot: int, status: RequestStatus) -> None:
        """Ends whatever the slot does and returns its blocks: for finish, cancel, error and loss alike. Idempotent."""
        if self.table.state[slot] in RUNNING:
            self._leave_state(slot, has_failed=status is RequestStatus.FINISHED_ERROR)
        self._return_blocks(slot, self.table.release(slot, status))

    def hand_off(self, slot: int) -> None:
        """The request of `slot` is another worker's from now on."""
        if self.checkpoints is not None:
            self.checkpoints.leave(slot, 0)
        self._return_blocks(slot, self.table.let_go(slot))

    def _return_blocks(self, slot: int, blocks: Blocks | None) -> None:
        for part in self.parts.all:
            part.released(slot)
        self.changed[self.info.worker_id] = None
        if blocks is not None:
            self.pool.release(blocks)
            self._drop_windows(slot)

    def drop_import(self, slot: int, *, is_told: bool) -> None:
        """The request that `slot` was kept for does not come: `SlotTable.drop_import`."""
        self.changed[self.info.worker_id] = None
        self.pool.release(self.table.drop_import(slot, is_told=is_told))
        for window in self.windows:
            window.drop(slot)
