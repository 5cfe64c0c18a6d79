"""The worker's requests, as columns indexed by slot. This is the authority: nobody else holds the tokens.

Lengths: `0 <= num_computed <= num_tokens <= limit`. While a request prefills, `num_computed < prefill_target =
num_tokens`; while it decodes, `num_computed = num_tokens - 1`: the last sampled token has no KV yet. A pooling request
never decodes. Of the steps that are applied and not committed the table knows one number, `num_in_flight`: the next
query token of a slot is at `num_computed + num_in_flight`, and is known if that is below `num_tokens`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import FinishReason
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.requests.group_tables import GroupTable
from worker_svc.core.requests.pooling import PoolingParams, Reading
from worker_svc.core.requests.sampling import SamplingTable
from worker_svc.core.step import Failure, NewRequest, RequestRef


class SlotStatus:
    """What a slot does; numbers as in from_worker.proto. Not an Enum: its members are slow to look up."""

    FREE: Final = 0
    PREPARING: Final = 1
    PREFILL: Final = 2
    DECODE: Final = 3
    PREEMPTED: Final = 4
    ENDED: Final = 5
    IMPORTED: Final = 6
    FROZEN: Final = 7
    IMPORTING: Final = 8
    """Its request is on its way from another worker; no snapshot tells of it."""


class RequestTable:
    """Columns of `num_slots` rows, sequences of up to `max_model_len` tokens."""

    def __init__(
        self,
        num_slots: int,
        max_model_len: int,
        block_size: int,
        num_blocks: int,
        groups: tuple[BlockGroup, ...] = (),
        num_lanes: int = 1,
    ) -> None:
        self.num_slots, self.num_lanes, self.block_size = num_slots, num_lanes, block_size
        max_blocks = -(-max_model_len // block_size)
        self.status = np.zeros(num_slots, np.uint8)
        self.runs = np.zeros(num_slots, np.bool_)
        """A decode row of the steps from now on, in the scheduler's eyes too: also after it has ended, until that has
        been acknowledged."""
        self.lane = np.zeros(num_slots, np.uint8)
        """The lane that each decode row is of: it runs in the turns of that alone (LA1)."""
        self.paused = np.zeros(num_slots, np.bool_)
        self.tokens = np.zeros((num_slots, max_model_len), np.int32)
        self.num_tokens = np.zeros(num_slots, np.int32)
        self.num_prompt_tokens = np.zeros(num_slots, np.int32)
        self.num_computed = np.zeros(num_slots, np.int32)
        self.num_in_flight = np.zeros(num_slots, np.int32)
        """Query tokens of the steps that are applied and not committed."""
        self.prefill_target = np.zeros(num_slots, np.int32)
        self.limit = np.zeros(num_slots, np.int32)
        """Prompt plus output can never be longer."""
        self.max_drafts = np.zeros(num_slots, np.int32)
        self.blocks = np.zeros((num_slots, max_blocks), np.int32)
        self.num_blocks = np.zeros(num_slots, np.int32)
        self.holders = np.zeros(num_blocks, np.int32)
        """By block: block tables that it stands in (C1)."""
        self.groups = [GroupTable(group, num_slots, max_blocks, block_size) for group in groups]
        """Block tables in the groups but the spine."""
        self.next_seal = np.zeros(num_slots, np.int32)
        """Index of the first block that has not been sealed: behind the known full blocks of the prompt."""
        self.chain: list[bytes] = [b""] * num_slots
        """Hash of the block before `next_seal`; empty: seal nothing."""
        self.sealed: list[list[bytes]] = [[] for _ in range(num_slots)]
        self.sampling = SamplingTable(num_slots)
        self.pooling: list[PoolingParams | None] = [None] * num_slots
        self.reads_prompt = np.zeros(num_slots, np.bool_)
        """Prompt positions yield something besides KV: log-probabilities or parts of a vector."""
        self.num_read = np.zeros(num_slots, np.int32)
        """Prompt positions that have yielded it; a preemption does not take that back."""
        self.readings: list[Reading | None] = [None] * num_slots
        """What has been read of the prompts of pooling requests."""
        self.refs: list[RequestRef | None] = [None] * num_slots
        self.attempts = np.zeros(num_slots, np.uint32)
        self.metas: list[bytes] = [b""] * num_slots
        self.legs = np.zeros(num_slots, np.uint32)
        """How often the right to run the attempt was given, when it was given to us (HO2)."""
        self.num_found = np.zeros(num_slots, np.int32)
        """Prompt tokens that its first step found computed; a preemption does not change that. 0 in higher legs."""
        self.payloads: list[bytes] = [b""] * num_slots
        """A serialized RequestPayload without tokens: how they are chosen, for whoever takes the request over."""
        self.finish_reasons = np.zeros(num_slots, np.uint8)
        self.failures: list[Failure | None] = [None] * num_slots
        self.withdrawn = np.zeros(num_slots, np.bool_)
        """Whether the request failed for numbers that are not finite: what it has published is to be forgotten."""

    @classmethod
    def of(cls, info: RunnerInfo, num_slots: int) -> RequestTable:
        """The table of a runner's requests."""
        return cls(
            num_slots, info.max_model_len, info.block_size, info.num_blocks, info.groups, info.num_lanes
        )

    def rows_of(self, step_id: int) -> NDArray[np.int64]:
        """Slots that are decode rows of a step, in the scheduler's eyes: those of the lane whose turn it is."""
        rows = self.runs & ~self.paused
        return np.flatnonzero(rows if self.num_lanes == 1 else rows & (self.lane == step_id % self.num_lanes))

    def num_output(self, slot: int) -> int:
        """Output tokens so far, prior ones included."""
        return int(self.num_tokens[slot] - self.num_prompt_tokens[slot])

    def add(self, request: NewRequest) -> None:
        """Moves a request into its slot."""
        self._drop_blocks(request.slot)
        self.fill(request)

    def reserve(self, slot: int, ref: RequestRef, meta: bytes, leg: int) -> None:
        """Keeps a slot for a request that is on its way from another worker."""
        self._drop_blocks(slot)
        self.status[slot] = SlotStatus.IMPORTING
        self.runs[slot] = self.paused[slot] = self.reads_prompt[slot] = False
        self.num_tokens[slot] = self.num_prompt_tokens[slot] = self.num_computed[slot] = 0
        self.prefill_target[slot] = self.max_drafts[slot] = 0
        self.sealed[slot], self.chain[slot], self.pooling[slot] = [], b"", None
        self._name(slot, ref, meta, leg)

    def fill(self, request: NewRequest) -> None:
        """Puts a request into its slot, whatever blocks that has."""
        slot, count = request.slot, len(request.token_ids)
        self.status[slot] = SlotStatus.PREPARING
        self.runs[slot] = self.paused[slot] = False
        self.tokens[slot, :count] = request.token_ids
        self.num_tokens[slot] = self.prefill_target[slot] = count
        self.num_prompt_tokens[slot] = count - request.num_prior_output_tokens
        self.num_computed[slot] = 0
        self.limit[slot] = min(int(self.num_prompt_tokens[slot]) + request.max_tokens, self.tokens.shape[1])
        self.max_drafts[slot] = request.max_draft_tokens
        self.next_seal[slot] = count // self.block_size
        self.chain[slot] = request.chain_hash
        self.sealed[slot] = []
        self.sampling.set(slot, request.sampling)
        self.pooling[slot] = request.pooling
        self.readings[slot] = None if request.pooling is None else Reading(request.pooling)
        self.reads_prompt[slot] = (
            request.pooling is not None or request.sampling.num_prompt_logprobs is not None
        )
        self.num_read[slot] = 0
        self.payloads[slot] = request.payload
        self._name(slot, request.ref, request.scheduler_meta, request.leg)

    def _name(self, slot: int, ref: RequestRef, meta: bytes, leg: int) -> None:
        self.refs[slot], self.attempts[slot] = ref, ref.attempt
        self.metas[slot], self.legs[slot] = meta, leg
        self.failures[slot] = None
        self.withdrawn[slot] = False
        self.num_found[slot] = 0

    def start(
        self,
        slot: int,
        blocks: np.ndarray,  # type: ignore[type-arg]
        start: int,
        groups: tuple[tuple[int, NDArray[np.int32]], ...] = (),
    ) -> None:
        """Gives a slot a whole block table, and those of other groups from their first blocks on. `start` positions
        are computed already."""
        if self.status[slot] == SlotStatus.PREPARING and not self.legs[slot]:
            self.num_found[slot] = start
        self.status[slot] = SlotStatus.PREFILL
        self.prefill_target[slot] = self.num_tokens[slot]
        self.give_blocks(slot, blocks, groups)
        self.num_computed[slot] = start

    def give_blocks(
        self,
        slot: int,
        blocks: np.ndarray,  # type: ignore[type-arg]
        groups: tuple[tuple[int, NDArray[np.int32]], ...] = (),
    ) -> None:
        """Gives a slot whole block tables instead of those that it has."""
        self._drop_blocks(slot)
        self.blocks[slot, : len(blocks)] = blocks
        self.num_blocks[slot] = len(blocks)
        self.holders[blocks] += 1
        for table, (first, held) in zip(self.groups, groups, strict=True):
            table.start(slot, first, held)

    def num_covered(self, slots: NDArray[np.integer]) -> NDArray[np.int32]:
        """Blocks at the head of each slot's table that it has been given in every group."""
        covered: NDArray[np.int32] = self.num_blocks[slots]
        for table in self.groups:
            covered = np.minimum(covered, table.ends[slots])
        return covered

    def leave_behind(self) -> None:
        """Lets go of all blocks of other groups than the spine that no slot will look at."""
        for table in self.groups:
            slots = np.flatnonzero(table.ends > table.firsts)
            table.leave_behind(slots, self.num_computed[slots])

    def grant(self, slot: int, block: int) -> None:
        """Gives a slot one more block of the spine."""
        self.blocks[slot, self.num_blocks[slot]] = block
        self.num_blocks[slot] += 1
        self.holders[block] += 1

    def grant_group(self, group: int, slots: NDArray[np.int64], blocks: NDArray[np.int32]) -> None:
        """Gives each of `slots` one more block of a group but the spine, in order."""
        table = self.groups[group - 1]
        table.leave_behind(slots, self.num_computed[slots])
        for slot, block in zip(slots.tolist(), blocks.tolist(), strict=True):
            table.grant(slot, block)

    def _drop_blocks(self, slot: int) -> None:
        self.holders[self.blocks[slot, : self.num_blocks[slot]]] -= 1
        self.num_blocks[slot] = 0
        for table in self.groups:
            table.drop(slot)

    def preempt(self, slot: int) -> None:
        """Takes the blocks away. A request that has ended stays ended."""
        self.runs[slot] = self.paused[slot] = False
        self._drop_blocks(slot)
        self.num_computed[slot] = 0
        if self.status[slot] != SlotStatus.ENDED:
            self.status[slot] = SlotStatus.PREEMPTED

    def end(self, slot: int, reason: FinishReason, failure: Failure | None = None) -> None:
        """The request ends; the slot stays until the scheduler has acknowledged it."""
        self.status[slot] = SlotStatus.ENDED
        self.finish_reasons[slot] = reason
        self.failures[slot] = failure

    def clear(self, slot: int) -> None:
        """Forgets the slot's request."""
        self.status[slot] = SlotStatus.FREE
        self._drop_blocks(slot)
        self.runs[slot] = self.paused[slot] = False
        self.refs[slot] = None
        self.metas[slot] = self.payloads[slot] = b""
        self.sealed[slot] = []
        self.sampling.clear(slot)
        self.pooling[slot] = self.readings[slot] = None
        self.reads_prompt[slot] = False

    def live_slots(self) -> list[int]:
        """Slots whose requests have not ended."""
        return np.flatnonzero(~np.isin(self.status, (SlotStatus.FREE, SlotStatus.ENDED))).tolist()

    def check_integrity(self) -> None:
        """Asserts the invariants of all rows."""
        used = self.status != SlotStatus.FREE
        assert (self.num_in_flight >= 0).all()
        assert (self.num_computed[used] <= self.num_tokens[used]).all()
        assert (self.num_tokens[used] <= self.limit[used]).all()
        decode = self.status == SlotStatus.DECODE
        assert (self.num_computed[decode] == self.num_tokens[decode] - 1).all()
        computed_end = self.num_blocks * self.block_size
        active = decode | (self.status == SlotStatus.PREFILL)
        assert (self.num_computed[active] <= computed_end[active]).all(), "KV outside the block table"
        tables = [
            self.blocks[slot, : self.num_blocks[slot]] for slot in np.flatnonzero(self.num_blocks).tolist()
        ]
        held = np.concatenate(tables) if tables else np.empty(0, np.int32)
        assert (np.bincount(held, minlength=len(self.holders)) == self.holders).all(), (
            "blocks have other holders"
        )
        for table in self.groups:
            table.check_integrity()
        assert all((ref is not None) == bool(taken) for ref, taken in zip(self.refs, used, strict=True))
