"""Takes over a worker's table from its snapshot: the one way back after any broken link."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.block_pool import HASH_DTYPE, NO_BLOCKS
from scheduler_svc.core.config import SchedulerConfig, resolve
from scheduler_svc.core.kept_cache import is_same_cache, keep_cache
from scheduler_svc.core.queues import Queues
from scheduler_svc.core.refusal import malformation_of
from scheduler_svc.core.register import Register
from scheduler_svc.core.request import HASH_BYTES, Request, RequestStatus
from scheduler_svc.core.request_table import DISPLACED, HELD, NO_PLACE, SlotState, cells
from scheduler_svc.core.term import Term
from scheduler_svc.core.worker import Worker
from scheduler_svc.core.worker_info import WorkerInfo


class SlotStatus(IntEnum):
    """What a slot does, in the worker's words; numbers as in scheduler.proto."""

    PREPARING = 1
    PREFILL = 2
    DECODE = 3
    PREEMPTED = 4
    ENDED = 5


@dataclass(frozen=True)
class SlotSnapshot:
    """One slot as the worker holds it."""

    slot: int
    request: Request
    """Rebuilt from the metadata that the worker echoes."""
    status: SlotStatus
    blocks: NDArray[np.int32]
    sealed_hashes: bytes
    num_computed_tokens: int
    num_output_tokens: int
    prefill_target: int
    max_draft_tokens: int = 0
    paused: bool = False


@dataclass
class WorkerSnapshot:
    """All slots of a worker, with no step in flight."""

    scheduler_epoch: int
    last_step_id: int
    slots: list[SlotSnapshot]
    scheduler_instance: str = ""
    """Process of the scheduler that it obeyed last; empty: it is not said."""
    last_scheduled_step_id: int = 0
    """Last step of that scheduler that ran; 0: none. Those behind it the worker has made itself."""
    blocks_written_alone: NDArray[np.int32] = field(default_factory=lambda: NO_BLOCKS)
    """By those. What was known of their content is wrong."""
    num_checked: int = 0
    """So many of the slots, the first of them, have been checked."""


def make_worker(
    info: WorkerInfo,
    snapshot: WorkerSnapshot | None,
    config: SchedulerConfig,
    old: Worker | None,
    term: Term,
) -> Worker:
    """The state of a worker that says hello, with an empty table. `old` is what was known of it; if it is still
    the same process, some of that holds, and it is `old`'s no more.

    Raises ValueError with a sentence when its offer and our settings, or its snapshot and itself, contradict each
    other.
    """
    limits = resolve(
        config,
        num_slots=info.num_slots,
        max_num_batched_tokens=info.max_num_batched_tokens,
        max_request_tokens=info.max_request_tokens,
        max_draft_tokens=info.max_draft_tokens,
    )
    worker = Worker(info, limits)
    same = old if old is not None and old.info.instance == info.instance else None
    worker.draining = same is not None and same.draining
    if snapshot is not None:
        rest = snapshot.slots[snapshot.num_checked :]
        check_slots(info, rest, {slot.slot for slot in snapshot.slots[: snapshot.num_checked]})
        if snapshot.blocks_written_alone.max(initial=0) >= info.num_blocks:
            raise ValueError(f"a block that it wrote alone is none of {info.num_blocks}")
        worker.next_step_id, worker.last_reported = snapshot.last_step_id + 1, snapshot.last_step_id
        if same is not None and term.is_own(snapshot.scheduler_instance) and is_same_cache(worker, same):
            keep_cache(worker, same, snapshot.last_scheduled_step_id, snapshot.blocks_written_alone)
        if same is not None and same.reset_at:
            worker.reset_at = worker.next_step_id
    return worker


def check_slots(info: WorkerInfo, slots: list[SlotSnapshot], seen: set[int]) -> None:
    """Raises ValueError with a sentence when a worker cannot be what its snapshot says, so that adopting the slots
    cannot fail half way. `seen` are slots that were named before; these are added."""
    for slot in slots:
        if slot.slot >= info.num_slots or slot.slot in seen:
            raise ValueError(f"slot {slot.slot}, of {info.num_slots}, is named twice or is none")
        seen.add(slot.slot)
        problem = _contradiction_of(info, slot)
        if problem:
            raise ValueError(f"slot {slot.slot}: {problem}")


def _contradiction_of(info: WorkerInfo, snapshot: SlotSnapshot) -> str:
    """What cannot be true of a slot; empty: nothing."""
    malformation = malformation_of(snapshot.request)
    if malformation is not None:
        return malformation.message
    blocks = snapshot.blocks
    num_tokens = snapshot.request.num_prompt_tokens + snapshot.num_output_tokens
    if num_tokens > info.max_request_tokens:
        return f"it has {num_tokens} tokens, and {info.max_request_tokens} are allowed"
    usable = snapshot.request.hash_block_size == info.block_size
    num_hashes = len(snapshot.request.block_hashes) // HASH_BYTES if usable else 0
    num_sealed, rest = divmod(len(snapshot.sealed_hashes), HASH_BYTES)
    if rest or num_hashes + num_sealed > num_tokens // info.block_size:
        return f"{num_hashes} hashes and {len(snapshot.sealed_hashes)} bytes more for {num_tokens} tokens"
    if snapshot.status not in (SlotStatus.PREFILL, SlotStatus.DECODE):
        return ""
    needed = snapshot.prefill_target if snapshot.status == SlotStatus.PREFILL else num_tokens - 1
    if len(blocks) * info.block_size < needed or len(blocks) > info.max_blocks_per_request:
        return f"it has {len(blocks)} blocks for {needed} positions"
    if blocks.max(initial=0) >= info.num_blocks or len(set(blocks.tolist())) < len(blocks):
        return f"a block stands twice in its table, or is none of {info.num_blocks}"
    return ""


def adopt(worker: Worker, snapshot: WorkerSnapshot, register: Register, term: Term, now: float) -> None:
    """Takes over what a new `worker` holds, by its snapshot, which was checked. What another scheduler than the one of
    `term` has placed is taken in if it is still wanted (T3)."""
    is_own = term.is_own(snapshot.scheduler_instance)
    running: list[SlotSnapshot] = []
    worker.table.reserve({slot.slot for slot in snapshot.slots})
    for slot in snapshot.slots:
        known = register.requests.get(slot.request.key)
        if known is None and not is_own and register.is_orphan(slot.request):
            # One that this scheduler placed, it would know.
            register.add_orphan(slot.request, now)
            known = slot.request
        same = known is not None and known.attempt == slot.request.attempt
        elsewhere = (
            known is not None and known is not slot.request and known.worker_id != worker.info.worker_id
        )
        if known is None or not same or elsewhere:
            _discard_slot(worker, slot, slot.request)
            continue
        if slot.num_output_tokens and not known.num_prior_output_tokens and not known.is_pooling:
            register.answered(known, now)  # unless its report came: it may have been lost with the link
        if slot.status == SlotStatus.ENDED:
            _discard_slot(worker, slot, slot.request)
            register.forget(known)
        else:
            _adopt_slot(worker, slot, known, running)
    if running:
        _take_blocks(worker, running)
    worker.prefilling.sort(key=lambda slot: worker.request(slot).order)
    _make_places(worker)


def charge_unreported(old: Worker, snapshot: WorkerSnapshot, register: Register, queues: Queues) -> None:
    """Charges what a worker has made since its last report: alone, or in steps whose reports went with the link (A7).
    `old` is what was known of it."""
    for slot in snapshot.slots:
        known = register.requests.get(slot.request.key)
        if known is None or known.attempt != slot.request.attempt or known.slot != slot.slot:
            continue
        if known.worker_id == old.info.worker_id:
            made = slot.num_output_tokens - int(old.table.num_output[slot.slot])
            queues.charge_output(known, max(made, 0))


def _adopt_slot(
    worker: Worker, snapshot: SlotSnapshot, request: Request, running: list[SlotSnapshot]
) -> None:
    """Puts a request that goes on into the worker's new table, as the snapshot says it stands. One that has blocks
    joins `running`."""
    table, slot = worker.table, snapshot.slot
    _occupy(worker, snapshot, request)
    if snapshot.status == SlotStatus.PREPARING and request.has_grammar:
        # Whether the grammar is ready, the worker says once more after its hello.
        request.status, table.state[slot] = RequestStatus.WAITING_FOR_FSM, SlotState.PREPARING
        return
    if snapshot.status in (SlotStatus.PREPARING, SlotStatus.PREEMPTED):
        request.status, request.preempted_at = RequestStatus.PREEMPTED, 0
        worker.preempted.append(slot)
        return
    request.status, request.waits_since = RequestStatus.RUNNING, None
    running.append(snapshot)
    table.num_computed[slot] = table.num_sent[slot] = min(
        snapshot.num_computed_tokens, snapshot.prefill_target
    )
    table.target[slot] = snapshot.prefill_target
    table.bound[slot] = table.num_prompt[slot] + table.num_output[slot]
    worker.num_running += 1
    table.place_rank[slot] = request.rank
    if snapshot.status == SlotStatus.PREFILL:
        table.state[slot] = SlotState.PREFILL
        worker.prefilling.append(slot)
    else:
        table.state[slot] = SlotState.DECODE
        # Whoever had paused it: held, it goes on as soon as it can.
        table.paused[slot] = HELD if snapshot.paused else 0
        if snapshot.paused:
            worker.held.append(slot)
        table.set_row(slot, not snapshot.paused)
    if request.rests:
        worker.toggled.append(slot)


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
    rows, columns = cells(slots, lengths)
    is_known = columns < np.repeat(counts, lengths)
    pool.forget(blocks[~is_known])
    if worker.reset_at:  # they may have started before the reset
        pool.forget(blocks[is_known])
        return
    firsts = np.empty(pool.num_blocks, np.int64)
    places = np.flatnonzero(is_known)
    firsts[blocks[places[::-1]]] = places[::-1]
    places = places[firsts[blocks[places]] == places]  # a shared block is one block
    pool.restate(blocks[places], table.hashes_at(rows[places], columns[places]))


def _make_places(worker: Worker) -> None:
    """Sees that no more requests go on than there are places: whoever goes last is displaced. A snapshot does not tell
    who was; one that is not paused on the worker is preempted with the next delta."""
    table = worker.table
    excess = worker.num_active - worker.limits.max_num_seqs
    states = table.state
    running = np.flatnonzero((states == SlotState.DECODE) | (states == SlotState.PREFILL)).tolist()
    held = set(worker.held)
    running.sort(key=lambda slot: (slot in held, worker.request(slot).order), reverse=True)
    for slot in running[: max(excess, 0)]:
        if slot in worker.held:
            worker.held.remove(slot)
            worker.displaced.append(slot)
            table.paused[slot], table.place_rank[slot] = DISPLACED, NO_PLACE
        else:
            worker.refused.append(slot)


def _discard_slot(worker: Worker, snapshot: SlotSnapshot, request: Request) -> None:
    """Lets the worker forget a slot that has ended, was cancelled or is another attempt's by now."""
    _occupy(worker, snapshot, request)
    worker.table.state[snapshot.slot] = SlotState.RELEASING
    worker.releasing.append(snapshot.slot)


def _occupy(worker: Worker, snapshot: SlotSnapshot, request: Request) -> None:
    table, slot = worker.table, snapshot.slot
    table.adopt(
        slot,
        request,
        worker.info.limit_of(request),
        min(snapshot.max_draft_tokens, worker.limits.num_draft_tokens),
    )
    if table.drafts[slot] < snapshot.max_draft_tokens:
        worker.wanted_drafts[slot] = int(table.drafts[slot])
    table.num_output[slot] = snapshot.num_output_tokens
    request.worker_id = worker.info.worker_id
    if snapshot.sealed_hashes:
        sealed = np.frombuffer(snapshot.sealed_hashes, HASH_DTYPE)
        table.extend_hashes(slot, sealed)
