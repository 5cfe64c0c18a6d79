"""Slots whose requests are taken over from another worker: reserved, filled when all of it is here, and committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.parts.import_start import ImportStart
from signalbox.protocol.parts.names import WorkerName
from worker_svc.core.handoff.exports import Tail
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.core.step import NewRequest, RequestRef

I32 = NDArray[np.int32]


@dataclass(frozen=True)
class ImportRequest:
    """A request that is to be taken over: all that the scheduler says of it."""

    slot: int
    ref: RequestRef
    transfer: int
    key: bytes = field(repr=False)
    source: WorkerName
    address: str
    """host:port of the source."""
    leg: int
    scheduler_meta: bytes = field(default=b"", repr=False)


class BadTailError(Exception):
    """What the source says of a request contradicts itself, or what is here. The message is a sentence's end."""


@dataclass(eq=False)
class Import:
    """A request on its way here."""

    request: ImportRequest
    is_started: bool = False
    """It has its block table."""
    num_found: int = 0
    """Blocks at the head of its tables whose content was there."""
    is_ended: bool = False
    """All of it is here."""
    failure: str = ""
    """Why it never will be; empty: it may."""
    unread: Any = None
    """Outputs that its frontend has not acknowledged to the source, as whoever brought the tail keeps them."""

    @property
    def slot(self) -> int:
        """Where it goes to."""
        return self.request.slot


class Imports:
    """The imports of one worker, by slot."""

    def __init__(self, table: RequestTable, states: StateVersions) -> None:
        self._table, self._states = table, states
        self.by_slot: dict[int, Import] = {}

    def begin(self, request: ImportRequest) -> None:
        """Keeps a slot, which is free, for a request."""
        self._table.reserve(request.slot, request.ref, request.scheduler_meta, request.leg)
        self.by_slot[request.slot] = Import(request)

    def start(self, start: ImportStart) -> None:
        """Gives a slot its block table, as far as it is known."""
        found = self.by_slot.get(start.slot)
        if found is None or self._table.status[start.slot] != SlotStatus.IMPORTING:
            return
        groups = tuple((first, np.array(blocks, np.int32)) for first, blocks in start.groups)
        self._table.give_blocks(start.slot, np.array(start.blocks, np.int32), groups)
        self._states.reset(start.slot)
        found.is_started, found.num_found = True, start.num_found

    def drop(self, slot: int) -> None:
        """The slot is another's, or goes on."""
        self.by_slot.pop(slot, None)

    def open_slots(self) -> list[int]:
        """Slots whose import has not ended, those that failed included."""
        return [slot for slot, found in self.by_slot.items() if not found.is_ended]

    def tables(self, slot: int) -> list[tuple[int, I32]]:
        """By group: index of the first block, and the blocks, as they are granted by now."""
        table = self._table
        spine = table.blocks[slot, : table.num_blocks[slot]].copy()
        return [(0, spine), *((int(held.firsts[slot]), held.table(slot).copy()) for held in table.groups)]

    def missing(self, found: Import, written: list[set[int]], num_computed: int) -> str:
        """What of the blocks that a request needs is not here; empty: nothing is. written: by group, indexes of blocks
        whose content has come."""
        table, slot = self._table, found.slot
        end = -(-num_computed // table.block_size)
        for group, (first, blocks) in enumerate(self.tables(slot)):
            seen = 0
            if group != SPINE:
                seen = table.groups[group - 1].group.first_seen(num_computed) // table.block_size
            if end and not first <= seen <= end <= first + len(blocks):
                return f"{num_computed} positions are not in blocks {first} to {first + len(blocks)}"
            for index in range(max(seen, found.num_found), end):
                if index not in written[group]:
                    return f"block {index} of group {group} has not come"
        return ""

    def take(self, found: Import, request: NewRequest, tail: Tail) -> None:
        """All of a request is here: its slot is as the source's was, and waits for the scheduler's word. Raises
        BadTailError."""
        table, states, slot = self._table, self._states, found.slot
        check_tail(table, request, tail, has_states=bool(states.num_versions))
        table.fill(request)
        table.status[slot] = SlotStatus.IMPORTED
        table.num_computed[slot], table.num_read[slot] = tail.num_computed, num_read_of(tail, request)
        table.sealed[slot], table.chain[slot] = list(tail.sealed), tail.chain_hash
        table.next_seal[slot] = tail.next_seal
        if states.num_versions:
            states.resume(slot, tail.num_computed - tail.num_state_drafts)
            states.num_tail[slot] = tail.num_state_drafts
        found.is_ended = True

    def commit(self, slot: int, leg: int | None = None) -> Import | None:
        """The request in the slot is this worker's from now on, under `leg`, or None, the one that it came with.
        Returns None if it has ended here. Its blocks may have been taken with the same step."""
        found, table = self.by_slot.pop(slot, None), self._table
        if found is None or table.status[slot] not in (SlotStatus.IMPORTED, SlotStatus.PREEMPTED):
            return None
        table.status[slot] = SlotStatus.PREFILL if table.num_blocks[slot] else SlotStatus.PREEMPTED
        if leg is not None:
            table.legs[slot] = leg
        return found


def num_read_of(tail: Tail, request: NewRequest) -> int:
    """Prompt positions that were read, as `RequestTable.num_read`: behind a prompt that was read nothing is left."""
    num_prompt = len(request.token_ids) - request.num_prior_output_tokens
    is_whole = tail.num_read >= num_prompt
    return max(tail.num_read, tail.num_computed) if is_whole else tail.num_read


def check_tail(table: RequestTable, request: NewRequest, tail: Tail, *, has_states: bool) -> None:
    """Looks whether a tail can be that of a request that has not ended. Raises BadTailError."""
    num_tokens = len(request.token_ids)
    num_prompt = num_tokens - request.num_prior_output_tokens
    limit = min(num_prompt + request.max_tokens, table.tokens.shape[1])
    if not 0 <= tail.num_computed < num_tokens < limit:
        raise BadTailError(f"{tail.num_computed} of {num_tokens} tokens, of {limit} at most, are computed")
    if tail.num_read > num_tokens:
        raise BadTailError(f"{tail.num_read} positions were read of {num_tokens}")
    if tail.chain_hash and tail.next_seal * table.block_size > num_tokens:
        raise BadTailError(f"{tail.next_seal} blocks are sealed of {num_tokens} tokens")
    if tail.sealed and tail.sealed[-1] != tail.chain_hash:
        raise BadTailError("its chain is not that of the last block that was sealed")
    if has_states and tail.num_computed and tail.state_version is None:
        raise BadTailError("it has no recurrent state")
    if tail.num_state_drafts and not (has_states and tail.num_state_drafts < tail.num_computed):
        raise BadTailError(f"its state has {tail.num_state_drafts} drafts behind it")
