"""A step in the worker's words: the delta that comes, the report and the tokens that go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from signalbox.grammar.form import Form
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.enums import FinishReason, NotRunReason
from signalbox.protocol.parts.codecs import AnyOrders
from signalbox.protocol.parts.import_start import ImportStart
from signalbox.protocol.parts.orders import Orders
from worker_svc.core.batch import BlockCopy, TokenLogprobs
from worker_svc.core.requests.pooling import F32, PoolingParams
from worker_svc.core.requests.reasoning import ReasoningBudget
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.requests.state_versions import NOTHING

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
OrdersT = TypeVar("OrdersT", bound=Orders)


def _none() -> I64:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Failure:
    """What went wrong with a request. `code` is the name of a class of signalbox/errors.py."""

    code: str
    message: str
    field: str = ""


@dataclass(frozen=True)
class RequestRef:
    """Names a request for its frontend: instance, id, attempt."""

    request_id: str
    attempt: int
    frontend_instance: str


@dataclass(frozen=True)
class NewRequest:
    """A request that moves in, ahead of any step that names its slot."""

    slot: int
    ref: RequestRef
    token_ids: I32
    """Prompt, then output of earlier attempts."""
    num_prior_output_tokens: int
    max_tokens: int
    """Most output tokens in all, prior ones included."""
    sampling: SamplingParams
    chain_hash: bytes
    """Hash of the last full block of `token_ids`, or the chain's root; empty: seal nothing."""
    max_draft_tokens: int = 0
    scheduler_meta: bytes = b""
    pooling: PoolingParams | None = None
    """How the vector is made; None: the request generates."""
    form: Form | None = None
    """What the output has to follow."""
    reasoning: ReasoningBudget | None = None
    """Bounds the reasoning; None: nothing does."""
    tells_early: bool = False
    """Whether it fails before the scheduler would run any step of it: `WorkerCore.end_early` ends it."""
    failure: Failure | None = None
    """The payload could not be read: the request ends with this."""
    leg: int = 0
    """How often the right to run the attempt was given before (HO2)."""
    account: int = 0
    """Requests of one number are one tenant's."""
    payload: bytes = field(default=b"", repr=False)
    """A serialized RequestPayload without tokens, for whoever takes the request over."""

    @property
    def prior_output(self) -> I32:
        """Output of earlier attempts."""
        return self.token_ids[len(self.token_ids) - self.num_prior_output_tokens :]


@dataclass
class SlotStart:
    """A slot that runs for the first time, or again after a preemption."""

    slot: int
    blocks: I32
    start: int
    length: int
    groups: tuple[tuple[int, I32], ...] = ()
    """Its table in each group but the spine: index of the first block, and the blocks."""
    checkpoint: int = NOTHING
    """The checkpoint of the state that it goes on from; NOTHING: there is none."""

    def blocks_of(self, group: int) -> I32:
        """The blocks that it gives in one group."""
        return self.blocks if group == SPINE else self.groups[group - 1][1]


class CheckpointOrder(NamedTuple):
    """A state that is to be kept."""

    slot: int
    checkpoint: int
    position: int
    """Behind so many tokens, the last of which a chunk of the step computes; 0: behind the last boundary that the slot
    has passed."""


@dataclass(frozen=True)
class SideCopies:
    """Copies that run beside the steps, in order."""

    fence: int
    """What is reported when they have ended."""
    copies: list[BlockCopy]


@dataclass
class StepDelta:
    """What changes with a step. Everything not named goes on as it was."""

    step_id: int
    scheduler_epoch: int
    started: list[SlotStart] = field(default_factory=list)
    resumed: list[SlotStart] = field(default_factory=list)
    grant_slots: I64 = field(default_factory=_none)
    grant_blocks: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    """Blocks of the spine, one for each of `grant_slots`."""
    group_grants: list[tuple[int, I64, I32]] = field(default_factory=list)
    """Blocks of other groups: (group, slots, blocks), each group once."""
    chunks: list[tuple[int, int, int]] = field(default_factory=list)
    """Prefills that go on: (slot, start, length)."""
    finished_slots: list[int] = field(default_factory=list)
    preempted_slots: list[int] = field(default_factory=list)
    paused_slots: list[int] = field(default_factory=list)
    unpaused_slots: list[int] = field(default_factory=list)
    draft_limits: list[tuple[int, int]] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)
    """Block copies in order, ahead of the step's work, and of what becomes of states."""
    side_copies: SideCopies | None = None
    """Block copies that begin behind `copies`, beside the steps; None: there are none."""
    checkpoints: list[CheckpointOrder] = field(default_factory=list)
    """States that are to be kept. Those without a position are, before anything else changes."""
    is_solo: bool = False
    """Its one row is a suspect's own."""
    aside_slots: list[int] = field(default_factory=list)
    """Paused for this step alone."""
    may_be_skipped: bool = False
    """It only decodes, and is worth less than what computes a prompt behind it (K12)."""
    is_skipped: bool = False
    """Its rows make no token."""
    is_own: bool = False
    """The worker has authored it: it has no scheduler, and reports to nobody."""
    orders: AnyOrders = field(default_factory=dict)
    """Orders of parts, by their type: one object for each part that has any (PT7)."""

    def ordered(self, kind: type[OrdersT]) -> OrdersT | None:
        """The orders of that type; None: there are none."""
        orders = self.orders.get(kind)
        return orders if isinstance(orders, kind) else None

    def brought_to(self, group: int) -> list[int]:
        """Blocks of a group that parts write beside the steps."""
        return [block for orders in self.orders.values() for block in orders.targets(group)]

    @property
    def given_tables(self) -> list[ImportStart]:
        """Block tables that slots get by orders of parts, ahead of the grants."""
        return [table for orders in self.orders.values() for table in orders.tables]

    @property
    def going_on(self) -> set[int]:
        """Slots that go on by orders of parts, ahead of the starts."""
        return {slot for orders in self.orders.values() for slot in orders.going_on}

    @property
    def all_copies(self) -> list[BlockCopy]:
        """Copies of the step and those that begin behind them, in order."""
        return self.copies if self.side_copies is None else [*self.copies, *self.side_copies.copies]

    def grants_of(self, group: int) -> tuple[I64, I32]:
        """Slots that get a block of a group, and the blocks."""
        if group == SPINE:
            return self.grant_slots, self.grant_blocks
        found = [(slots, blocks) for number, slots, blocks in self.group_grants if number == group]
        return found[0] if found else (_none(), np.empty(0, np.int32))


@dataclass
class StepReport:
    """What the scheduler is told of a step; columns as in ModelRunnerOutput."""

    step_id: int
    num_decode_rows: int = 0
    num_prefill_tokens: int = 0
    exceptions: list[tuple[int, int]] = field(default_factory=list)
    """(slot, count) of decode rows and final chunks that did not make exactly one token."""
    decode_counts: NDArray[np.uint8] | None = None
    """One per decode row, when that is shorter than the exceptions."""
    not_run: list[tuple[int, NotRunReason]] = field(default_factory=list)
    finished: list[tuple[int, FinishReason, int]] = field(default_factory=list)
    sealed_slots: list[int] = field(default_factory=list)
    sealed_indexes: list[int] = field(default_factory=list)
    sealed_hashes: list[bytes] = field(default_factory=list)
    draft_limits: list[tuple[int, int]] = field(default_factory=list)
    """(slot, drafts that it wants to be allowed from now on)"""
    withdrawn_slots: list[int] = field(default_factory=list)
    """Slots that failed because their numbers are not finite: what they have published is to be forgotten."""
    checkpoint_positions: list[int] = field(default_factory=list)
    """Positions of the states that were kept, one for each order of the step; 0: there is none."""
    mask_us: list[tuple[int, int]] = field(default_factory=list)
    """(slot, microseconds that its automaton has worked and that were not reported)"""
    num_drafted: int = 0
    """Draft tokens that the model looked at."""
    num_accepted: int = 0

    def use_dense_counts(self, decode_slots: I64) -> None:
        """Moves the exceptions of decode rows into `decode_counts` where that is shorter: an exception costs three
        bytes, a dense count one. `decode_slots` `[D]` ascend."""
        if len(self.exceptions) * 3 <= len(decode_slots):
            return
        dense = np.ones(len(decode_slots), np.uint8)
        is_row = np.isin([slot for slot, _ in self.exceptions], decode_slots)
        rest = []
        for (slot, count), in_rows in zip(self.exceptions, is_row, strict=True):
            if in_rows:
                dense[np.searchsorted(decode_slots, slot)] = count
            else:
                rest.append((slot, count))
        self.decode_counts, self.exceptions = dense, rest


@dataclass
class FrontendOutput:
    """What one frontend is told of a step; columns as in OutputBatch, rows in the order of `attempts`."""

    frontend_instance: str
    attempts: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    counts: NDArray[np.uint8] | None
    """New tokens per attempt; None: one token each."""
    token_ids: I32
    finished: list[tuple[int, FinishReason, int, Failure | None]] = field(default_factory=list)
    """(attempt, reason, output tokens in all, why)"""
    logprobs: list[tuple[int, list[TokenLogprobs]]] = field(default_factory=list)
    """Log-probabilities: (attempt, one per token)."""
    prompt_logprobs: list[tuple[int, int, list[TokenLogprobs]]] = field(default_factory=list)
    """(attempt, position of the first in the prompt, one per prompt token from there on)"""
    vectors: list[tuple[int, F32]] = field(default_factory=list)
    """(attempt, result of a pooling request), which ends with it"""
    legs: dict[int, int] = field(default_factory=dict)
    """Legs that are not 0, by attempt (HO10)."""
    found: list[tuple[int, int]] = field(default_factory=list)
    """(attempt, prompt tokens found computed), of those whose first outputs these are and that found some"""
