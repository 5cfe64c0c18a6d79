"""What a worker knows of the checkpoints of its recurrent states (docs/design.md, CK).

The scheduler says when a state is to be kept, and who goes on from it. The worker says at which position that was, and
looks itself whether a checkpoint is that of the tokens that are to go on from it: nobody else has the tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from signalbox.protocol.block_groups import SPINE, StateGroup
from worker_svc.core.batch import Batch, BlockCopy, StateCopy, StateKeep
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.requests.state_versions import NOTHING, StateVersions
from worker_svc.core.step import CheckpointOrder, SlotStart

DIGEST_BYTES = 16


class KeptState(NamedTuple):
    """What a checkpoint holds."""

    position: int
    """Tokens that it has behind it."""
    digest: bytes
    """Hash of these tokens."""


class Checkpoints:
    """The checkpoints of one worker, and the last boundary that each slot has passed while it decoded."""

    def __init__(self, group: StateGroup | None, table: RequestTable, states: StateVersions) -> None:
        """group: None: there are no checkpoints, and nothing is done."""
        self.group, self._table, self._states = group, table, states
        self._kept: list[KeptState | None] = [None] * (group.num_checkpoints if group else 0)
        """What each holds; None: nothing that anybody could go on from."""
        self._saved: list[KeptState | None] = [None] * (group.num_host_checkpoints if group else 0)
        """What each of the host tier holds."""
        self.boundaries = np.zeros(table.num_slots, np.int32)
        """Position of the state that each slot keeps of its last boundary; 0: it keeps none."""
        self._number = SPINE + 1 + len(table.groups)
        self.boundary_version = states.num_versions
        """The version of a slot, behind those that steps write, that is its last boundary's."""

    def follow(self, copies: Sequence[BlockCopy]) -> None:
        """Copies between device and host tier, in order, of whatever group. They are made before all that the delta
        does to states."""
        for copy in copies:
            if copy.group == self._number:
                sources = self._saved if copy.source_is_host else self._kept
                targets = self._saved if copy.target_is_host else self._kept
                targets[copy.target] = sources[copy.source]

    def save(self, orders: Sequence[CheckpointOrder]) -> tuple[list[StateCopy], list[int]]:
        """Takes the orders of a delta ahead of all else in it. Returns the copies to be made, and the position of each
        order's state; 0: there is none, or it is not computed yet."""
        copies, positions = [], []
        for slot, checkpoint, position in orders:
            self._kept[checkpoint] = None
            positions.append(0)
            if not position and self._table.status[slot] != SlotStatus.FREE:
                version, positions[-1] = self._last_boundary(slot)
            if positions[-1]:
                copies.append(StateCopy(slot, version, checkpoint, is_restored=False))
                self._note(slot, checkpoint, positions[-1])
        return copies, positions

    def _last_boundary(self, slot: int) -> tuple[int, int]:
        """The version with the state of the last boundary that a slot is known to have passed, and its position."""
        assert self.group is not None
        position = int(self._states.num_tokens[slot])
        is_there = position and not position % self.group.boundary and not self._states.num_in_flight[slot]
        if is_there and (not self.group.prompts_only or position <= self._table.prefill_target[slot]):
            return int(self._states.version[slot]), position
        return self.boundary_version, int(self.boundaries[slot])

    def restore(self, start: SlotStart) -> list[StateCopy]:
        """The copy with which a slot goes on from a checkpoint; none: it begins, or the checkpoint is not that of its
        tokens, so that it cannot go on (`StateVersions.gap_ahead_of`)."""
        self.boundaries[start.slot] = 0
        checkpoint = start.checkpoint
        if checkpoint == NOTHING or self._kept[checkpoint] != self._state_of(start.slot, start.start):
            return []
        version = self._states.resume(start.slot, start.start)
        return [StateCopy(start.slot, version, checkpoint, is_restored=True)]

    def forget(self, slot: int) -> None:
        """The slot is another's."""
        self.boundaries[slot] = 0

    def keep(self, batch: Batch, orders: Sequence[CheckpointOrder]) -> None:
        """Says in a batch which states are to be kept on its way: those of `orders` with a position that a chunk of it
        passes, and those of boundaries that decode rows reach."""
        if self.group is None:
            return
        num_decode = batch.num_decode_rows
        if not self.group.prompts_only:
            batch.state_keeps = self._boundaries_of_rows(batch, self.group.boundary)
        row_of = {slot: row for row, slot in enumerate(batch.slots[num_decode:].tolist(), num_decode)}
        for slot, checkpoint, position in orders:
            row = row_of.get(slot)
            if row is None or not position:
                continue
            end = int(batch.query_starts[row + 1]) - (int(batch.seq_lens[row]) - position)
            if batch.query_starts[row] < end <= batch.query_starts[row + 1]:
                batch.state_keeps.append(StateKeep(row, end, checkpoint))

    def _boundaries_of_rows(self, batch: Batch, boundary: int) -> list[StateKeep]:
        num_decode = batch.num_decode_rows
        starts = batch.query_starts[:num_decode]
        # A row's last boundary may lie in its tail, but not in its drafts: nobody knows yet that they are right.
        behind = (batch.positions[starts] + 1) % boundary
        rows = np.flatnonzero(behind <= batch.state_tails[:num_decode])
        self.boundaries[batch.slots[rows]] = 0  # until it is written
        ends = (starts[rows] + 1 - behind[rows]).tolist()
        return [StateKeep(row, end, NOTHING) for row, end in zip(rows.tolist(), ends, strict=True)]

    def commit(
        self,
        batch: Batch,
        orders: Sequence[CheckpointOrder],
        failed: Collection[int],
        positions: list[int],
    ) -> None:
        """A step is committed: what it has kept counts, but for `failed` rows. Notes in `positions` what became of
        those of `orders` that it was to keep."""
        kept = {keep.checkpoint: keep.row for keep in batch.state_keeps if keep.row not in failed}
        for number, (slot, checkpoint, position) in enumerate(orders):
            if position and checkpoint in kept:
                positions[number] = position
                self._note(slot, checkpoint, position)
        for keep in batch.state_keeps:
            if keep.checkpoint == NOTHING and keep.row not in failed:
                behind = batch.query_starts[keep.row] - keep.end
                self.boundaries[batch.slots[keep.row]] = (
                    batch.positions[batch.query_starts[keep.row]] - behind
                )

    def position_of(self, checkpoint: int) -> int:
        """Tokens that a checkpoint has behind it; 0: it holds nothing."""
        kept = self._kept[checkpoint]
        return kept.position if kept is not None else 0

    def _note(self, slot: int, checkpoint: int, position: int) -> None:
        self._kept[checkpoint] = self._state_of(slot, position)

    def _state_of(self, slot: int, position: int) -> KeptState:
        tokens = self._table.tokens[slot, :position]
        return KeptState(position, blake2b(tokens.tobytes(), digest_size=DIGEST_BYTES).digest())
