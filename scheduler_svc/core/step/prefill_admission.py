"""Who goes on with its prompt and who starts in a step, by class: prefills, then slots that wait to go on, then waiting
requests.

With one class, this is: all prefills go on, then preempted and prepared requests start, then new ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Set

import numpy as np

from scheduler_svc.core.admission.waiting_cursor import WaitingCursor
from scheduler_svc.core.blocks.block_pool import NO_BLOCKS, Blocks
from scheduler_svc.core.blocks.prefix_sharing import Prefix, awaits_leader, find_leader, find_prefix
from scheduler_svc.core.blocks.side_copies import (
    awaits_copies,
    copy_aside,
    count_copies,
    find_fence,
    reserved_for_others,
)
from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.request import Request, RequestStatus
from scheduler_svc.core.slots.state import DISPLACED, SlotState
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.decode_blocks import grant
from scheduler_svc.core.step.displacement import (
    excessive_row,
    make_idle_room,
    make_place,
    make_room,
    may_displace,
)
from scheduler_svc.core.step.step import Chunk, Start, StepDecision


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
    admission = PrefillAdmission(worker, config, step, budget, offers, is_short, now)
    resumable = deque(worker.table.resume_queue(config.aging_s if config.has_classes else 0.0, now))
    if offers.suspects:
        admission.leave_out(offers.suspects)
        resumable = deque(slot for slot in resumable if slot not in offers.suspects)
    if config.is_fair and len(resumable) > 1:
        requests = {slot: worker.request(slot) for slot in resumable}
        resumable = deque(
            sorted(resumable, key=lambda slot: (requests[slot].rank, offers.service_received(requests[slot])))
        )
    while admission.start_next(resumable):
        pass
    admission.end_deadlock()
    admission.remember()
    admission.continue_prefills(math.inf)


class PrefillAdmission:
    """One step's room for prefills and starts."""

    def __init__(
        self,
        worker: Worker,
        config: SchedulerConfig,
        step: StepDecision,
        budget: int,
        offers: WaitingCursor,
        is_short: bool,
        now: float,
    ) -> None:
        self._worker, self._config, self._step = worker, config, step
        self._offers, self._is_short, self._now = offers, is_short, now
        self._budget = self._whole_budget = budget
        self._is_cut = False
        """What lower classes may add to the step has been cut."""
        self._withheld = 0
        """By so many tokens, which are there for rows that decode."""
        self._may_displace = config.has_classes or config.is_fair
        self._busy: set[int] = set()
        """Slots that have a chunk in the step, or got their place back with it."""
        self._may_prepare = worker.may_prepare
        self._num_passed = 0
        """Waiting requests that were passed over, up to as many as could run at all."""

    def leave_out(self, slots: Set[int]) -> None:
        """These have no chunk in the step."""
        self._busy |= slots

    def start_next(self, resumable: deque[int]) -> bool:
        """Starts whoever is first, or passes it over. False: nobody else starts in this step."""
        slot, offer = self._next_resumable(resumable), self._next_offer(resumable)
        if slot is not None and (offer is None or not self._goes_before(offer, slot)):
            return self._resume(slot, resumable)
        return offer is not None and self._start_offered(offer)

    def continue_prefills(self, rank: float) -> None:
        """Prompts of the class and those above go on."""
        worker = self._worker
        for slot in list(worker.table.prefilling):
            if self._budget <= 0 or worker.table.rank[slot] > rank:
                return
            if worker.table.paused[slot] or slot in self._busy:
                continue
            self._cut_budget(int(worker.table.rank[slot]))
            self._step.chunks.append(self._send_chunk(slot))

    def end_deadlock(self) -> None:
        """Nobody has a place, and nothing is to come: then who is first lacks blocks that displaced ones keep. The last
        of these gives them up."""
        worker = self._worker
        if self._is_short or worker.num_active or worker.records or worker.fences:
            return
        kept = [slot for slot in worker.table.displaced if not worker.request(slot).rests]
        if kept:
            worker.preempt(max(kept, key=lambda slot: worker.request(slot).order), self._step)

    def remember(self) -> None:
        """With every place taken, the waiting are looked at again when one of them has come or gone: counters alone
        change too often. Not so while there is no slot: nothing comes or goes when one is free again."""
        worker = self._worker
        is_full = worker.num_active >= worker.limits.max_num_seqs and worker.table.num_free_slots > 0
        certain = is_full and self._budget > 0 and not self._is_short and not self._num_passed
        worker.full_at_version = self._offers.version if certain else None

    # -- whose turn it is --

    def _goes_before(self, offer: Request, slot: int) -> bool:
        """A waiting request is of a higher class than a slot that waits to go on, or its tenant has had less."""
        resumed, service_received = self._worker.request(slot), self._offers.service_received
        if offer.rank != resumed.rank:
            return offer.rank < resumed.rank
        return (
            self._config.is_fair
            and offer.account is not resumed.account
            and service_received(offer) <= service_received(resumed)
        )

    def _next_resumable(self, resumable: deque[int]) -> int | None:
        """The first slot that could go on now. One that waits for blocks holds up nobody."""
        while resumable:
            if not self._awaits_blocks(self._worker.request(resumable[0])):
                return resumable[0]
            resumable.popleft()
        return None

    def _next_offer(self, resumable: deque[int]) -> Request | None:
        """The first waiting request, if it could be placed. One that waits for a leader's blocks, or for its turn to
        have its grammar compiled, holds up nobody."""
        worker, limits = self._worker, self._worker.limits
        if (resumable or worker.num_active >= limits.max_num_seqs) and not self._may_displace:
            return None  # it could not go before them
        is_full = worker.num_active >= limits.max_num_seqs
        if is_full and worker.full_at_version is not None and worker.full_at_version == self._offers.version:
            return None
        while self._budget > 0 and self._num_passed < limits.max_num_seqs and worker.table.num_free_slots:
            request = self._offers.peek()
            if request is None:
                return None
            if not self._awaits_blocks(request) and (not request.has_grammar or self._may_prepare):
                return request
            self._skip()
        return None

    def _awaits_blocks(self, request: Request) -> bool:
        return awaits_leader(self._worker, request) or awaits_copies(self._worker, request)

    def _skip(self) -> None:
        self._offers.skip()
        self._num_passed += 1

    def _may_start(self, request: Request) -> bool:
        """There is a place for `request`, or somebody who would have to make one; and something is left of the budget
        when those before it have had theirs."""
        worker, partial = self._worker, self._config.max_num_partial_prefills
        self.continue_prefills(request.rank)
        if self._budget <= 0:
            return False
        self._cut_budget(request.rank)
        if (
            partial
            and np.count_nonzero(worker.table.rank[worker.table.prefilling] <= request.rank) >= partial
        ):
            return False
        places, _ = reserved_for_others(worker, request)
        if not self._is_short and worker.num_active + places < worker.limits.max_num_seqs:
            return True
        if self._config.has_classes and may_displace(worker, request):
            return True
        return not self._is_short and self._excessive_row(request) is not None

    def _cut_budget(self, rank: int) -> None:
        """From here on the step belongs to the class and those below: while requests of a higher one are expected, they
        must not make it long. A quarter of what they may is theirs in any case, so that they go on."""
        most = self._config.lower_class_prefill_tokens
        if not most or self._is_cut or rank <= self._worker.recent_classes.highest(self._now):
            return
        self._is_cut = True
        num_used = self._whole_budget - self._budget
        cut = min(self._budget, max(most - num_used, -(-most // 4)))
        self._withheld, self._budget = self._budget - cut, cut

    def _excessive_row(self, request: Request) -> int | None:
        if not self._config.is_fair or self._worker.num_displaced >= self._worker.limits.max_num_seqs // 2:
            return None
        return excessive_row(self._worker, request, self._offers.service_received, self._busy)

    # -- slots that wait to go on --

    def _resume(self, slot: int, resumable: deque[int]) -> bool:
        """Requests that were displaced or preempted, or whose grammar is ready, go before new ones of their class."""
        worker, request = self._worker, self._worker.request(slot)
        if not self._may_start(request) or not worker.is_resumable(slot):
            return False
        if worker.table.paused[slot] & DISPLACED:
            resumable.popleft()
            return self._replace(slot)
        prefix = find_prefix(worker, slot, self._config.enable_prefix_caching)
        if find_leader(worker, slot, prefix) or self._waits_for_copies(slot, prefix):
            resumable.popleft()
            return True
        start = self._start(slot, prefix)
        if start is None:
            return False
        resumable.popleft()
        if request.status is RequestStatus.WAITING_FOR_FSM:
            self._may_prepare = worker.may_prepare
            request.num_cached_tokens = start.chunk.start
            self._offers.charge(request, start.chunk.start)
            self._step.prepared.append(request)
            worker.recent_classes.started(request.base_rank, self._now)
            self._step.started.append(start)
        else:
            self._step.resumed.append(start)
        request.move(RequestStatus.RUNNING)
        return True

    def _replace(self, slot: int) -> bool:
        """Gives a displaced slot its place back, with the blocks that the step needs."""
        worker, table = self._worker, self._worker.table
        advance = 1 + int(table.drafts[slot]) if table.state[slot] == SlotState.DECODE else 0
        lacking = table.blocks_needed(int(table.bound[slot]) + advance, slot) if advance else 0
        if advance > self._budget + self._withheld or not self._have_room(worker.request(slot), lacking):
            return False
        self._take_place(worker.request(slot))
        if lacking > 0:
            grant(worker, np.array([slot]), np.array([lacking]), self._step)
        table.return_place(slot, self._step)
        if advance:  # a prompt goes on in this step, when its turn comes
            self._busy.add(slot)
        of_withheld = min(advance, self._withheld)
        self._withheld -= of_withheld
        self._budget -= advance - of_withheld
        return True

    # -- waiting requests --

    def _start_offered(self, request: Request) -> bool:
        """Places a waiting request on this worker. One that does not fit holds up those behind it."""
        worker, table = self._worker, self._worker.table
        if not self._may_start(request):
            return False
        slot = table.place(request, worker.limit_of(request), worker.limits.num_draft_tokens)
        if request.has_grammar:
            table.prepare(slot)
            self._may_prepare = worker.may_prepare
            self._step.placed.append(self._offers.take())
            return True
        prefix = find_prefix(worker, slot, self._config.enable_prefix_caching)
        if find_leader(worker, slot, prefix) or self._waits_for_copies(slot, prefix):
            table.unplace(slot)
            self._skip()
            return True
        start = self._start(slot, prefix)
        if start is None:
            table.unplace(slot)
            return False
        request.move(RequestStatus.RUNNING)
        request.num_cached_tokens = start.chunk.start
        self._offers.charge(request, start.chunk.start)
        self._step.placed.append(self._offers.take())
        self._step.started.append(start)
        worker.recent_classes.started(request.base_rank, self._now)
        return True

    # -- room --

    def _start(self, slot: int, prefix: Prefix) -> Start | None:
        """Starts a slot that has no blocks, with room for all its known tokens; None when there is no room now."""
        worker, table = self._worker, self._worker.table
        known = int(table.num_prompt[slot] + table.num_output[slot])
        hits, host_hits, num_cached = prefix.hits, prefix.host_hits, prefix.num_blocks
        num_new = table.blocks_to_start(slot) - len(hits)
        if not self._could_start(slot, prefix):
            return None
        self._take_place(worker.request(slot))
        blocks = worker.start(slot, hits, host_hits, num_new, self._step)
        worker.stats.num_prefix_query_tokens += known
        worker.stats.num_prefix_hit_tokens += num_cached * table.block_size
        worker.stats.num_host_hit_tokens += len(host_hits) * table.block_size
        return Start(blocks, self._send_chunk(slot))

    def _could_start(self, slot: int, prefix: Prefix) -> bool:
        """There is room for all known tokens of `slot`, which has no blocks."""
        worker, table, config = self._worker, self._worker.table, self._config
        known = int(table.num_prompt[slot] + table.num_output[slot])
        if not config.enable_chunked_prefill and self._is_split(known - prefix.num_blocks * table.block_size):
            return False
        num_new = table.blocks_to_start(slot) - len(prefix.hits)
        headroom = config.watermark_blocks_per_seq * worker.num_active
        return self._have_room(worker.request(slot), num_new + headroom, prefix.hits)

    def _waits_for_copies(self, slot: int, prefix: Prefix) -> bool:
        """Whether `slot`, which has no blocks, waits for copies that run beside the steps: others' that bring what it
        lacks, or its own, which begin with this step."""
        worker, request, limit = self._worker, self._worker.request(slot), self._config.side_copy_blocks
        if not limit or not worker.host.num_blocks or request.fence is not None:
            return False
        request.fence = find_fence(worker, slot, prefix)
        if request.fence is not None:
            return True
        num_new = worker.table.blocks_to_start(slot) - len(prefix.hits)
        if not self._could_start(slot, prefix) or count_copies(worker, prefix, num_new) < limit:
            return False
        copy_aside(worker, slot, prefix, num_new, self._step)
        worker.stats.num_host_hit_tokens += len(prefix.host_hits) * worker.table.block_size
        return True

    def _is_split(self, num_tokens: int) -> bool:
        """So many tokens are too many for this step, and will fit into another one. What could never run in one step
        runs in chunks all the same: a request that has outgrown the budget by its output."""
        return self._budget < num_tokens <= self._worker.limits.max_num_batched_tokens

    def _have_room(self, request: Request, num_blocks: int, hits: Blocks = NO_BLOCKS) -> bool:
        """So many blocks are available besides `hits`, if need be after others have made room. One that makes room may
        have held some of the hits: then they count as available, and are not."""
        pool = self._worker.pool
        _, reserved = reserved_for_others(self._worker, request)
        while (lacking := num_blocks + reserved + pool.num_idle(hits) - pool.num_available) > 0:
            if not self._make_room(request, lacking):
                return False
        return True

    def _make_room(self, request: Request, num_lacking: int) -> bool:
        if self._config.has_classes:
            return make_room(self._worker, request, num_lacking, self._step)
        return make_idle_room(self._worker, num_lacking, self._step)

    def _take_place(self, request: Request) -> None:
        """Somebody leaves a place to `request`, unless one is free that nobody before it is to have."""
        worker = self._worker
        reserved, _ = reserved_for_others(worker, request)
        if worker.num_active + reserved < worker.limits.max_num_seqs:
            return
        if self._config.has_classes and may_displace(worker, request):
            make_place(worker, request, self._step)
        else:
            slot = self._excessive_row(request)
            if slot is not None:
                worker.displace(slot, self._step)

    def _send_chunk(self, slot: int) -> Chunk:
        """The next chunk of `slot`, at least one token."""
        table = self._worker.table
        start, target = int(table.num_sent[slot]), int(table.target[slot])
        threshold = self._config.long_prefill_token_threshold or self._budget
        length = min(target - start, self._budget, threshold)
        self._busy.add(slot)
        self._budget -= length
        return table.send_chunk(slot, length)
