"""What every slot of one worker is doing: its state, why it is paused, and whose turn comes next. `SlotTable` alone
writes any of this; everybody else asks it for a change by name, and reads.

A slot is free, is placed without blocks (PREPARING, PREEMPTED), runs (PREFILL, DECODE), or is RELEASING. Who is to be
started, paused or preempted is decided elsewhere. A change that the worker has to know of is named in the delta of the
step it comes with.
"""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import Blocks, Hashes
from scheduler_svc.core.state.requests.order import classes_risen
from scheduler_svc.core.state.requests.request import Request, RequestStatus
from scheduler_svc.core.state.slots.columns import NEVER, Generations
from scheduler_svc.core.state.slots.pauses import PausedSlots
from scheduler_svc.core.state.slots.slot_state import (
    DISPLACED,
    ENDED,
    HELD,
    NO_PLACE,
    RUNNING,
    SlotState,
)
from scheduler_svc.core.state.steps.step import Chunk, StepDecision


class SlotTable(PausedSlots):
    """Columns and lists over `num_slots` slots. The lists hold slot numbers."""

    def __init__(
        self, num_slots: int, max_blocks: int, block_size: int, identity: bytes = b"", num_lanes: int = 1
    ) -> None:
        """`identity`: key of the worker's."""
        super().__init__(num_slots, max_blocks, block_size, identity, num_lanes)
        self.num_running = 0
        """Slots that hold blocks: prefilling, decoding, paused."""
        self.num_preparing = 0
        """Slots whose requests wait for their grammar, or have yet to start behind it."""
        self.preempted: list[int] = []
        """Blocks of these were taken."""
        self.prepared: list[int] = []
        """The grammar of these is ready, and they have not started."""
        self.refused: list[int] = []
        """The worker did not run a row of these: their counts are uncertain until they are preempted."""
        self.importing: list[int] = []
        """Slots kept for requests that other workers have."""
        self.releasing: list[int] = []
        """The next delta names these as finished."""
        self.wanted_drafts: dict[int, int] = {}
        """Drafts that slots have asked for since the last delta, which allows them."""
        self.free_slots = list(range(num_slots - 1, -1, -1))
        """Slots that a request could be placed in; the last one is taken first."""
        self._resume_order: tuple[list[int], float, list[int]] = ([], 0.0, [])
        """Slots that wait to go on, until when their order holds, and the order."""

    # -- what can be read --

    @property
    def num_free_slots(self) -> int:
        """Slots that a request could be placed in."""
        return len(self.free_slots)

    @property
    def not_running(self) -> list[int]:
        """Slots that start, or go on, when there is room: preempted, prepared, displaced; those that rest included."""
        return [*self.preempted, *self.prepared, *self.displaced]

    @property
    def has_waiting(self) -> bool:
        """A slot that does not run wants to: it goes before whoever is not placed yet."""
        return any(not self.request(slot).rests for slot in self.not_running)

    def holds(self, request: Request) -> bool:
        """The request has its slot in this table. One that is to be adopted has had it in an older one."""
        slot = request.slot
        return slot is not None and slot < self.num_slots and self.requests[slot] is request

    def resume_queue(self, aging_s: float, now: float) -> list[int]:
        """Slots that start, or go on, when there is room, in order. They age by one class per `aging_s` seconds; 0:
        never. Those that rest are none of them, and do not age."""
        members = [slot for slot in self.not_running if not self.request(slot).rests]
        if not members:
            return members
        known, until, order = self._resume_order
        if members == known and now < until:
            return order
        until = np.inf
        for slot in members:
            entry = self.request(slot).entry
            if entry.waits_since is None:
                entry.begin_to_wait(now)
            if aging_s and entry.waits_since is not None:
                levels = classes_risen(entry.waits_since, now, aging_s)
                entry.effective_priority = self.effective_priority[slot] = entry.priority_at_wait - levels
                until = min(until, entry.waits_since + (levels + 1) * aging_s)
        order = sorted(members, key=self._order)
        self._resume_order = (members, until, order)
        return order

    # -- a slot is taken --

    def place(self, request: Request, limit: int, drafts: int) -> int:
        """Gives `request` a slot, without blocks until it is started."""
        slot = self.free_slots[-1]
        self.adopt(slot, request, limit, drafts)
        return self.free_slots.pop()

    def prepare(self, slot: int) -> None:
        """The request waits for its grammar."""
        self.adopt_preparing(slot)
        self.request(slot).move(RequestStatus.WAITING_FOR_FSM)

    def grammar_ready(self, slot: int) -> None:
        """The request may start. Saying so twice changes nothing."""
        if slot not in self.prepared:
            self.prepared.append(slot)

    # -- it runs --

    def start(
        self, slot: int, step_id: int, num_found: int, blocks: Blocks, generations: Generations
    ) -> None:
        """The slot has its blocks with this step, the content of the first `num_found` included."""
        self.started_at[slot], self.num_found[slot], self.is_spoilt[slot] = step_id, num_found, False
        # Preempted while a step was made, it may have kept what it was to make in it.
        self.target[slot] = self.bound[slot] = self.num_prompt[slot] + self.num_output[slot]
        self.num_computed[slot] = self.num_sent[slot] = num_found * self.block_size
        self.set_blocks(slot, blocks, generations)
        for waiting in (self.preempted, self.prepared):
            if slot in waiting:
                waiting.remove(slot)
        self.num_preparing -= bool(self.state[slot] == SlotState.PREPARING)
        self.state[slot] = SlotState.PREFILL
        request = self.request(slot)
        self.effective_priority[slot] = self.active_priority[slot] = request.entry.effective_priority
        request.entry.waits_since = request.history.fence = None
        request.history.loaded_on = ""
        self.num_running += 1
        if request.rests:  # it was paused before it had a slot: from the next step on
            self.rest_changes.append(slot)

    def send_chunk(self, slot: int, length: int) -> Chunk:
        """The next `length` known tokens of the slot go with the step that is made."""
        start = int(self.num_sent[slot])
        self.num_sent[slot] = start + length
        is_final = start + length == int(self.target[slot])
        if is_final:
            self._settle(slot)
            if slot in self.prefilling:
                self.prefilling.remove(slot)
        elif slot not in self.prefilling:
            self._insert_prefilling(slot)
        return Chunk(slot, start, length, is_final)

    def decode_settled(self) -> None:
        """Slots whose final chunk is sent become decode rows, unless they are paused."""
        for slot in self.settling:
            self.state[slot] = SlotState.DECODE
            self._set_row(slot, not self.paused[slot])
        self.settling = []

    def refuse(self, slot: int) -> None:
        """The worker did not run a row of the slot: it is preempted with the next delta."""
        if self.state[slot] in RUNNING and slot not in self.refused:
            self.refused.append(slot)

    def want_drafts(self, slot: int, limit: int) -> None:
        """So many drafts are allowed with the next delta."""
        self.wanted_drafts[slot] = limit

    def allow_drafts(self, step: StepDecision) -> None:
        """Before blocks are granted: the worker may use its new limits in this very step."""
        for slot, limit in self.wanted_drafts.items():
            if self.state[slot] not in ENDED:
                self.limit_drafts(slot, limit)
                step.draft_limits.append((slot, limit))
        self.wanted_drafts = {}

    # -- it ends, or loses its blocks --

    def preempt(self, slot: int, step: StepDecision) -> Blocks:
        """Takes all blocks of a running slot with the delta of `step`. Returns them."""
        blocks = self._leave(slot)
        self._set_row(slot, False)
        self.paused[slot] = 0
        self.state[slot] = SlotState.PREEMPTED
        for toggles in (step.paused_slots, step.unpaused_slots):
            if slot in toggles:
                toggles.remove(slot)
        step.preempted_slots.append(slot)
        step.ungrant(slot)  # what it was granted in this step went with its blocks
        request = self.request(slot)
        request.move(RequestStatus.PREEMPTED)
        request.history.preempted_at = step.step_id
        request.history.num_preemptions += 1
        self.preempted.append(slot)
        return blocks

    def release(self, slot: int, status: RequestStatus) -> Blocks | None:
        """Ends whatever the slot does, for finish, cancel, error and loss alike. Returns the blocks that it held; None:
        it had none. Idempotent."""
        state = self.state[slot]
        if state in ENDED:
            return None
        self.request(slot).move(status)
        return self.let_go(slot)

    def let_go(self, slot: int) -> Blocks | None:
        """The slot is to be free: its request has ended, or goes on elsewhere. Returns its blocks; None: it had
        none."""
        blocks = self._leave(slot) if self.state[slot] in RUNNING else None
        for waiting in (self.preempted, self.prepared):
            if slot in waiting:
                waiting.remove(slot)
        self.frozen.pop(slot, None)
        self.num_preparing -= bool(self.state[slot] == SlotState.PREPARING)
        self.state[slot], self.paused[slot] = SlotState.RELEASING, 0
        self.releasing.append(slot)
        return blocks

    def name_released(self) -> list[int]:
        """Slots that have ended since the last delta, which the next one names. They are no rows any more."""
        released, self.releasing = self.releasing, []
        for slot in released:
            self._set_row(slot, False)
        return released

    def free(self, slot: int) -> None:
        """Returns a slot whose release the worker has confirmed."""
        assert self.state[slot] == SlotState.RELEASING
        self._empty(slot)

    # -- it is taken over from another worker --

    def place_import(self, request: Request, limit: int, drafts: int) -> int:
        """Keeps a slot for `request`, which stays where it is until then (`take_over`)."""
        slot = self.free_slots.pop()
        self._reset(slot, request, limit, drafts)
        self.state[slot], self.paused[slot] = SlotState.IMPORTING, 0
        self.effective_priority[slot] = request.entry.effective_priority
        self.importing.append(slot)
        return slot

    def note_found(self, slot: int, num_found: int) -> None:
        """The content of so many blocks at the head of its table was there."""
        self.num_found[slot], self.is_spoilt[slot] = num_found, False

    def take_over(
        self, slot: int, num_computed: int, num_output: int, sealed: Hashes, started_at: int
    ) -> None:
        """The request is here, with `num_computed` positions and the names of the blocks behind those that it came
        with: it goes on from there, without blocks like one that was preempted."""
        self.importing.remove(slot)
        request = self.request(slot)
        request.slot = slot
        request.thaw()
        self.num_output[slot] = num_output
        self.extend_hashes(slot, sealed)
        self.started_at[slot] = started_at
        self.target[slot] = self.bound[slot] = self.num_prompt[slot] + num_output
        self.num_computed[slot] = self.num_sent[slot] = num_computed
        self.effective_priority[slot] = request.entry.effective_priority
        request.history.preempted_at, request.history.prefix_wait = 0, None
        request.entry.waits_since = request.history.fence = None
        if not self.num_blocks[slot]:
            self.state[slot], request.status = SlotState.PREEMPTED, RequestStatus.PREEMPTED
            self.preempted.append(slot)
            return
        self.state[slot], request.status = SlotState.PREFILL, RequestStatus.RUNNING
        self.update_triggers(np.array([slot]))
        self.active_priority[slot] = self.effective_priority[slot]
        self.num_running += 1
        self._insert_prefilling(slot)
        if request.rests:
            self.rest_changes.append(slot)

    def displace_arrived(self, slot: int) -> None:
        """There is no place for it now. The worker need not be told: it waits for a chunk."""
        self.paused[slot] = DISPLACED
        self._lose_place(slot)

    def drop_import(self, slot: int, *, is_told: bool) -> Blocks:
        """The request does not come. Returns the blocks that were kept for it. `is_told`: the worker knows the slot,
        and forgets it with the next delta."""
        blocks = self.table(slot)
        self.importing.remove(slot)
        self.num_blocks[slot], self.trigger[slot] = 0, NEVER
        if is_told:
            self.state[slot] = SlotState.RELEASING
            self.releasing.append(slot)
        else:
            self._empty(slot)
        return blocks

    # -- it is taken over from a worker's snapshot --

    def adopt(self, slot: int, request: Request, limit: int, drafts: int) -> None:
        """Gives a slot to the request that a snapshot says is there, without blocks. Behind the last one comes
        `find_free_slots`."""
        self._reset(slot, request, limit, drafts)
        request.slot = slot
        self.state[slot] = SlotState.PREEMPTED
        self.paused[slot] = 0
        self.effective_priority[slot] = request.entry.effective_priority

    def adopt_preparing(self, slot: int) -> None:
        """It waits for its grammar; the worker says once more when that is ready."""
        self.num_preparing += 1
        self.state[slot] = SlotState.PREPARING

    def adopt_preempted(self, slot: int) -> None:
        """It has no blocks."""
        self.preempted.append(slot)

    def adopt_running(
        self, slot: int, num_computed: int, target: int, *, is_prefill: bool, is_paused: bool, lane: int = 0
    ) -> None:
        """It has blocks, which come with `set_tables`. Whoever had paused a decode row: held, it goes on as soon as it
        can."""
        self.num_computed[slot] = self.num_sent[slot] = min(num_computed, target)
        self.target[slot] = target
        self.bound[slot] = self.num_prompt[slot] + self.num_output[slot]
        self.lane[slot] = lane
        self.num_running += 1
        self.active_priority[slot] = self.effective_priority[slot]
        if is_prefill:
            self.state[slot] = SlotState.PREFILL
            self.prefilling.append(slot)
        else:
            self.state[slot] = SlotState.DECODE
            if is_paused:
                self.paused[slot] = HELD
                self.held.append(slot)
            self._set_row(slot, not is_paused)
        if self.request(slot).rests:
            self.rest_changes.append(slot)

    def discard(self, slot: int) -> None:
        """It has ended, was cancelled, or is another attempt's by now: the worker is to forget it."""
        self.state[slot] = SlotState.RELEASING
        self.releasing.append(slot)

    def displace_held(self, slot: int) -> None:
        """A slot that is held has no place either. The worker need not be told: it is paused."""
        self.held.remove(slot)
        self.paused[slot] = DISPLACED
        self._lose_place(slot)

    def find_free_slots(self) -> None:
        """All have been adopted: slots that nobody was adopted in can be used, and prefills are in order."""
        self.free_slots = np.flatnonzero(self.state == SlotState.FREE)[::-1].tolist()
        self.prefilling.sort(key=self._order)

    # -- below --

    def _settle(self, slot: int) -> None:
        """The final chunk is sent: one token comes from it, and from the next step on the slot is a decode row of the
        lane whose turn this step is. A pooling request ends with it, so nothing follows."""
        self.bound[slot] = self.target[slot] + 1
        self.lane[slot] = self.turn_number
        if not self.request(slot).is_pooling:
            self.settling.append(slot)

    def _leave(self, slot: int) -> Blocks:
        """Takes a running slot out of every list. Returns its blocks."""
        blocks = self.table(slot)
        self.num_blocks[slot] = 0
        self.trigger[slot] = NEVER
        self.active_priority[slot] = NO_PLACE
        self.num_running -= 1
        lists = (self.prefilling, self.settling, self.held, self.displaced, self.refused, self.rest_changes)
        for members in lists:
            if slot in members:
                members.remove(slot)
        return blocks

    def _empty(self, slot: int) -> None:
        self.requests[slot] = None
        self.state[slot] = SlotState.FREE
        self.free_slots.append(slot)
