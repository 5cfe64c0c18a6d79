"""Slots that run, or are paused and keep their blocks: for want of a block, for somebody with more right to their
place, for a client that reads too slowly, by safe mode, for one step in which a suspect runs alone, or for another
worker that takes the request over. A slot runs while none of these holds.

Each change keeps flags, decode rows and lists in step with each other, and says in the delta where the slot ends up.
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from scheduler_svc.core.state.slots.columns import SlotColumns
from scheduler_svc.core.state.slots.slot_state import (
    DISPLACED,
    FROZEN,
    HELD,
    KEPT_PLACE,
    NO_PLACE,
    RESTING,
    RUNNING,
    SlotState,
    rest_of,
)
from scheduler_svc.core.state.steps.step import StepDecision


class PausedSlots(SlotColumns):
    """The part of `SlotTable` that is about slots with blocks. The lists hold slot numbers."""

    def __init__(
        self, num_slots: int, max_blocks: int, block_size: int, identity: bytes = b"", num_lanes: int = 1
    ) -> None:
        super().__init__(num_slots, max_blocks, block_size, identity, num_lanes)
        self.state = np.zeros(num_slots, np.uint8)
        self.paused = np.zeros(num_slots, np.uint8)
        self.effective_priority = np.zeros(num_slots, np.int64)
        """Class in force."""
        self.active_priority = np.full(num_slots, NO_PLACE, np.int64)
        """Class of slots that have a place in the batch, NO_PLACE for all others."""
        self.prefilling: list[int] = []
        """Known tokens of these have not been sent; in order of arrival."""
        self.settling: list[int] = []
        """The final chunk of these was in the last step: decode rows from the next one on."""
        self.displaced: list[int] = []
        """Slots that have no place: they were paused for somebody of a higher class, or rest."""
        self.held: list[int] = []
        """Decode slots that wait for a block."""
        self.rest_changes: list[int] = []
        """Slots that have begun to rest, or have ended it, since the last delta."""
        self.frozen: dict[int, np.uint8] = {}
        """Slots that another worker takes over, and why they were paused before, HELD and DISPLACED."""
        self.aside: list[int] = []
        """The last step has paused these for a suspect that ran alone in it: the next one lets them go on."""

    # -- blocks are short --

    def hold(self, slot: int, step: StepDecision) -> None:
        """Leaves a decode row out until there is a block for it."""
        if not self.paused[slot] & HELD:
            self.bound[slot] -= self.advance[slot]
            self.paused[slot] |= HELD
            self._set_row(slot, False)
            self.held.append(slot)
            _toggle(slot, step.paused_slots, step.unpaused_slots)

    def unhold(self, slot: int, step: StepDecision) -> None:
        """Lets a held slot run again, from this step on."""
        self.held.remove(slot)
        self.paused[slot] &= ~HELD
        if not self.paused[slot]:
            self._set_row(slot, True)
            self.bound[slot] += self.advance[slot]
            _toggle(slot, step.unpaused_slots, step.paused_slots)

    # -- others have the place --

    def displace(self, slot: int, step: StepDecision) -> None:
        """Pauses a running slot for somebody of a higher class, from this step on. It keeps its blocks."""
        if not self.paused[slot]:
            self.bound[slot] -= self.advance[slot]
            self._set_row(slot, False)
            _toggle(slot, step.paused_slots, step.unpaused_slots)
        self.paused[slot] |= DISPLACED
        self._lose_place(slot)
        self.request(slot).history.num_displacements += 1

    def return_place(self, slot: int, step: StepDecision) -> None:
        """Gives a displaced slot its place back, from this step on. A decode row has the blocks for it."""
        request = self.request(slot)
        self.displaced.remove(slot)
        self.paused[slot] &= ~DISPLACED
        self.effective_priority[slot] = self.active_priority[slot] = request.entry.effective_priority
        request.entry.waits_since = None
        if self.state[slot] == SlotState.PREFILL and self.num_sent[slot] < self.target[slot]:
            self._insert_prefilling(slot)
        if not self.paused[slot]:
            if self.state[slot] == SlotState.DECODE:
                self._set_row(slot, True)
                self.bound[slot] += self.advance[slot]
            _toggle(slot, step.unpaused_slots, step.paused_slots)

    # -- a suspect runs alone --

    def set_aside(self, step: StepDecision, suspect: int | None) -> None:
        """Pauses the rows of the lane for one step, in which only the suspect runs. The table goes on as if the step
        did not count: nothing of it changes until they are brought back with the step behind it."""
        settling = [slot for slot in self.settling if slot != suspect and not self.paused[slot]]
        settling = [slot for slot in settling if self.lane[slot] == self.turn_number]
        self.aside = step.aside_slots = [*self.turn.slots.tolist(), *settling]
        for slot in self.aside:
            _toggle(slot, step.paused_slots, step.unpaused_slots)

    def bring_back(self, step: StepDecision) -> None:
        """Lets those go on that were set aside. Whoever has ended meanwhile needs no word."""
        for slot in self.aside:
            if self.state[slot] == SlotState.DECODE or slot in self.settling:
                step.unpaused_slots.append(slot)
        self.aside = []

    # -- it rests --

    def set_client_paused(self, slot: int, paused: bool) -> None:
        """The client reads too slowly, or goes on."""
        request = self.request(slot)
        if request.client_paused != paused:
            request.client_paused = paused
            self._note_rest(slot)

    def set_suspended(self, slot: int, suspended: bool) -> None:
        """Safe mode suspends the class of the request, or does not any more."""
        request = self.request(slot)
        if request.suspended != suspended:
            request.suspended = suspended
            self._note_rest(slot)

    def apply_rests(self, step: StepDecision) -> None:
        """Carries what has begun or ended to rest since the last delta into this one."""
        for slot in self.rest_changes:
            self._apply_rest(slot, step)
        self.rest_changes = []

    def _note_rest(self, slot: int) -> None:
        """The next delta says whether the slot rests, unless the last one did."""
        request = self.request(slot)
        request.entry.waits_since = None
        if slot in self.rest_changes:
            self.rest_changes.remove(slot)
        if slot in self.frozen:  # it counts where it goes on
            return
        if self.state[slot] in RUNNING and self.paused[slot] & RESTING != rest_of(request):
            self.rest_changes.append(slot)

    def _apply_rest(self, slot: int, step: StepDecision) -> None:
        """Whoever rests gives up its place, and gets it back like whoever was displaced. A held slot is paused
        already."""
        before, rest = self.paused[slot], rest_of(self.request(slot))
        if not rest:
            self.paused[slot] = before & ~RESTING
            return
        self.paused[slot] = before & ~(HELD | RESTING) | rest | DISPLACED
        if not before:
            _toggle(slot, step.paused_slots, step.unpaused_slots)
            self._set_row(slot, False)
        if before & HELD:
            self.held.remove(slot)
        if not before & DISPLACED:
            self._lose_place(slot)

    # -- another worker takes it over --

    def freeze(self, slot: int) -> None:
        """Nothing of the slot changes from this step on, which is made. Whatever it waits for, it does not now; its
        blocks and its place are its own."""
        request, before = self.request(slot), self.paused[slot]
        self.frozen[slot] = before & (HELD | DISPLACED)
        self.paused[slot] = before & ~(HELD | DISPLACED) | FROZEN
        for members in (self.held, self.displaced, self.prefilling, self.rest_changes):
            if slot in members:
                members.remove(slot)
        if self.state[slot] in RUNNING:
            self._set_row(slot, False)
            self.active_priority[slot] = KEPT_PLACE
        request.freeze()

    def thaw(self, slot: int) -> None:
        """The slot goes on from this step on, as it was: a row before blocks are granted."""
        request, before = self.request(slot), self.frozen.pop(slot)
        request.thaw()
        self.paused[slot] = self.paused[slot] & ~FROZEN | before
        if self.state[slot] not in RUNNING:
            return
        self.active_priority[slot] = NO_PLACE if before & DISPLACED else self.effective_priority[slot]
        if before & DISPLACED:
            self.displaced.append(slot)
        if before & HELD:
            self.held.append(slot)
        if self.state[slot] == SlotState.DECODE:
            self._set_row(slot, not self.paused[slot])
        elif self.num_sent[slot] < self.target[slot] and not before & DISPLACED:
            self._insert_prefilling(slot)
        self._note_rest(slot)

    # -- below --

    def _order(self, slot: int) -> tuple[int, int, int]:
        return self.request(slot).order

    def _insert_prefilling(self, slot: int) -> None:
        insort(self.prefilling, slot, key=self._order)

    def _lose_place(self, slot: int) -> None:
        self.active_priority[slot] = NO_PLACE
        self.displaced.append(slot)
        if slot in self.prefilling:
            self.prefilling.remove(slot)


def _toggle(slot: int, wanted: list[int], opposite: list[int]) -> None:
    """Names `slot` in a delta's list, or takes it out of the opposite one: a delta says where a slot ends up."""
    if slot in opposite:
        opposite.remove(slot)
    else:
        wanted.append(slot)
