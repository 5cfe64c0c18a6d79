"""The numbers of the requests placed on one worker, as columns indexed by slot.

Lengths of a request, in tokens: `num_computed <= num_sent <= target` while it prefills, where computed is confirmed by
reports and sent is what steps in flight will add; while it decodes, `prompt + num_output <= bound`, where the bound is
what prompt and output can have grown to by the end of the steps sent. Confirmed counts lag the worker's, never lead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, Blocks, Hashes
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.lane_rows import LaneRows
from scheduler_svc.core.state.steps.step import Slots

Generations = NDArray[np.uint32]

NEVER = np.iinfo(np.int64).max


def cells(slots: Slots, lengths: Slots) -> tuple[Slots, Slots]:
    """Rows and columns of the first `lengths` cells of the rows `slots`, row by row."""
    rows = np.repeat(slots, lengths)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return rows, np.arange(len(rows)) - starts


class SlotColumns:
    """Columns of `num_slots` rows; block tables of up to `max_blocks` blocks."""

    def __init__(
        self, num_slots: int, max_blocks: int, block_size: int, identity: bytes = b"", num_lanes: int = 1
    ) -> None:
        self.identity = identity
        """Key of the worker's: which names of blocks are meant here."""
        self.num_slots = num_slots
        self.max_blocks = max_blocks
        self.block_size = block_size
        self.requests: list[Request | None] = [None] * num_slots
        self.num_prompt = np.zeros(num_slots, np.int64)
        self.num_output = np.zeros(num_slots, np.int64)
        """Confirmed output tokens, prior ones included."""
        self.num_computed = np.zeros(num_slots, np.int64)
        self.num_sent = np.zeros(num_slots, np.int64)
        self.target = np.zeros(num_slots, np.int64)
        self.bound = np.zeros(num_slots, np.int64)
        self.limit = np.zeros(num_slots, np.int64)
        """Prompt plus output can never be longer."""
        self.trigger = np.full(num_slots, NEVER, np.int64)
        """A bound above this needs another block."""
        self.drafts = np.zeros(num_slots, np.int32)
        self.account = np.zeros(num_slots, np.int64)
        """Whom its tokens are charged to. It stays until the slot is used again, so that late reports find it."""
        self.started_at = np.zeros(num_slots, np.int64)
        """Step that gave it its blocks. It stays until the slot is used again, so that late reports find it."""
        self.num_found = np.zeros(num_slots, np.int64)
        """Blocks at the head of its table that it found, and did not compute since it last started. It stays until the
        slot is used again."""
        self.is_spoilt = np.zeros(num_slots, np.bool_)
        """It has read blocks that have turned out to be wrong since it last started."""
        self.sat_out = np.zeros(num_slots, np.bool_)
        """Its last row made no token, as its mask was late (G6) or its step was skipped: its next may make none."""
        self.some_sat_out = False
        """False: `sat_out` is of nobody, but where drafts are counted."""
        self.num_blocks = np.zeros(num_slots, np.int64)
        self.blocks = np.zeros((num_slots, max_blocks), np.int32)
        self.generations = np.zeros((num_slots, max_blocks), np.uint32)
        """Generation of each block when this table got it. A released table stays readable until the slot is used
        again, so that late seals can still be told from another holder's."""
        self._hashes = np.zeros((num_slots, max_blocks), HASH_DTYPE)
        self.num_hashes = np.zeros(num_slots, np.int64)
        self.lane = np.zeros(num_slots, np.uint8)
        """The lane that each slot's decode row is of, if it is one."""
        self.lanes = [LaneRows(num_slots) for _ in range(num_lanes)]
        self.turn_number, self.turn = 0, self.lanes[0]
        """The lane whose turn the step is that is made, or was made last."""
        self.decode_tokens = 0
        """Most new tokens of all decode rows, in as many steps as there are lanes. `_set_row` alone writes it, and what
        comes next."""
        self.has_drafts = False
        """A decode row had some, now or before."""

    def request(self, slot: int) -> Request:
        """The request that holds `slot`."""
        request = self.requests[slot]
        assert request is not None
        return request

    def _reset(self, slot: int, request: Request, limit: int, drafts: int) -> None:
        """The slot is kept for `request`, which need not have it yet."""
        hashes = self.hashes_of(request)
        self._hashes[slot, : len(hashes)] = hashes  # too many of them raise, before anything has changed
        self.num_hashes[slot] = len(hashes)
        self.requests[slot] = request
        self.num_prompt[slot] = request.num_prompt_tokens
        self.num_output[slot] = request.num_prior_output_tokens
        self.num_computed[slot] = self.num_sent[slot] = 0
        self.target[slot] = self.bound[slot] = request.num_known_tokens
        self.limit[slot] = limit
        self.drafts[slot] = drafts
        account = request.entry.account
        self.account[slot] = account.index if account is not None else 0
        self.started_at[slot] = self.num_found[slot] = 0
        self.num_blocks[slot] = 0
        self.sat_out[slot] = False
        self.trigger[slot] = NEVER

    # -- blocks --

    def set_blocks(self, slot: int, blocks: NDArray[np.int32], generations: NDArray[np.uint32]) -> None:
        """Gives `slot` a whole block table."""
        self.blocks[slot, : len(blocks)] = blocks
        self.generations[slot, : len(blocks)] = generations
        self.num_blocks[slot] = len(blocks)
        self.update_triggers(np.array([slot]))

    def set_tables(self, slots: Slots, lengths: Slots, blocks: Blocks, generations: Generations) -> None:
        """Gives each of `slots` a whole block table, of so many blocks; `blocks` are those of all slots, one behind the
        other."""
        rows, columns = cells(slots, lengths)
        self.blocks[rows, columns] = blocks
        self.generations[rows, columns] = generations
        self.num_blocks[slots] = lengths
        self.update_triggers(slots)

    def recall(self, slot: int, blocks: Blocks, generations: Generations) -> None:
        """The table that a slot had when its request ended, as `blocks` says."""
        self.blocks[slot, : len(blocks)] = blocks
        self.generations[slot, : len(blocks)] = generations

    def append_blocks(self, slots: Slots, blocks: NDArray[np.int32], generations: NDArray[np.uint32]) -> None:
        """Appends one block each to different slots."""
        index = self.num_blocks[slots]
        self.blocks[slots, index] = blocks
        self.generations[slots, index] = generations
        self.num_blocks[slots] = index + 1
        self.update_triggers(slots)

    def update_triggers(self, slots: Slots) -> None:
        """Sets when the next block is needed: the last of `bound` tokens has no KV yet, hence the + 1."""
        covered = self.num_blocks[slots] * self.block_size + 1
        self.trigger[slots] = np.where(covered < self.limit[slots], covered, NEVER)

    def blocks_needed(self, bound: int, slot: int) -> int:
        """Blocks that `slot` lacks for all positions up to `bound` tokens."""
        positions = min(bound, int(self.limit[slot])) - 1
        return -(-positions // self.block_size) - int(self.num_blocks[slot])

    def confirmed(self, slots: Slots) -> NDArray[np.int64]:
        """Position of the first query of each of `slots`, which run, that no report has confirmed."""
        computed = self.num_computed[slots]
        decoding = self.num_prompt[slots] + self.num_output[slots] - 1
        return np.where(computed < self.target[slots], computed, decoding)

    def table(self, slot: int) -> NDArray[np.int32]:
        """Block ids of `slot`, in order."""
        return self.blocks[slot, : self.num_blocks[slot]]

    # -- hashes --

    def hashes_of(self, request: Request) -> Hashes:
        """Content hashes that `request` came with for this worker. Those of blocks of another size, or for workers of
        another identity, name other content (I8)."""
        return np.frombuffer(request.names_on(self.identity, self.block_size).hashes, HASH_DTYPE)

    def hashes(self, slot: int, start: int, end: int) -> Hashes:
        """Content hashes of blocks `[start, end)` of `slot`."""
        return self._hashes[slot, start:end]

    def hashes_at(self, slots: Slots, indexes: NDArray[np.int64]) -> Hashes:
        """Content hashes of single blocks, one per (slot, index)."""
        found: Hashes = self._hashes[slots, indexes]
        return found

    def add_hashes(self, slots: Slots, indexes: NDArray[np.int64], hashes: Hashes) -> None:
        """Remembers hashes of sealed blocks. They belong to the tokens, so they outlive the blocks. Indexes of one
        slot ascend."""
        self._hashes[slots, indexes] = hashes
        self.num_hashes[slots] = indexes + 1

    def extend_hashes(self, slot: int, hashes: Hashes) -> None:
        """Remembers hashes of sealed blocks behind those that are known."""
        first = int(self.num_hashes[slot])
        self._hashes[slot, first : first + len(hashes)] = hashes
        self.num_hashes[slot] = first + len(hashes)

    # -- decode rows --

    @property
    def advance(self) -> NDArray[np.int32]:
        """Most new tokens per slot in the step that is made; not to be written by others."""
        return self.turn.advance

    @property
    def decode_slots(self) -> Slots:
        """Slots that are decode rows of any lane, ascending."""
        if len(self.lanes) == 1:
            return self.turn.slots
        return np.sort(np.concatenate([lane.slots for lane in self.lanes]))

    def begin_turn(self, step_id: int) -> None:
        """A step is made: it is the turn of its lane."""
        self.turn_number = step_id % len(self.lanes)
        self.turn = self.lanes[self.turn_number]

    def change_lane(self, slot: int, lane: int) -> None:
        """From the step that is made on, the row of `slot` is one of another lane."""
        is_row = bool(self.lanes[self.lane[slot]].advance[slot])
        self._set_row(slot, False)
        self.lane[slot] = lane
        self._set_row(slot, is_row)

    def _set_row(self, slot: int, runs: bool) -> None:
        """Makes `slot` a decode row of its lane's steps from now on, or not."""
        advance = 1 + int(self.drafts[slot]) if runs else 0
        self.decode_tokens += self.lanes[self.lane[slot]].set(slot, advance)
        self.has_drafts = self.has_drafts or advance > 1

    def limit_drafts(self, slot: int, limit: int) -> None:
        """Changes how many drafts `slot` may have in the steps from now on."""
        self.drafts[slot] = limit
        if self.lanes[self.lane[slot]].advance[slot]:
            self._set_row(slot, True)
