"""Slots that another worker reads: what of them can be read, and what they were when they were frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.parts.handoff import ExportOrder
from signalbox.protocol.parts.names import WorkerName
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.core.step import RequestRef

I32 = NDArray[np.int32]


class Stretch(NamedTuple):
    """Blocks of a request in one group, in a row."""

    group: int
    first: int
    """Index of the first of them in the request's table."""
    blocks: I32


@dataclass(frozen=True)
class Frozen:
    """What a slot was when it was frozen."""

    status: int
    runs: bool
    paused: bool


@dataclass(frozen=True)
class Tail:
    """All that a frozen request is besides its blocks; only what lies in the runner is missing."""

    token_ids: I32
    """All known tokens, prompt first."""
    num_computed: int
    num_read: int
    sealed: tuple[bytes, ...]
    chain_hash: bytes
    """Hash of the block before the next that is to be sealed; empty: none is."""
    next_seal: int
    """Index of that block."""
    state_version: int | None = None
    """Version of the slot's recurrent state; None: there is none."""
    num_state_drafts: int = 0
    """Positions at the end of the computed ones that the state has as drafts behind it (SG10)."""
    failure: str = ""
    """Why the request cannot be handed over after all; empty: it can."""


@dataclass(eq=False)
class Export:
    """A slot that one other worker may read."""

    slot: int
    ref: RequestRef
    transfer: int
    target: WorkerName
    key: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    """A serialized RequestPayload without tokens."""
    num_prompt_tokens: int
    token_ids: I32 = field(repr=False)
    """Tokens known when it began, prompt first."""
    said: list[int] = field(default_factory=list)
    """By group: index behind the last block that was said to be ready."""
    frozen: Frozen | None = None
    tail: Tail | None = None
    """Set with `frozen`, unless the slot has failed to be handed over."""


class Exports:
    """The exports of one worker, by slot. At most one each."""

    def __init__(self, table: RequestTable, states: StateVersions) -> None:
        self._table, self._states = table, states
        self.by_slot: dict[int, Export] = {}
        self._ended: dict[int, tuple[bool, bool]] = {}
        """Whether slots ran, and were paused, that were frozen when they had ended: while the scheduler does not know
        that, they are no rows of its steps, and may go on in its eyes."""

    def begin(self, order: ExportOrder) -> None:
        """Lets another worker read a slot; what was let before ends. Nothing is let of one that has ended."""
        self.by_slot.pop(order.slot, None)
        table, slot = self._table, order.slot
        ref = table.refs[slot]
        if ref is None or table.status[slot] not in EXPORTABLE:
            return
        self.by_slot[slot] = Export(
            slot,
            ref,
            order.transfer,
            order.target,
            order.key,
            table.payloads[slot],
            int(table.num_prompt_tokens[slot]),
            table.tokens[slot, : table.num_tokens[slot]].copy(),
            said=[0] * (1 + len(table.groups)),
        )

    def drop(self, slot: int) -> None:
        """The slot is read no more."""
        self.by_slot.pop(slot, None)
        self._ended.pop(slot, None)

    def freeze(self, slot: int) -> None:
        """Nothing of the slot changes any more; all steps before are committed. One that has ended stays ended, and is
        no row either."""
        export, table = self.by_slot.get(slot), self._table
        if table.status[slot] == SlotStatus.ENDED:
            self.drop(slot)
            self._ended[slot] = bool(table.runs[slot]), bool(table.paused[slot])
            table.runs[slot] = table.paused[slot] = False
            return
        if export is None or export.frozen is not None:
            return
        if table.status[slot] not in EXPORTABLE:
            self.drop(slot)
            return
        assert not table.num_in_flight[slot], "a slot is frozen while it runs"
        export.frozen = Frozen(
            int(table.status[slot]), runs=bool(table.runs[slot]), paused=bool(table.paused[slot])
        )
        export.tail = self._tail(slot)
        table.status[slot] = SlotStatus.FROZEN
        table.runs[slot] = table.paused[slot] = False

    def thaw(self, slot: int, leg: int) -> None:
        """The slot goes on as it was, under another leg; without blocks, if they were taken with the same step."""
        export, table = self.by_slot.pop(slot, None), self._table
        if slot in self._ended:
            table.runs[slot], table.paused[slot] = self._ended.pop(slot)
        if export is None or export.frozen is None:
            return
        if table.status[slot] == SlotStatus.FROZEN:
            table.status[slot] = export.frozen.status
            table.runs[slot], table.paused[slot] = export.frozen.runs, export.frozen.paused
        table.legs[slot] = leg

    def go_on(self, export: Export) -> bool:
        """The worker is alone, and nobody else can have a frozen request: it goes on as it was, under its leg. False:
        it is not frozen any more, or has ended."""
        frozen, slot = export.frozen, export.slot
        if self.by_slot.get(slot) is not export or frozen is None:
            return False
        self.thaw(slot, int(self._table.legs[slot]))
        return True

    def status_of(self, slot: int) -> int:
        """What the slot does, or did when it was frozen."""
        export = self.by_slot.get(slot)
        return export.frozen.status if export and export.frozen else int(self._table.status[slot])

    def frozen(self, slot: int) -> Frozen | None:
        """What the slot was when it was frozen; None: it is not."""
        export = self.by_slot.get(slot)
        return export.frozen if export is not None else None

    def prune(self) -> None:
        """Ends the exports of requests that have ended."""
        for slot in list(self.by_slot):
            if self._table.status[slot] in (SlotStatus.ENDED, SlotStatus.FREE):
                self.drop(slot)

    def rest(self) -> None:
        """The link has ended: what was not frozen is read no more, and decodes or does not, as everything here."""
        self._ended.clear()
        for slot, export in list(self.by_slot.items()):
            if export.frozen is None:
                self.drop(slot)
                continue
            decodes = export.frozen.status == SlotStatus.DECODE
            export.frozen = Frozen(
                export.frozen.status, runs=decodes, paused=export.frozen.paused and decodes
            )

    def news(self, export: Export) -> list[Stretch]:
        """Blocks that can be read by now, and were not said before; all steps up to now are committed, or touch none of
        them."""
        stretches = []
        for group in range(1 + len(self._table.groups)):
            first, blocks = self._readable(export, group)
            skipped = max(export.said[group] - first, 0)
            if len(blocks) > skipped:
                stretches.append(Stretch(group, first + skipped, blocks[skipped:].copy()))
                export.said[group] = first + len(blocks)
        return stretches

    def first_needed(self, slot: int) -> list[int]:
        """By group: index of the first block that a query of the slot, now or later, looks at. What lies ahead is
        perhaps another's by now."""
        table, position = self._table, int(self._table.num_computed[slot])
        return [0, *(group.group.first_seen(position) // table.block_size for group in table.groups)]

    def _readable(self, export: Export, group: int) -> tuple[int, I32]:
        """Index of the first, and the blocks of a group whose content does not change."""
        table, slot = self._table, export.slot
        num_computed, size = int(table.num_computed[slot]), table.block_size
        end = num_computed // size if export.frozen is None else -(-num_computed // size)
        if group == SPINE:
            return 0, table.blocks[slot, : min(end, int(table.num_blocks[slot]))]
        held = table.groups[group - 1]
        first = max(self.first_needed(slot)[group], int(held.firsts[slot]))
        return first, held.blocks[slot, first : max(first, min(end, int(held.ends[slot])))]

    def _tail(self, slot: int) -> Tail:
        table, states = self._table, self._states
        num_computed, version, num_drafts, failure = int(table.num_computed[slot]), None, 0, ""
        if states.num_versions and num_computed:
            version, num_drafts = int(states.version[slot]), int(states.num_tail[slot])
            behind = int(states.num_tokens[slot]) + num_drafts
            if behind != num_computed:
                failure = f"its recurrent state is that of position {behind}, not of {num_computed}"
        return Tail(
            table.tokens[slot, : table.num_tokens[slot]].copy(),
            num_computed,
            int(table.num_read[slot]),
            tuple(table.sealed[slot]),
            table.chain[slot],
            int(table.next_seal[slot]),
            version,
            num_drafts,
            failure,
        )


EXPORTABLE: Sequence[int] = (
    SlotStatus.PREPARING,
    SlotStatus.PREFILL,
    SlotStatus.DECODE,
    SlotStatus.PREEMPTED,
)
"""What a slot can be whose request another worker takes over."""
