"""Takes over a worker's table from its snapshot, in pieces: the one way back after any broken link.

Between the pieces others go on. So what is on its way is never half there: a slot is taken over whole, with its blocks,
and no step is made for the worker before all of them are (docs/liveness.md, W3). What of it is ended meanwhile is
released where it has come already, and is not wanted any more where it has not.
"""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.cluster.frontends import End
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.cluster.term import Term
from scheduler_svc.core.liveness.withdrawal import withdraw
from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.parts.disk.part import take_over_drops
from scheduler_svc.core.queue.queues import Queues
from scheduler_svc.core.recovery.adopted_handoffs import last_leg_before, settle, take_from_other
from scheduler_svc.core.recovery.snapshot import SlotSnapshot, WorkerSnapshot, pieces_of
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, BlockPool, Blocks
from scheduler_svc.core.state.requests.request import Request, RequestKey, RequestStatus
from scheduler_svc.core.state.slots.columns import cells
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.steps.step import Slots
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import SlotStatus


class Adoption:
    """A new worker, and what of its snapshot it does not have yet. The snapshot was checked."""

    def __init__(
        self,
        worker: Worker,
        old: Worker | None,
        snapshot: WorkerSnapshot | None,
        register: Register,
        queues: Queues,
        term: Term,
        handoffs: HandoffDesk,
    ) -> None:
        """`old` is what was known of the worker. What another scheduler than the one of `term` has placed is taken in
        if it is still wanted (T3)."""
        self.worker, self.old = worker, old
        self._register, self._queues, self._handoffs = register, queues, handoffs
        self._term = term
        self._is_own = snapshot is not None and term.is_own(snapshot.scheduler_instance)
        slots = snapshot.slots if snapshot is not None else []
        self._pieces = pieces_of(slots, lambda slot: len(slot.blocks))[::-1]
        self._withdrawn = [slot for slot in slots if slot.withdrawn]
        worker.is_arriving = True
        self.ended: list[tuple[RequestKey, int]] = []
        """Attempts that ended at the worker: their outputs are on their way to their frontends."""

    @property
    def is_done(self) -> bool:
        """All pieces have been taken."""
        return not self._pieces

    def begin(self, now: float) -> None:
        """The worker's name stands for the new one from now on. Blocks that turned out to be wrong while nobody heard
        it are forgotten (N2), as far as is known here who has read them."""
        old, self.worker.attached, self.worker.detached_at = self.old, False, now
        self._handoffs.pulls.attached(self.worker)
        if old is None or old.pool is not self.worker.pool:
            return
        known = [slot.slot for slot in self._withdrawn if _is_there(old, slot)]
        self._handoffs.withdraw(old, withdraw(old, known, self._register), now)
        take_over_drops(self.worker, old)
        self._withdrawn = [slot for slot in self._withdrawn if slot.slot not in known]

    def take_some(self, now: float) -> None:
        """Takes over the next piece."""
        running: list[SlotSnapshot] = []
        for slot in self._pieces.pop():
            self._charge_unreported(slot)
            self._take(slot, running, now)
        if running:
            _take_blocks(self.worker, running)

    def end(self) -> None:
        """All pieces have been taken: the worker's lists are put in order."""
        worker = self.worker
        worker.table.find_free_slots()
        _make_places(worker)
        for slot in self._withdrawn:
            worker.table.recall(slot.slot, slot.blocks, worker.pool.generations[slot.blocks])
            for window, (first, blocks) in zip(worker.windows, slot.group_tables, strict=False):
                window.recall(slot.slot, first, blocks)
        names = withdraw(worker, [slot.slot for slot in self._withdrawn], self._register)
        self._handoffs.withdraw(worker, names, worker.detached_at)
        worker.is_arriving = False

    def _take(self, slot: SlotSnapshot, running: list[SlotSnapshot], now: float) -> None:
        worker, register = self.worker, self._register
        known = register.requests.get(slot.request.key)
        if known is None and not self._is_own and register.is_orphan(slot.request):
            # One that this scheduler placed, it would know.
            register.add_orphan(slot.request, now)
            known = slot.request
            known.leg, known.newest_leg = slot.leg, last_leg_before(slot.leg, self._term.number)
        same = known is not None and known.attempt == slot.request.attempt
        elsewhere = (
            known is not None and known is not slot.request and known.worker_id != worker.info.worker_id
        )
        if known is not None and same and elsewhere:
            elsewhere = not take_from_other(self._handoffs, worker, slot, known)
        if known is None or not same or elsewhere:
            _discard_slot(worker, slot, slot.request)
            return
        if slot.leg:  # whoever gave it may have died with the word for its frontend
            self._handoffs.tell(known, worker, slot.leg)
        if slot.num_output_tokens and not known.num_prior_output_tokens and not known.is_pooling:
            register.answered(known, now)  # unless its report came: it may have been lost with the link
        if slot.status == SlotStatus.ENDED:
            _discard_slot(worker, slot, slot.request)
            if not known.in_doubt:
                self.ended.append((known.key, known.attempt))
            register.forget_ended(known, End(worker.process, slot.leg))
            return
        is_met = known is not slot.request
        if is_met:
            known.leg, known.newest_leg = slot.leg, max(known.newest_leg, slot.leg)
        _adopt_slot(worker, slot, known, running)
        settle(self._handoffs, worker, slot, known, now, is_met=is_met)
        if known.num_crashes and slot.num_output_tokens > known.num_prior_output_tokens:
            register.absolve(known)

    def _charge_unreported(self, slot: SlotSnapshot) -> None:
        """Charges what the worker has made since its last report: alone, or in steps whose reports went with the link
        (A7)."""
        known, old = self._register.requests.get(slot.request.key), self.old
        if known is None or old is None or known.attempt != slot.request.attempt or known.slot != slot.slot:
            return
        if known.worker_id == old.info.worker_id:
            made = slot.num_output_tokens - int(old.table.num_output[slot.slot])
            self._queues.charge_output(known, max(made, 0))


def _is_there(worker: Worker, slot: SlotSnapshot) -> bool:
    """The request has had its slot in the table of `worker`, and has it still."""
    request = worker.table.requests[slot.slot] if slot.slot < worker.table.num_slots else None
    return request is not None and (request.key, request.attempt) == (slot.request.key, slot.request.attempt)


def _adopt_slot(
    worker: Worker, snapshot: SlotSnapshot, request: Request, running: list[SlotSnapshot]
) -> None:
    """Puts a request that goes on into the worker's new table, as the snapshot says it stands. One that has blocks
    joins `running`."""
    table, slot, status = worker.table, snapshot.slot, snapshot.status_held
    _occupy(worker, snapshot, request)
    if status == SlotStatus.PREPARING and request.has_grammar:
        # Whether the grammar is ready, the worker says once more after its hello.
        request.status = RequestStatus.WAITING_FOR_FSM
        table.adopt_preparing(slot)
        return
    if status in (SlotStatus.PREPARING, SlotStatus.PREEMPTED):
        request.status, request.history.preempted_at = RequestStatus.PREEMPTED, 0
        table.adopt_preempted(slot)
        return
    request.status, request.entry.waits_since = RequestStatus.RUNNING, None
    running.append(snapshot)
    table.adopt_running(
        slot,
        snapshot.num_computed_tokens,
        snapshot.prefill_target,
        is_prefill=status == SlotStatus.PREFILL,
        is_paused=snapshot.paused,
        lane=snapshot.lane,
    )


def _take_blocks(worker: Worker, running: list[SlotSnapshot]) -> None:
    """Gives all that run their block tables, and makes the content of what is written findable. A block of theirs
    never keeps another content than theirs: it may have been lent, and written since."""
    table, pool = worker.table, worker.pool
    slots, lengths = (
        np.array([each.slot for each in running]),
        np.array([len(each.blocks) for each in running]),
    )
    blocks = np.concatenate([each.blocks for each in running])
    pool.claim(blocks)
    table.set_tables(slots, lengths, blocks, pool.generations[blocks])
    decodes = table.state[slots] == SlotState.DECODE
    written = np.where(decodes, table.bound[slots] - 1, table.num_computed[slots])
    counts = np.minimum(written // table.block_size, table.num_hashes[slots])
    _restate(worker, pool, slots, lengths, blocks, counts)
    if worker.checkpoints is not None:
        for slot in slots.tolist():
            is_kept = not worker.request(slot).needs_every_position
            computed, target = int(table.num_computed[slot]), int(table.target[slot])
            worker.checkpoints.adopt(slot, computed, target, is_kept=is_kept)
    for number, window in enumerate(worker.windows):
        tables = [each.group_tables[number] for each in running]
        firsts = np.array([first for first, _ in tables])
        lengths, blocks = np.array([len(held) for _, held in tables]), np.concatenate([b for _, b in tables])
        window.pool.claim(blocks)
        for slot, (first, held) in zip(slots.tolist(), tables, strict=True):
            window.adopt(slot, first, held)
        _restate(worker, window.pool, slots, lengths, blocks, counts, firsts)


def _restate(
    worker: Worker,
    pool: BlockPool,
    slots: Slots,
    lengths: Slots,
    blocks: Blocks,
    counts: Slots,
    firsts: Slots | None = None,
) -> None:
    """Makes what is written of one group findable: of each of `slots` the first `counts` blocks, of a table of
    `lengths` from `firsts` on. `blocks` are those of all slots."""
    rows, columns = cells(slots, lengths)
    if firsts is not None:
        columns = columns + np.repeat(firsts, lengths)
    is_known = columns < np.repeat(counts, lengths)
    pool.forget(blocks[~is_known])
    if worker.reset_at:  # they may have started before the reset
        pool.forget(blocks[is_known])
        return
    shared, places = np.unique(blocks[is_known], return_index=True)  # a shared block is one block
    places = np.flatnonzero(is_known)[places]
    pool.restate(shared, worker.table.hashes_at(rows[places], columns[places]))


def _make_places(worker: Worker) -> None:
    """Sees that no more requests go on than there are places: whoever goes last is displaced. A snapshot does not tell
    who was; one that is not paused on the worker is preempted with the next delta."""
    table = worker.table
    excess = worker.num_active - worker.limits.max_num_seqs
    if excess <= 0:
        return
    states = table.state
    running = np.flatnonzero((states == SlotState.DECODE) | (states == SlotState.PREFILL)).tolist()
    running = [slot for slot in running if slot not in table.frozen]
    held = set(table.held)
    running.sort(key=lambda slot: (slot in held, worker.request(slot).order), reverse=True)
    for slot in running[:excess]:
        if slot in held:
            table.displace_held(slot)
        else:
            table.refuse(slot)


def _discard_slot(worker: Worker, snapshot: SlotSnapshot, request: Request) -> None:
    """Lets the worker forget a slot that has ended, was cancelled or is another attempt's by now."""
    _occupy(worker, snapshot, request)
    worker.table.discard(snapshot.slot)


def _occupy(worker: Worker, snapshot: SlotSnapshot, request: Request) -> None:
    table, slot = worker.table, snapshot.slot
    table.adopt(
        slot,
        request,
        worker.info.limit_of(request),
        min(snapshot.max_draft_tokens, worker.limits.num_draft_tokens),
    )
    if table.drafts[slot] < snapshot.max_draft_tokens:
        table.want_drafts(slot, int(table.drafts[slot]))
    table.num_output[slot] = snapshot.num_output_tokens
    request.thawed_status = None
    request.worker_id = worker.info.worker_id
    if snapshot.sealed_hashes:
        sealed = np.frombuffer(snapshot.sealed_hashes, HASH_DTYPE)
        table.extend_hashes(slot, sealed)
