"""Who goes on with its prompt and who starts in a step, by class: prefills, then slots that wait to go on, then waiting
requests.

With one class, this is: all prefills go on, then preempted and prepared requests start, then new ones.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from scheduler_svc.core.parts.fetch.side_copies import find_fence, reserved_for_others
from scheduler_svc.core.queue.waiting_cursor import WaitingCursor
from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.order import goes_before, resume_key
from scheduler_svc.core.state.requests.prefix_wait import PrefixWait
from scheduler_svc.core.state.requests.request import Request, RequestStatus
from scheduler_svc.core.state.steps.step import Chunk, Start, StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.capacity import StepCapacity
from scheduler_svc.core.step.decode_blocks import grant
from scheduler_svc.core.step.displacement import make_idle_room, make_place, make_room, may_displace
from scheduler_svc.core.step.fetches import begin_fetch
from scheduler_svc.core.step.gates import (
    BLOCKS,
    FETCH,
    HOLD_UP_NOBODY,
    LEADER,
    OF_START,
    OF_STEP,
    OF_TURN,
    SHARED_COPIES,
    Gate,
    first_closed,
)
from scheduler_svc.core.step.prefix_sharing import find_leader, num_known
from scheduler_svc.core.step.shortage import blocks_coming, certain_to_end, victim_for
from scheduler_svc.core.step.starting import start_slot

MAX_STARTS = 128
"""Requests that start in one step: each is some 0.1 ms of work before the step can be sent."""
MAX_LOOKED_UP = 1 << 15
"""Blocks of prompts that are looked up in caches for one step, about: some 10 ms of work (Q10)."""


def admit_requests(
    worker: Worker,
    config: SchedulerConfig,
    step: StepDecision,
    budget: int,
    offers: WaitingCursor,
    *,
    is_short: bool,
    now: float,
) -> None:
    """Decides all that is not a decode row. After a shortage of blocks nobody starts but who may displace others."""
    table = worker.table
    is_waiting = table.prefilling or table.preempted or table.prepared or table.displaced
    if not is_waiting:
        is_looking = budget > 0 and table.free_slots and _may_take(worker, config, offers)
        if not is_looking or offers.peek() is None:
            _remember(worker, offers, is_certain=budget > 0 and not is_short)
            return
    admission = PrefillAdmission(worker, config, step, budget, offers, is_short=is_short, now=now)
    resumable = deque(table.resume_queue(config.aging_s if config.has_classes else 0.0, now))
    if offers.suspects:
        admission.leave_out(offers.suspects)
        resumable = deque(slot for slot in resumable if slot not in offers.suspects)
    if config.is_fair and len(resumable) > 1:
        received = offers.service_received
        resumable = deque(sorted(resumable, key=lambda slot: resume_key(worker.request(slot), received)))
    while admission.may_start_more and admission.start_next(resumable):
        pass
    admission.end_deadlock()
    admission.remember()
    admission.continue_prefills(math.inf)


def _may_take(worker: Worker, config: SchedulerConfig, offers: WaitingCursor) -> bool:
    """A place is free, or might be made for a waiting request: one of them has come or gone since none could take a
    place."""
    if worker.num_active < worker.limits.max_num_seqs:
        return True
    may_displace = config.has_classes or config.is_fair
    return may_displace and (worker.full_at_version is None or worker.full_at_version != offers.version)


def _remember(worker: Worker, offers: WaitingCursor, *, is_certain: bool) -> None:
    """With every place taken, the waiting are looked at again when one of them has come or gone: counters alone change
    too often. Not so while there is no slot: nothing comes or goes when one is free again. `is_certain`: nothing but
    the places was lacking."""
    is_full = is_certain and worker.num_active >= worker.limits.max_num_seqs and worker.table.free_slots
    worker.full_at_version = offers.version if is_full else None


class PrefillAdmission(StepCapacity):
    """Takes of one step's room for prefills and starts."""

    def __init__(
        self,
        worker: Worker,
        config: SchedulerConfig,
        step: StepDecision,
        budget: int,
        offers: WaitingCursor,
        *,
        is_short: bool,
        now: float,
    ) -> None:
        super().__init__(worker, config, budget, offers.service_received, is_short=is_short, now=now)
        self._step, self._offers = step, offers
        self._may_displace = config.has_classes or config.is_fair
        self._num_passed = 0
        """Waiting requests that were passed over, up to as many as could run at all."""
        self._num_looked_up = 0
        """Blocks of prompts."""

    @property
    def may_start_more(self) -> bool:
        """The step has not taken too much work yet."""
        num_starts = len(self._step.placed) + len(self._step.resumed)
        return num_starts < MAX_STARTS and self._num_looked_up < MAX_LOOKED_UP

    def start_next(self, resumable: deque[int]) -> bool:
        """Starts whoever is first, or passes it over. False: nobody else starts in this step."""
        slot, offer = self._next_resumable(resumable), self._next_offer(resumable)
        if slot is not None and (offer is None or not self._goes_before(offer, slot)):
            return self._resume(slot, resumable)
        return offer is not None and self._start_offered(offer)

    def continue_prompt(self, slot: int) -> None:
        """The next chunk of a prompt is for this step, if there are blocks for a part of it."""
        if self.worker.windows and not self._has_window_room(slot):
            self.busy.add(slot)
            return
        chunk, granted = self._send_chunk(slot)
        self._step.chunks.append(chunk)
        for group, blocks in granted:
            self._step.grant(np.full(len(blocks), slot), blocks, group)

    def _has_window_room(self, slot: int) -> bool:
        """A block at least of every group is there for a prompt that goes on, if need be after one that goes behind it
        has given up its own. It waits for what comes by itself: its own chunk in flight, and those certain to end."""
        worker, table = self.worker, self.worker.table
        while self.window_room(slot) <= int(table.num_sent[slot]):
            ending = certain_to_end(worker)
            if table.num_sent[slot] > table.num_computed[slot] or sum(blocks_coming(worker, ending)[1:]):
                return False
            victim = victim_for(worker, slot, np.array([*ending.tolist(), *self.busy], np.int64))
            if victim is None:
                return False
            worker.preempt(victim, self._step)
            self.is_short = True
        return True

    def end_deadlock(self) -> None:
        """Nobody has a place, and nothing is to come: then who is first lacks blocks that displaced ones keep. The last
        of these gives them up."""
        worker = self.worker
        if self.is_short or worker.num_active or worker.records or worker.fences:
            return
        kept = [slot for slot in worker.table.displaced if not worker.request(slot).rests]
        if kept:
            worker.preempt(max(kept, key=lambda slot: worker.request(slot).order), self._step)

    def remember(self) -> None:
        """Notes at which version of the waiting requests none of them could take a place."""
        is_certain = self.num_left > 0 and not self.is_short and not self._num_passed
        _remember(self.worker, self._offers, is_certain=is_certain)

    # -- whose turn it is --

    def _goes_before(self, offer: Request, slot: int) -> bool:
        """A waiting request is of a higher class than a slot that waits to go on, or its tenant has had less."""
        received = self.service_received if self.config.is_fair else None
        return goes_before(offer, offer.entry.effective_priority, self.worker.request(slot), received)

    def _next_resumable(self, resumable: deque[int]) -> int | None:
        """The first slot that could go on now."""
        while resumable:
            if first_closed(OF_TURN, self, self.worker.request(resumable[0])) is None:
                return resumable[0]
            resumable.popleft()
        return None

    def _next_offer(self, resumable: deque[int]) -> Request | None:
        """The first waiting request, if it could be placed."""
        if resumable and not self._may_displace:
            return None  # it could not go before them
        if not _may_take(self.worker, self.config, self._offers):
            return None
        most, table = self.worker.limits.max_num_seqs, self.worker.table
        while self.num_left > 0 and self._num_passed < most and table.free_slots:
            request = self._offers.peek()
            if request is None or first_closed(OF_TURN, self, request) is None:
                return request
            self._skip()
        return None

    def _skip(self) -> None:
        self._offers.skip()
        self._num_passed += 1

    def _fits(self, request: Request) -> bool:
        """The step has a place for `request`, and tokens when those before it have had theirs."""
        self.continue_prefills(request.entry.effective_priority)
        self.cut(request.entry.effective_priority)
        return first_closed(OF_STEP, self, request) is None

    # -- slots that wait to go on --

    def _resume(self, slot: int, resumable: deque[int]) -> bool:
        """Requests that were displaced or preempted, or whose grammar is ready, go before new ones of their class."""
        request = self.worker.request(slot)
        if not self._fits(request):
            return False
        resumable.popleft()
        if self.is_displaced(request):
            return self._replace(slot)
        gate = self._stop_at_start(request)
        if gate is not None:
            return gate in HOLD_UP_NOBODY
        start = self._start(request)
        if request.status is RequestStatus.WAITING_FOR_FSM:
            self.may_prepare = self.worker.may_prepare
            self._step.prepared.append(request)
            self._has_started(request, start)
        else:
            self._step.resumed.append(start)
            request.move(RequestStatus.RUNNING)
            if request.history.has_yet_to_start:
                request.history.has_yet_to_start = False
                request.history.num_cached_tokens = start.chunk.start
                self._offers.charge(request, start.chunk.start)
        return True

    def _replace(self, slot: int) -> bool:
        """Gives a displaced slot its place back, with the blocks that the step needs."""
        worker, request = self.worker, self.worker.request(slot)
        self.look_up(request)
        advance, lacking = self.advance_of(request), self.num_blocks
        if BLOCKS.is_closed(self, request) or not self._make_room(request):
            return False
        self._take_place(request)
        if lacking > 0:
            grant(worker, np.array([slot]), np.array([lacking]), self._step)
        worker.table.return_place(slot, self._step)
        if advance:  # a prompt goes on in this step, when its turn comes
            self.busy.add(slot)
        of_withheld = min(advance, self.num_withheld)
        self.num_withheld -= of_withheld
        self.num_left -= advance - of_withheld
        return True

    # -- waiting requests --

    def _start_offered(self, request: Request) -> bool:
        """Places a waiting request on this worker. One that does not fit holds up those behind it."""
        if not self._fits(request):
            return False
        if request.has_grammar:
            self.worker.table.prepare(self._place(request))
            self.may_prepare = self.worker.may_prepare
            self._step.placed.append(self._offers.take())
            return True
        gate = self._stop_at_start(request)
        if gate in HOLD_UP_NOBODY:
            self._skip()
            return True
        if gate is not None:
            return False
        self._place(request)
        self._has_started(request, self._start(request))
        self._step.placed.append(self._offers.take())
        return True

    def _place(self, request: Request) -> int:
        worker = self.worker
        return worker.table.place(request, worker.limit_of(request), worker.limits.num_draft_tokens)

    def _has_started(self, request: Request, start: Start) -> None:
        """A request starts for the first time."""
        request.move(RequestStatus.RUNNING)
        request.history.num_cached_tokens = start.chunk.start
        self._offers.charge(request, start.chunk.start)
        self._step.started.append(start)
        self.worker.recent_classes.started(request.entry.priority, self.now)

    # -- room --

    def look_up(self, request: Request) -> None:
        """What of it the host tier has counts as used."""
        super().look_up(request)
        prefix = self.prefix
        self._num_looked_up += len(prefix.hashes)
        if not prefix.num_from_host:
            return
        worker = self.worker
        for tier, found in zip(worker.tiers, prefix.found(worker.windows, worker.checkpoints), strict=True):
            tier.host.touch(prefix.names_of(found)[found.blocks < 0].tolist())

    def _stop_at_start(self, request: Request) -> Gate | None:
        """The gate that `request`, which has no blocks, stops at; None: there is room for all its known tokens. Where
        it waits for others, it knows for whom from now on."""
        worker, step = self.worker, self._step
        self.look_up(request)
        gate = first_closed(OF_START, self, request)
        wait = request.history.prefix_wait = (
            find_leader(worker, request, self.prefix) if gate is LEADER else None
        )
        if wait is not None and wait.is_state:
            self._want_state(wait)
        if gate is SHARED_COPIES:
            request.history.fence = find_fence(worker, self.prefix)
        if gate is not None:
            return gate
        if not self._make_room(request):
            return BLOCKS
        if FETCH.is_closed(self, request):
            if self.fetch is not None:
                begin_fetch(self.fetch, request, self.new_blocks, step, self.now)
            return FETCH
        return None

    def _want_state(self, wait: PrefixWait) -> None:
        """The leader keeps its state where the one who waits is to go on: with the chunk that passes there, which may
        be one of this very step."""
        checkpoints, slot = self.worker.checkpoints, wait.slot
        assert checkpoints is not None
        if checkpoints.is_coming(slot, wait.end):
            return
        if wait.end > self.worker.table.num_sent[slot]:
            checkpoints.want(slot, wait.end, is_shared=True)
        else:
            self._step.checkpoints += checkpoints.order(slot, wait.end, is_shared=True)
            self.worker.save_evicted(self._step)

    def _start(self, request: Request) -> Start:
        """Starts a request that has a slot and no blocks, as it was looked up."""
        worker, slot, prefix = self.worker, request.slot, self.prefix
        assert slot is not None
        self._take_place(request)
        blocks, checkpoint = start_slot(
            worker,
            slot,
            prefix,
            self.num_blocks,
            self._step,
            is_kept=self.config.enable_prefix_caching and not request.needs_every_position,
        )
        worker.stats.num_prefix_query_tokens += num_known(worker, request)
        worker.stats.num_prefix_hit_tokens += self.prefix.num_blocks * worker.table.block_size
        worker.stats.num_host_hit_tokens += prefix.num_from_host * worker.table.block_size
        chunk, _ = self._send_chunk(slot)
        windows = tuple((int(window.firsts[slot]), window.table(slot).copy()) for window in worker.windows)
        return Start(blocks, chunk, windows, checkpoint)

    def _make_room(self, request: Request) -> bool:
        """The blocks that `request` lacks are available, if need be after others have made room."""
        while self.is_lacking:
            if self.config.has_classes:
                has_room = make_room(self.worker, request, self.lacking, self._step)
            else:
                has_room = make_idle_room(self.worker, self.lacking, self._step)
            if not has_room:
                return False
            self.count_lacking(request)
        return True

    def _take_place(self, request: Request) -> None:
        """Somebody leaves a place to `request`, unless one is free that nobody before it is to have."""
        worker = self.worker
        reserved, _ = reserved_for_others(worker, request)
        if worker.num_active + reserved < worker.limits.max_num_seqs:
            return
        if self.config.has_classes and may_displace(worker, request):
            make_place(worker, request, self._step)
        else:
            slot = self.excessive_row(request)
            if slot is not None:
                worker.displace(slot, self._step)

    def _send_chunk(self, slot: int) -> tuple[Chunk, list[tuple[int, Blocks]]]:
        """The next chunk, and the blocks that it gets in groups but the spine."""
        chunk = self.worker.table.send_chunk(slot, self.take_chunk(slot))
        if self.worker.checkpoints is not None:
            self._step.checkpoints += self.worker.checkpoints.orders_for(chunk)
        granted = self.worker.cover(slot, chunk.start + chunk.length)
        self.worker.save_evicted(self._step)
        return chunk, granted
