"""What a model runner is given for one step, and what it gives back. Plain numpy; R rows, T query tokens, N samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE, BlockGroup, StateGroup
from signalbox.protocol.enums import ModelTask, RequestKind
from signalbox.protocol.model_identity import UNSAID, ModelIdentity
from worker_svc.core.requests.masks import Masks
from worker_svc.core.requests.pooling import Activation, PoolingMode, PoolingParams
from worker_svc.core.requests.sampling import SamplingTable

I32 = NDArray[np.int32]
DEFAULT_SLOTS = 512
"""Requests of a worker, where no setting says so and memory has room."""


class QuerySpan(NamedTuple):
    """Query tokens `[start, end)` of a batch, all of one row."""

    row: int
    start: int
    end: int


class StateKeep(NamedTuple):
    """A recurrent state that is kept on the way of a row."""

    row: int
    end: int
    """Behind the query tokens of the batch up to this number; of a row with a tail (`Batch.state_tails`), perhaps
    ahead of its first one by so many."""
    checkpoint: int
    """Where it is kept; -1: as the last boundary's of the row's slot."""


@dataclass
class Batch:
    """One step's work, flattened: decode rows first (ascending slots), then prefill chunks.

    Row `r` runs the query tokens `[query_starts[r], query_starts[r + 1])`. Their KV is written at their positions,
    each attends to all positions of its sequence up to its own, and `seq_lens[r]` positions are valid afterwards.
    """

    step_id: int
    slots: I32
    """[R] table row of each request."""
    num_decode_rows: int
    query_starts: I32
    """[R + 1] number of each row's first query token; last, T."""
    token_ids: I32
    """[T] query tokens, row by row."""
    positions: I32
    """[T] position of each query token in its sequence."""
    seq_lens: I32
    """[R] context length of each row after this step."""
    block_tables: I32
    """[R, W] block ids; entries behind the last block that a row needs are arbitrary valid ids."""
    sample_index: I32
    """[N] query tokens whose next token is wanted: the last of each final chunk, all of each decode row."""
    sample_rows: I32
    """[N] row of each sample, ascending."""
    sample_output_positions: I32
    """[N] index in the request's output that the sampled token would get; keys its random number."""
    sampling: SamplingTable
    """Sampling parameters by slot."""
    tokens: NDArray[np.int32]
    """[num_slots, max_model_len] all known tokens by slot (for penalties); drafts are not in it."""
    num_prompt_tokens: I32
    """[num_slots] of them, how many are prompt; the rest is output."""
    num_tokens: I32
    """[num_slots] how many tokens of each request are known."""
    masks: Masks | None = None
    """What the samples that follow a form may become; None: all are free."""
    mask_index: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    """[N] number of each sample's mask, -1: it is free; empty without `masks`."""
    scored: list[QuerySpan] = field(default_factory=list)
    """Query tokens whose prediction is compared with the prompt's next token; at most one span per row."""
    pooled: list[QuerySpan] = field(default_factory=list)
    """Query tokens that pooling requests read; at most one span per row. Such a row has no samples."""
    pooling: list[PoolingParams | None] = field(default_factory=list)
    """How pooling requests are read, by slot; None: the request generates."""
    group_tables: list[I32] = field(default_factory=list)
    """[R, W] as `block_tables`, of each group but the spine; entries outside of what a row looks at are arbitrary valid
    ids."""
    state_reads: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    """[R] version of its slot's recurrent state that each row goes on from, -1: it begins. Empty: the model keeps
    none."""
    state_writes: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    """[R] version that each row leaves behind its last query token that is no draft; never one that it, or a step
    before it that may have to run again, reads. With it goes what its drafts give to the recurrent layers, and the
    version behind it is nobody's: states behind drafts may be written there."""
    state_tails: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    """[R] right drafts that the version read does not have behind it: they are run again ahead of the row."""
    state_keeps: list[StateKeep] = field(default_factory=list)
    """States that are kept besides; no row of the batch reads what they write."""

    @property
    def query_lengths(self) -> I32:
        """[R] query tokens of each row."""
        return self.query_starts[1:] - self.query_starts[:-1]

    @property
    def known_lengths(self) -> I32:
        """[R] query tokens of each row that are no drafts."""
        lengths = self.query_lengths
        lengths[: self.num_decode_rows] = 1
        return lengths

    def rows(self, first: int, end: int) -> Batch:
        """The part of the batch that consists of rows `[first, end)`."""
        query = slice(int(self.query_starts[first]), int(self.query_starts[end]))
        samples = slice(*np.searchsorted(self.sample_rows, (first, end)))
        return replace(
            self,
            slots=self.slots[first:end],
            num_decode_rows=min(max(self.num_decode_rows - first, 0), end - first),
            query_starts=self.query_starts[first : end + 1] - self.query_starts[first],
            token_ids=self.token_ids[query],
            positions=self.positions[query],
            seq_lens=self.seq_lens[first:end],
            block_tables=self.block_tables[first:end],
            group_tables=[tables[first:end] for tables in self.group_tables],
            sample_index=self.sample_index[samples] - self.query_starts[first],
            sample_rows=self.sample_rows[samples] - first,
            sample_output_positions=self.sample_output_positions[samples],
            mask_index=self.mask_index[samples],
            state_reads=self.state_reads[first:end],
            state_writes=self.state_writes[first:end],
            state_tails=self.state_tails[first:end],
            state_keeps=[
                StateKeep(keep.row - first, keep.end - query.start, keep.checkpoint)
                for keep in self.state_keeps
                if first <= keep.row < end
            ],
            scored=_spans_of_rows(self.scored, first, end, query.start),
            pooled=_spans_of_rows(self.pooled, first, end, query.start),
        )


def _spans_of_rows(spans: list[QuerySpan], first: int, end: int, offset: int) -> list[QuerySpan]:
    return [
        QuerySpan(span.row - first, span.start - offset, span.end - offset)
        for span in spans
        if first <= span.row < end
    ]


class BlockCopy(NamedTuple):
    """Copy of one block of a group, between the device's cache and the host tier or inside of the device's."""

    source: int
    source_is_host: bool
    target: int
    target_is_host: bool
    group: int = SPINE
    """Number of the group; that behind the last one, `states_number`: the blocks are checkpoints."""


class StateCopy(NamedTuple):
    """Copy of a recurrent state between a version of a slot's and a checkpoint."""

    slot: int
    version: int
    checkpoint: int
    is_restored: bool
    """From the checkpoint to the version; False: the other way."""


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of a token and of its alternatives, by temperature-free softmax of the model's own logits."""

    logprob: float
    rank: int
    top_token_ids: list[int]
    top_logprobs: list[float]


@dataclass
class Sampled:
    """What a runner returns: the target model's token at every sample of the batch."""

    token_ids: I32
    """[N] the token of each sample."""
    logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)
    """Log-probabilities by sample number, for the rows that asked for them."""
    prompt_logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    """Log-probabilities by row of `Batch.scored`: one per query token of the span, of the prompt token that follows
    it."""
    pooled: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    """What was read of a span, by row of `Batch.pooled`, as `Reading` takes it: the sum `[H]` of its last hidden
    states, after the final norm, the numbers of the labels `[L]`, or a row `[n, H or L]` for each of its tokens."""
    bad_rows: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    """[B] rows whose last hidden state, or logits before any mask, have a NaN or an infinity, ascending; rows without
    samples are among them. Nothing of them counts."""


@dataclass(frozen=True)
class RunnerInfo:
    """What a runner can do; fixed for its life."""

    model: str
    """Name under which the model is served."""
    num_blocks: int
    block_size: int
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_draft_tokens: int = 0
    tokenizer_fingerprint: str = ""
    num_host_blocks: int = 0
    """Blocks of the spine in the host tier."""
    tasks: tuple[ModelTask, ...] = (ModelTask.GENERATE,)
    """What requests can ask of it."""
    has_logprobs: bool = True
    """Whether it gives log-probabilities of output tokens."""
    has_prompt_logprobs: bool = False
    """Whether it computes log-probabilities of prompt tokens."""
    embedding_size: int = 0
    """Elements of a pooled vector; 0 without pooling."""
    pooling_mode: PoolingMode = PoolingMode.LAST
    """The model's own, for requests that name none."""
    num_labels: int = 0
    """Labels of the classification head; 0: there is none."""
    label_activation: Activation = Activation.IDENTITY
    """Activation of the head for CLASSIFY and TOKEN_CLASSIFY."""
    score_activation: Activation = Activation.IDENTITY
    """Activation of the head for SCORE."""
    reads_both_ways: bool = False
    """Each position sees those behind it, too, so that a prompt is computed at once: where its last chunk is."""
    identity: ModelIdentity = UNSAID
    """What its results depend on besides the input."""
    num_slots: int = DEFAULT_SLOTS
    """Requests that may be here at a time, preempted ones included."""
    groups: tuple[BlockGroup, ...] = ()
    """Groups of layers that do not look back to the first position: their blocks are counted by themselves. Layers of
    `num_blocks` are the spine's."""
    num_state_versions: int = 0
    """Versions of each slot's recurrent state, one more than the steps that it has in flight, and with drafts another;
    0: the model has no recurrent layers. With them no row goes on from cached blocks alone: there is no state at their
    end."""
    state_group: StateGroup | None = None
    """Checkpoints of these states; None: there are none, and rows begin at position 0."""
    num_lanes: int = 1
    """Batches that it can have on their way, none of which has a row of another: the turns of so many lanes (LA)."""
    kv_layout: str = ""
    """Digest of how blocks and states are laid out: requests go from one runner to another of the same (HO1). Empty:
    the runner hands nothing over."""

    @property
    def kinds(self) -> tuple[RequestKind, ...]:
        """Kinds of requests that it serves."""
        generates = ModelTask.GENERATE in self.tasks
        pools = len(self.tasks) > generates
        return ((RequestKind.GENERATE,) if generates else ()) + ((RequestKind.POOLING,) if pools else ())


class ModelRunner(Protocol):
    """Runs batches on a model and its KV cache. One thread calls it, one batch at a time."""

    info: RunnerInfo

    def execute(self, batch: Batch) -> Sampled:
        """Writes the KV of all query tokens and samples. Raises whatever went wrong; the cache then holds garbage at
        the batch's positions only."""

    def check(self) -> None:
        """Runs the model on one token that any model bears, in blocks that no batch has. Raises whatever went wrong:
        then it fails on everything."""

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """Copies whole blocks of all layers of their group, and checkpoints, in order, before states are copied and the
        batch of the same step runs."""

    def copy_states(self, copies: list[StateCopy]) -> None:
        """Copies recurrent states of all layers, in order, before the batch of the same step runs. Never called without
        a `state_group`."""

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """What makes `copies`, in order, in whatever thread calls it, while batches run that touch none of their
        blocks: behind all copies and batches given before this call. It returns when they are made, and raises whatever
        went wrong."""


class BlockBytes(Protocol):
    """Blocks as bytes, read and written beside the steps. Any thread may ask."""

    def bytes_per_block(self, group: int) -> int:
        """Bytes of a block in all layers of its group."""

    def read(self, group: int, blocks: Sequence[int]) -> bytes:
        """What is in blocks of a group. Raises TransferError where there are none such."""

    def write(self, group: int, blocks: Sequence[int], content: bytes) -> None:
        """Puts what `read` gave elsewhere into blocks. Raises TransferError where the bytes are not theirs."""


@runtime_checkable
class HandoffRunner(ModelRunner, Protocol):
    """A runner whose requests other runners of the same layout can take over, if its `info.kv_layout` says one. What is
    read or written here no step touches meanwhile; any thread may ask."""

    @property
    def block_memory(self) -> BlockBytes | None:
        """Its blocks; None without a layout."""

    def read_state(self, slot: int, version: int, num_drafts: int) -> bytes:
        """The recurrent state in a version of a slot, and what so many drafts behind it give to its layers. Never
        called of a model without states."""

    def write_state(self, slot: int, version: int, num_drafts: int, content: bytes) -> None:
        """Puts what `read_state` gave elsewhere into a version of a slot. Raises TransferError where the bytes are no
        such state."""


@dataclass
class RankTimes:
    """Where the time of one process of several went, in seconds."""

    compute: float = 0.0
    """Time by itself."""
    collectives: float = 0.0
    """Waiting for others within a call, and adding up."""
    answers: float = 0.0
    """Rank 0: waiting behind its own part until the others have said that they have made theirs."""


@runtime_checkable
class GroupRunner(ModelRunner, Protocol):
    """A runner of several processes, of which this is the first."""

    @property
    def failure(self) -> Exception | None:
        """Why the others have ended, also while nothing runs; None: they have not."""

    @property
    def rank_times(self) -> Sequence[RankTimes]:
        """Where the time of each process went so far, by rank. Any thread may ask."""

    def close(self) -> None:
        """Ends the others."""


@runtime_checkable
class GraphRunner(Protocol):
    """A runner whose steps may be graphs of launches, made at the start."""

    @property
    def graph_failures(self) -> Mapping[tuple[str, str], int]:
        """How often a graph failed, by what failed (capture or replay) and reason; empty: it makes none. Any thread may
        ask."""


class Launched(Protocol):
    """A batch on its way."""

    @property
    def is_done(self) -> bool:
        """Whether its tokens are there, so that `wait` would not wait."""


@runtime_checkable
class AheadRunner(ModelRunner, Protocol):
    """A runner that works beside its caller: it takes a batch whose tokens an earlier one is still sampling."""

    def launch(self, batch: Batch, in_flight: NDArray[np.bool_]) -> Launched:
        """Starts a batch that is plain (`run_ahead.is_plain`); batches run in the order of their launch.

        `in_flight` `[R]` are the decode rows whose query token a batch that was not collected yet samples:
        `batch.token_ids` does not matter there. Raises whatever went wrong; the batch is not launched then.
        """

    def collect(self, launched: Launched) -> Sampled:
        """Waits for the tokens of the oldest launched batch. Raises whatever went wrong."""


@dataclass
class WarmUp:
    """What was run before a worker was ready, so that no step waits for a compiler."""

    seconds: float = 0.0
    """How long it took."""
    num_late_compiles: int = 0
    """Kernel variants that were compiled while serving, for want of a step in the warm-up. Right is 0."""
    on_compile: Callable[[], None] = lambda: None
    """Called in the thread of the steps when a kernel is about to be compiled while serving."""


@runtime_checkable
class WarmedRunner(ModelRunner, Protocol):
    """A runner whose kernels are compiled when they are first run."""

    @property
    def warm_up(self) -> WarmUp:
        """Its warm-up. Any thread may ask."""
