"""One worker as the scheduler sees it: its limits, its table, its blocks, its steps in flight."""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from scheduler_svc.core.block_pool import BlockPool, Blocks
from scheduler_svc.core.config import WorkerLimits
from scheduler_svc.core.host_cache import HOST_BIT, HostCache
from scheduler_svc.core.pacing import Pacer
from scheduler_svc.core.request import Request, RequestStatus
from scheduler_svc.core.request_table import CLIENT_PAUSED, HELD, NEVER, RequestTable, SlotState
from scheduler_svc.core.step import Slots, StepDecision, StepRecord


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker said of itself when it attached."""

    worker_id: str
    instance: str
    address: str
    model: str
    num_slots: int
    num_blocks: int
    block_size: int
    max_model_len: int
    max_num_batched_tokens: int
    max_draft_tokens: int = 0
    num_host_blocks: int = 0

    @property
    def max_request_tokens(self) -> int:
        """Longest prompt plus output: the last token needs no KV, so one more than the cache has positions."""
        return min(self.max_model_len, self.num_blocks * self.block_size + 1)


@dataclass
class WorkerStats:
    """Counters since the worker attached."""

    num_steps: int = 0
    num_preemptions: int = 0
    num_output_tokens: int = 0
    num_prefill_tokens: int = 0
    num_prefix_query_tokens: int = 0
    num_prefix_hit_tokens: int = 0
    """Host hits included."""
    num_host_hit_tokens: int = 0
    num_block_copies: int = 0
    execute_us: int = 0


@dataclass
class Worker:
    """State of one worker. Its methods keep table, pool and lists in step with each other; what to do is decided in
    `step_builder` and `report_reader`."""

    info: WorkerInfo
    limits: WorkerLimits
    table: RequestTable = field(init=False)
    pool: BlockPool = field(init=False)
    host: HostCache = field(init=False)
    records: deque[StepRecord] = field(default_factory=deque)
    """Steps in flight, oldest first."""
    next_step_id: int = 1
    last_reported: int = 0
    prefilling: list[int] = field(default_factory=list)
    """Slots with known tokens that have not been sent, in order of arrival."""
    settling: list[int] = field(default_factory=list)
    """Slots whose final chunk was in the last step: decode rows from the next one on."""
    preempted: list[int] = field(default_factory=list)
    """In order of arrival."""
    held: list[int] = field(default_factory=list)
    """Decode slots that wait for a block."""
    refused: list[int] = field(default_factory=list)
    """Slots with a row that the worker did not run: their counts are uncertain until they are preempted."""
    releasing: list[int] = field(default_factory=list)
    """Slots that the next delta names as finished."""
    toggled: list[int] = field(default_factory=list)
    """Slots whose client paused or went on since the last delta."""
    num_running: int = 0
    """Requests that hold blocks: prefilling, decoding, paused."""
    pacer: Pacer = field(default_factory=Pacer)
    hold_until: float = 0.0
    """The next step is not to be sent before this time, so that arrivals still make it."""
    attached: bool = True
    detached_at: float = 0.0
    stats: WorkerStats = field(default_factory=WorkerStats)

    def __post_init__(self) -> None:
        block_size = self.info.block_size
        max_blocks = -(-self.limits.max_model_len // block_size)
        self.table = RequestTable(self.info.num_slots, max_blocks, block_size)
        self.pool = BlockPool(self.info.num_blocks)
        self.host = HostCache(self.info.num_host_blocks)
        if self.info.num_host_blocks:
            self.pool.evicted = []

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
            or any(self.is_resumable(slot) for slot in self.preempted)
        )

    def is_resumable(self, slot: int) -> bool:
        """All steps that ran the slot have reported, so its length is exact; and its client wants more."""
        request = self.request(slot)
        return request.preempted_at <= self.last_reported + 1 and not request.client_paused

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

    # -- changes --

    def start(
        self, slot: int, hits: Blocks, host_hits: list[int], num_new: int, step: StepDecision
    ) -> Blocks:
        """Gives a slot without blocks its block table: shared `hits` first, then copies of `host_hits`, `num_new` new
        blocks with these. Returns the table."""
        table, pool = self.table, self.pool
        pool.share(hits)
        fresh = self._take(num_new, step, frozenset(host_hits))
        blocks = np.concatenate((hits, fresh))
        num_known = len(hits) + len(host_hits)
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
        self.num_running += 1
        return blocks

    def insert_prefilling(self, slot: int) -> None:
        """Puts `slot` among the prefills, by arrival."""
        insort(self.prefilling, slot, key=lambda other: self.request(other).order)

    def settle(self, slot: int) -> None:
        """The final chunk is sent: one token comes from it, and from the next step on the slot is a decode row."""
        self.table.bound[slot] = self.table.target[slot] + 1
        self.settling.append(slot)

    def become_decoding(self, slot: int) -> None:
        """Makes a settled slot a decode row, unless it is paused."""
        self.table.state[slot] = SlotState.DECODE
        self.table.set_row(slot, not self.table.paused[slot])

    def grant(self, slots: Slots, counts: Slots, step: StepDecision) -> None:
        """Gives each of `slots` so many more blocks. The caller has checked that the pool has them."""
        for number in range(int(counts.max())):
            self.grant_one_each(slots[counts > number], step)

    def grant_one_each(self, slots: Slots, step: StepDecision) -> None:
        """Gives each of `slots` one more block."""
        blocks = self._take(len(slots), step)
        self.table.append_blocks(slots, blocks, self.pool.generations[blocks])
        if len(step.grant_slots):
            slots = np.concatenate((step.grant_slots, slots))
            blocks = np.concatenate((step.grant_blocks, blocks))
        step.grant_slots, step.grant_blocks = slots, blocks

    def _take(self, count: int, step: StepDecision, pinned: frozenset[int] = frozenset()) -> Blocks:
        """Allocates blocks; what they evict from the device is copied to the host tier before it is overwritten."""
        blocks = self.pool.take(count)
        if self.pool.evicted:
            for block, content in self.pool.evicted:
                target = self.host.store(content, pinned)
                if target is not None:
                    step.copies.append((block, target | HOST_BIT))
            self.pool.evicted.clear()
        return blocks

    def hold(self, slot: int, step: StepDecision) -> None:
        """Leaves a decode row out until there is a block for it."""
        if not self.table.paused[slot] & HELD:
            self.table.bound[slot] -= self.table.advance[slot]
            self.table.paused[slot] |= HELD
            self.table.set_row(slot, False)
            self.held.append(slot)
            _toggle(slot, step.paused_slots, step.unpaused_slots)

    def unhold(self, slot: int, step: StepDecision) -> None:
        """Lets a held slot run again, from this step on."""
        self.held.remove(slot)
        self.table.paused[slot] &= ~HELD
        if not self.table.paused[slot]:
            self.table.set_row(slot, True)
            self.table.bound[slot] += self.table.advance[slot]
            _toggle(slot, step.unpaused_slots, step.paused_slots)

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
        request = self.request(slot)
        request.move(RequestStatus.PREEMPTED)
        request.preempted_at = step.step_id
        request.num_preemptions += 1
        self.stats.num_preemptions += 1
        insort(self.preempted, slot, key=lambda other: self.request(other).order)

    def release(self, slot: int, status: RequestStatus) -> None:
        """Ends whatever the slot does and returns its blocks: for finish, cancel, error and loss alike. Idempotent."""
        if self.table.state[slot] in (SlotState.FREE, SlotState.RELEASING):
            return
        if self.table.state[slot] == SlotState.PREEMPTED:
            self.preempted.remove(slot)
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
        self.num_running -= 1
        for members in (self.prefilling, self.settling, self.held, self.refused, self.toggled):
            if slot in members:
                members.remove(slot)

    def set_client_paused(self, slot: int, paused: bool) -> None:
        """The client reads too slowly, or goes on."""
        request = self.request(slot)
        if request.client_paused == paused:
            return
        request.client_paused = paused
        if self.table.state[slot] in (SlotState.PREFILL, SlotState.DECODE):
            if slot in self.toggled:
                self.toggled.remove(slot)
            else:
                self.toggled.append(slot)

    def apply_client_pause(self, slot: int, step: StepDecision) -> None:
        """Carries a change of mind of the client into the delta. A held slot is paused already and stays so."""
        table, paused = self.table, self.request(slot).client_paused
        table.paused[slot] = table.paused[slot] & ~CLIENT_PAUSED | (CLIENT_PAUSED if paused else 0)
        if table.paused[slot] & HELD:
            return
        (step.paused_slots if paused else step.unpaused_slots).append(slot)
        if table.state[slot] == SlotState.DECODE:
            table.set_row(slot, not paused)

    # -- shortage --

    def certain_to_end(self) -> Slots:
        """Decode slots that reach their limit within the steps in flight: each row makes one token at least."""
        table = self.table
        in_flight = np.zeros(table.num_slots, np.int64)
        for record in self.records:
            in_flight += record.advance > 0
            for chunk in record.chunks:
                in_flight[chunk.slot] += chunk.is_final
        ends = table.num_prompt + table.num_output + in_flight >= table.limit
        return np.flatnonzero(ends & (table.state == SlotState.DECODE))

    def blocks_coming(self, ending: Slots) -> int:
        """Blocks that will be available when `ending` have ended."""
        tables = [self.table.table(int(slot)) for slot in ending]
        return sum(int(np.count_nonzero(self.pool.ref_counts[blocks] == 1)) for blocks in tables)

    def victim_for(self, slot: int, ending: Slots) -> int | None:
        """Who gives up its blocks for `slot`: one whose client does not read, else a younger one; of these whoever was
        preempted least often, then has the least work to lose, then is the youngest."""
        keep, order = set(ending.tolist()), self.request(slot).order
        running = np.flatnonzero(
            (self.table.state == SlotState.DECODE) | (self.table.state == SlotState.PREFILL)
        )
        others = [int(other) for other in running if other != slot and int(other) not in keep]
        idle = [other for other in others if self.table.paused[other] & CLIENT_PAUSED]
        younger = idle or [other for other in others if self.request(other).order > order]
        return min(younger, key=self._loss, default=None)

    def _loss(self, slot: int) -> tuple[int, int, tuple[int, ...]]:
        request = self.request(slot)
        return (
            request.num_preemptions,
            int(self.table.num_blocks[slot]),
            tuple(-part for part in request.order),
        )

    # -- checks --

    def check_integrity(self) -> None:
        """Asserts all invariants of table, pool, lists and records together."""
        table, states = self.table, self.table.state
        table.check_integrity()
        self.host.check_integrity()
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
        released = {slot for record in self.records for slot in record.released_slots}
        assert released | set(self.releasing) == set(np.flatnonzero(states == SlotState.RELEASING).tolist())
        assert set(self.held) == set(np.flatnonzero(table.paused & HELD).tolist())


def _toggle(slot: int, wanted: list[int], opposite: list[int]) -> None:
    """Names `slot` in a delta's list, or takes it out of the opposite one: a delta says where a slot ends up."""
    if slot in opposite:
        opposite.remove(slot)
    else:
        wanted.append(slot)
