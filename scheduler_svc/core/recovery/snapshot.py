"""What a worker that says hello holds by its own word: its snapshot, and whether that can be true. It is taken over in
`adoption`: the one way back after any broken link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.cluster.term import Term, TermError
from scheduler_svc.core.parts.make import add_parts
from scheduler_svc.core.queue.refusal import malformation_of
from scheduler_svc.core.recovery.kept_cache import is_same_cache, keep_cache
from scheduler_svc.core.state.blocks.block_pool import NO_BLOCKS, Blocks
from scheduler_svc.core.state.config import SchedulerConfig, resolve
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_info import WorkerInfo
from signalbox.protocol.enums import SlotStatus
from signalbox.protocol.hash_chain import HASH_BYTES

T = TypeVar("T")
PIECE_SLOTS = 128
"""What is done in one go: half of 20 ms on a slow machine, reading or adopting."""
MAX_STEP_ID = 1 << 62
"""No worker has made more steps."""
BLOCKS_PER_SLOT = 256
"""So many blocks cost as much as another slot, about."""


_FREEZABLE = (SlotStatus.PREPARING, SlotStatus.PREFILL, SlotStatus.DECODE, SlotStatus.PREEMPTED)


class SnapshotError(ValueError):
    """A snapshot contradicts itself: no scheduler will ever take it. Any other reason to refuse a hello is one of
    settings, which an operator can mend."""


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
    group_tables: tuple[tuple[int, Blocks], ...] = ()
    """In each group but the spine: index of the first block, and the blocks."""
    withdrawn: bool = False
    """Whether the request has ended because its numbers were not finite: what it has published is wrong (N2)."""
    leg: int = 0
    """The leg of its attempt that this worker has (HO2)."""
    transfer: int = 0
    """Number of its hand-off, where the slot is frozen or was taken over."""
    other: Process | None = None
    """The worker at the other end of that."""
    frozen_status: SlotStatus = SlotStatus.ENDED
    """What a frozen slot was."""
    lane: int = 0
    """The lane of its decode row."""

    @property
    def status_held(self) -> SlotStatus:
        """What the slot does once it goes on."""
        if self.status == SlotStatus.FROZEN:
            return self.frozen_status
        if self.status == SlotStatus.IMPORTED:
            return SlotStatus.PREFILL if len(self.blocks) else SlotStatus.PREEMPTED
        return self.status


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
    """Blocks that the worker has written alone: what was known of their content is wrong."""
    groups_written_alone: list[Blocks] = field(default_factory=list)
    """As `blocks_written_alone`, of the other groups, in order; it may end early."""
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
    if snapshot is not None:
        check_numbers(snapshot, term)
    limits = resolve(
        config,
        num_slots=info.num_slots,
        max_num_batched_tokens=info.max_num_batched_tokens,
        max_request_tokens=info.max_request_tokens,
        max_draft_tokens=info.max_draft_tokens,
        num_lanes=info.num_lanes,
    )
    worker = Worker(info, limits)
    add_parts(worker, config)
    same = old if old is not None and old.info.instance == info.instance else None
    worker.draining = same is not None and same.draining
    worker.role = info.role if same is None else same.role
    if snapshot is not None:
        rest = snapshot.slots[snapshot.num_checked :]
        check_slots(info, rest, {slot.slot for slot in snapshot.slots[: snapshot.num_checked]})
        written_alone = _written_alone(info, snapshot)
        worker.next_step_id, worker.last_reported = snapshot.last_step_id + 1, snapshot.last_step_id
        if same is not None and term.is_own(snapshot.scheduler_instance) and is_same_cache(worker, same):
            keep_cache(worker, same, snapshot.last_scheduled_step_id, written_alone)
        if same is not None and same.reset_at:
            worker.reset_at = worker.next_step_id
    return worker


def _written_alone(info: WorkerInfo, snapshot: WorkerSnapshot) -> list[Blocks]:
    """The blocks of each group that the worker has written alone. Raises SnapshotError."""
    said = [snapshot.blocks_written_alone, *snapshot.groups_written_alone]
    sizes = [info.num_blocks, *(group.num_blocks for group in info.groups)]
    if len(said) > len(sizes):
        raise SnapshotError(f"it wrote blocks of {len(said)} groups alone, and has {len(sizes)}")
    for blocks, size in zip(said, sizes, strict=False):
        if blocks.max(initial=0) >= size:
            raise SnapshotError(f"a block that it wrote alone is none of {size}")
    return [*said, *[NO_BLOCKS] * (len(sizes) - len(said))]


def check_numbers(snapshot: WorkerSnapshot, term: Term) -> None:
    """Raises SnapshotError for a term or a step that nobody has come to, and that would leave no number behind it."""
    try:
        term.check(snapshot.scheduler_epoch, snapshot.scheduler_instance)
    except TermError as error:
        raise SnapshotError(str(error)) from None
    last = max(snapshot.last_step_id, snapshot.last_scheduled_step_id)
    if last > MAX_STEP_ID:
        raise SnapshotError(f"its last step is {last}, above {MAX_STEP_ID}, which nobody has come to")


def pieces_of(slots: Sequence[T], num_blocks: Callable[[T], int]) -> list[list[T]]:
    """Slots, in pieces that take about as long each."""
    pieces: list[list[T]] = []
    room = 0
    for slot in slots:
        if room <= 0:
            pieces.append([])
            room = PIECE_SLOTS
        pieces[-1].append(slot)
        room -= 1 + num_blocks(slot) // BLOCKS_PER_SLOT
    return pieces


def check_slots(info: WorkerInfo, slots: list[SlotSnapshot], seen: set[int]) -> None:
    """Raises SnapshotError with a sentence when a worker cannot be what its snapshot says, so that adopting the slots
    cannot fail half way. `seen` are slots that were named before; these are added."""
    for slot in slots:
        if slot.slot >= info.num_slots or slot.slot in seen:
            raise SnapshotError(f"slot {slot.slot}, of {info.num_slots}, is named twice or is none")
        seen.add(slot.slot)
        problem = _contradiction_of(info, slot)
        if problem:
            raise SnapshotError(f"slot {slot.slot}: {problem}")


def _contradiction_of(info: WorkerInfo, snapshot: SlotSnapshot) -> str:
    """What cannot be true of a slot; empty: nothing."""
    malformation = malformation_of(snapshot.request)
    if malformation is not None:
        return malformation.message
    if snapshot.lane >= info.num_lanes:
        return f"it is of lane {snapshot.lane}, of {info.num_lanes}"
    if snapshot.status in (SlotStatus.FROZEN, SlotStatus.IMPORTED) and snapshot.other is None:
        return "it does not say who is at the other end of its transfer"
    blocks, status = snapshot.blocks, snapshot.status_held
    if snapshot.status == SlotStatus.FROZEN and status not in _FREEZABLE:
        return f"it is frozen, and was {status.name}"
    num_tokens = snapshot.request.num_prompt_tokens + snapshot.num_output_tokens
    if num_tokens > info.max_request_tokens:
        return f"it has {num_tokens} tokens, and {info.max_request_tokens} are allowed"
    names = snapshot.request.names_on(info.identity.key, info.block_size)
    num_hashes = len(names.hashes) // HASH_BYTES
    num_sealed, rest = divmod(len(snapshot.sealed_hashes), HASH_BYTES)
    if rest or num_hashes + num_sealed > num_tokens // info.block_size:
        return f"{num_hashes} hashes and {len(snapshot.sealed_hashes)} bytes more for {num_tokens} tokens"
    if status not in (SlotStatus.PREFILL, SlotStatus.DECODE):
        known = not len(blocks) or (
            blocks.max() < info.num_blocks and len(blocks) <= info.max_blocks_per_request
        )
        if not known:
            return f"it has {len(blocks)} blocks, up to {blocks.max()}, of {info.num_blocks}"
        return _stray_table(info, snapshot)
    needed = snapshot.prefill_target if status == SlotStatus.PREFILL else num_tokens - 1
    if len(blocks) * info.block_size < needed or len(blocks) > info.max_blocks_per_request:
        return f"it has {len(blocks)} blocks for {needed} positions"
    if blocks.max(initial=0) >= info.num_blocks or len(set(blocks.tolist())) < len(blocks):
        return f"a block stands twice in its table, or is none of {info.num_blocks}"
    return _contradiction_of_groups(info, snapshot, num_tokens)


def _stray_table(info: WorkerInfo, snapshot: SlotSnapshot) -> str:
    """A table of a group, of a slot that does not run, that is no table; empty: there is none."""
    if len(snapshot.group_tables) > len(info.groups):
        return f"it has tables of {len(snapshot.group_tables)} groups, of {len(info.groups)}"
    for group, (first, blocks) in zip(info.groups, snapshot.group_tables, strict=False):
        end = first + len(blocks)
        if end > info.max_blocks_per_request or blocks.max(initial=0) >= group.num_blocks:
            return f"it has blocks {first} to {end} of a group, up to {blocks.max(initial=0)}"
    return ""


def _contradiction_of_groups(info: WorkerInfo, snapshot: SlotSnapshot, num_tokens: int) -> str:
    """What cannot be true of its tables in the groups but the spine; empty: nothing."""
    if len(snapshot.group_tables) != len(info.groups):
        return f"it has tables of {len(snapshot.group_tables)} groups, of {len(info.groups)}"
    is_prefill = snapshot.status_held == SlotStatus.PREFILL
    position = snapshot.num_computed_tokens if is_prefill else num_tokens - 1
    for group, (first, blocks) in zip(info.groups, snapshot.group_tables, strict=True):
        end, wanted = first + len(blocks), group.first_seen(position) // info.block_size
        if first > wanted or end * info.block_size < position or end > len(snapshot.blocks):
            return f"it has blocks {first} to {end} of a group, at position {position}"
        if not is_prefill and end != len(snapshot.blocks):
            return f"it has blocks up to {end} of a group, and {len(snapshot.blocks)} of the spine"
        if blocks.max(initial=0) >= group.num_blocks or len(set(blocks.tolist())) < len(blocks):
            return f"a block stands twice in its table, or is none of {group.num_blocks}"
    return ""
