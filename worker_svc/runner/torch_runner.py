"""The runner that computes a real model with torch: one flattened forward per step, then the sampler."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from signalbox.protocol.model_identity import ModelIdentity
from worker_svc.core import batch as core_batch
from worker_svc.core.batch import Batch, BlockCopy, RunnerInfo, Sampled, StateCopy, TokenLogprobs
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch, native_kernels
from worker_svc.runner.attention.block_bytes import BlockBytes
from worker_svc.runner.attention.block_rows import block_memory_of
from worker_svc.runner.cpu.direct_forward import Forwarded, ModuleForward, forward_of
from worker_svc.runner.cpu.optimize import fuse_kept_experts, optimize
from worker_svc.runner.cpu.step_threads import StepThreads, choose_threads
from worker_svc.runner.cpu.thread_limit import ThreadLimit
from worker_svc.runner.errors import ModelLoadError, check_at_least_one
from worker_svc.runner.model.cache_making import CacheMaker, one_block
from worker_svc.runner.model.fusing import fuse_checked
from worker_svc.runner.model.head import CapturedStates, ModelHead
from worker_svc.runner.model.kept_weights import ROUNDED_BITS, Quantization
from worker_svc.runner.model.llama4 import check_chunks
from worker_svc.runner.model.loading import LoadedModel, load_model
from worker_svc.runner.model.memory import CacheSize
from worker_svc.runner.model.memory_profile import StepUses
from worker_svc.runner.model.model_identity import identify
from worker_svc.runner.model.probe import check_paged_attention
from worker_svc.runner.model.unexpected import refusing
from worker_svc.runner.recurrent.drafted import rows_of
from worker_svc.runner.recurrent.making import make_store
from worker_svc.runner.recurrent.rows import scratch_rows
from worker_svc.runner.recurrent.state_bytes import layout_of, read_state, write_state
from worker_svc.runner.runner_info import runner_info
from worker_svc.runner.sampling.finite import bad_rows, chosen_logits, state_sums, with_bad_readings
from worker_svc.runner.sampling.prompt_results import read_prompts, score_prompts
from worker_svc.runner.sampling.sampler import sample
from worker_svc.runner.split.known_states import learn_states
from worker_svc.runner.split.split import Split
from worker_svc.transfer.block_memory import LaidOut

logger = logging.getLogger(__name__)


class TorchRunner:
    """A `ModelRunner` over a Hugging Face model directory. One thread calls it.

    In float32 on a CPU, logits of a step with one query token differ by rounding from those of the same
    token in a larger step (another matrix product routine); in bfloat16 they were found equal bit for bit.
    """

    info: RunnerInfo
    block_memory: core_batch.BlockBytes | None
    """Blocks of its KV cache that can travel to another worker (TR); None: they do not travel."""
    _batch_class: type[PagedBatch] = PagedBatch
    _can_hand_over = True
    """Whether requests go on elsewhere, where its blocks can travel."""
    _num_scratch_blocks = 0
    """Blocks of each group that the scheduler is not told of: those behind all others."""
    _most_in_flight = 1
    """Steps that may be on their way at a time."""

    def __init__(
        self,
        model_dir: str | os.PathLike[str],
        *,
        served_model_name: str,
        dtype: str = "auto",
        quantization: Quantization = Quantization.AUTO,
        device: str = "cpu",
        num_blocks: int | None = None,
        num_host_blocks: int = 0,
        block_size: int = 16,
        max_model_len: int | None = None,
        threads: int | None = None,
        kv_cache_memory: int | None = None,
        gpu_memory_utilization: float | None = None,
        max_num_batched_tokens: int = 8192,
        draft_block_bytes: int = 0,
        num_slots: int | None = None,
        num_checkpoints: int | None = None,
        mean_request_tokens: int | None = None,
        max_draft_tokens: int = 0,
        has_groups: bool = True,
        shares_blocks: bool = False,
        split: Split | None = None,
    ) -> None:
        """Loads and checks the model and takes the memory of its KV cache. ModelLoadError if that fails.

        dtype: auto, float32 or bfloat16, for weights and cache. quantization: the form of linear layers. device: cpu
        or cuda. num_blocks: size of the cache; instead of it, kv_cache_memory in bytes, or on a GPU
        gpu_memory_utilization, the share that model, cache and a step of max_num_batched_tokens may take; none of
        them: a share of the free memory. max_model_len: positions of one request; None: what the model was made for,
        or the whole cache if that is less. threads: the most that torch and the kernels use, steps of few tokens
        perhaps fewer; None leaves their own choice. draft_block_bytes: what a draft model takes of each block beside
        this one. num_slots: requests that may be here at a time, each with its recurrent state; None: as many as
        usual, or as have room. num_checkpoints: of recurrent states; None: as have room; 0: prompts begin at their
        first token. mean_request_tokens: length that the cache is divided for, where layers have windows; None: as
        usual. max_draft_tokens: most drafts of a step. has_groups: False: batches have tables of one group alone.
        shares_blocks: other workers of this machine can be let read the cache. split: this process has a part of the
        model, and runs with those that have the others; None: all of it.
        """
        check_at_least_one(num_blocks=num_blocks, block_size=block_size, threads=threads)
        self._threads = ThreadLimit(None if threads is None else StepThreads([threads], threads))
        self._threads.apply(1)
        cache_size = CacheSize(num_blocks, kv_cache_memory, gpu_memory_utilization)
        path, self._split = Path(model_dir), split
        with refusing(path, has_ranks=split is not None):
            self.model = self._load(path, dtype, quantization, device, block_size, max_model_len)
        maker = CacheMaker.of(
            self.model,
            cache_size,
            block_size=block_size,
            mean_request_tokens=mean_request_tokens,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            max_draft_tokens=max_draft_tokens,
            draft_block_bytes=draft_block_bytes,
            num_scratch_blocks=self._num_scratch_blocks,
            uses=self._step_uses(num_slots, block_size, max_model_len),
        )
        self._states = make_store(
            self.model,
            num_slots,
            num_checkpoints,
            max_draft_tokens,
            num_host_requests=maker.requests_of(num_host_blocks),
            most_in_flight=self._most_in_flight if split is None else split.num_stages,
        )
        memory = self._take_cache(
            maker, block_size, num_host_blocks, has_groups=has_groups, is_shared=shares_blocks
        )
        self.block_memory = memory
        kv_layout = layout_of(memory if self._can_hand_over else None, self._states)
        self._describe(
            path, served_model_name, block_size, max_model_len, num_host_blocks, num_slots, kv_layout
        )
        self._forward = forward_of(self.model, self.info.max_model_len)
        # Ranks make the same calls, and here how many there are is decided by time.
        if threads is not None and split is None and self.model.device.type == "cpu":
            self._choose_threads(threads)

    def _step_uses(self, num_slots: int | None, block_size: int, max_model_len: int | None) -> StepUses:
        """What the runner takes of a GPU beside forwards."""
        return StepUses()

    def _take_cache(
        self, maker: CacheMaker, block_size: int, num_host_blocks: int, *, has_groups: bool, is_shared: bool
    ) -> LaidOut | None:
        """Takes the memory of the KV cache, its host tier included. Returns its blocks; None: they do not travel."""
        self._cache, self._layout = maker.make(
            self._batch_class, num_host_blocks, has_groups=has_groups, is_shared=is_shared
        )
        self.blocks = BlockBytes(self._cache, 1 + len(self._layout.groups), self.model.device)
        self._check_cache = one_block(self.model, block_size)
        """One block for `check`, taken now: when it is needed, memory may be short."""
        return block_memory_of(self._cache, self._layout.groups)

    def _describe(
        self,
        path: Path,
        served_model_name: str,
        block_size: int,
        max_model_len: int | None,
        num_host_blocks: int,
        num_slots: int | None,
        kv_layout: str,
    ) -> None:
        """Says what others have to know of the runner, once model, states and cache are here."""
        self._head = ModelHead.of(self.model.module)
        self.info = runner_info(
            self.model,
            path,
            self._layout,
            self._states,
            served_model_name=served_model_name,
            block_size=block_size,
            max_model_len=max_model_len,
            num_host_blocks=num_host_blocks,
            num_slots=num_slots,
            has_vectors=self._head is not None,
            identity=self._identify(path),
            kv_layout=kv_layout,
        )

    def _choose_threads(self, most: int) -> None:
        """Measures how many threads serve steps of few tokens best."""
        chosen = choose_threads(most, self._run_one_token)
        self._threads = ThreadLimit(chosen)
        logger.info("threads of a step: %d for few tokens, %d for many", chosen.few, most)

    @torch.inference_mode()
    def execute(self, batch: Batch) -> Sampled:
        """Writes the KV of all query tokens and samples; see `ModelRunner`."""
        if not len(batch.token_ids):
            return Sampled(token_ids=np.empty(0, np.int32))
        if not (batch.scored or batch.pooled):
            return sample_checked(self._run(batch), batch)
        assert self._head is not None, "requests that need it are refused"
        with self._head.capturing() as captured:
            forwarded = self._run(batch)
        scores = score_prompts(self._head, captured, batch)
        return sample_and_read(forwarded, batch, self._head, captured, scores)

    @torch.inference_mode()
    def check(self) -> None:
        """Runs the model on one token, in a cache of its own; see `ModelRunner`."""
        self._threads.apply(1)
        if not bool(state_sums(self._run_one_token()).isfinite()):
            raise ArithmeticError("the hidden state is not finite")

    @torch.inference_mode()
    def _run_one_token(self) -> torch.Tensor:
        """Its hidden state `[1, H]`, on the CPU."""
        one = np.zeros((1, 1), np.int32)
        paged = self._batch_class(
            cache=self._check_cache,
            num_decode_rows=0,
            query_starts=np.array([0, 1], np.int32),
            positions=one[0],
            block_tables=one,
            device=self.model.device,
            states=scratch_rows(self._states),
        )
        token = self._to_device(one[0])
        with attention.running(paged):
            forwarded = self._forward(token, token, token)
        # A device fails when its results are asked for.
        forwarded.logits.cpu()
        return forwarded.states.cpu()

    @torch.inference_mode()
    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """Copies whole blocks of all layers of their groups, and checkpoints, in order."""
        for copy in copies:
            if copy.group <= len(self._layout.groups):
                self._cache.copy_block(copy)
            else:
                assert self._states is not None, "the model has no recurrent layers"
                self._states.copy_checkpoint(copy)

    @torch.inference_mode()
    def copy_states(self, copies: list[StateCopy]) -> None:
        """Copies recurrent states of all layers, in order."""
        assert self._states is not None, "the model has no recurrent layers"
        self._states.copy(copies)

    def read_state(self, slot: int, version: int, num_drafts: int) -> bytes:
        """The bytes of a slot's recurrent state; see `HandoffRunner`."""
        return read_state(self._states, slot, version, num_drafts)

    def write_state(self, slot: int, version: int, num_drafts: int, content: bytes) -> None:
        """Puts back what `read_state` gave; see `HandoffRunner`."""
        write_state(self._states, slot, version, num_drafts, content)

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """Returns a callable that makes the copies; see `ModelRunner`."""
        return partial(self.copy_blocks, copies)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> torch.Tensor:
        """Writes the KV of all query tokens. Returns the samples' logits `[N, V]` in the model's dtype."""
        return self._run(batch).logits

    def _run(self, batch: Batch) -> Forwarded:
        # Hidden states are captured from transformers' own forward.
        forward = self._forward if not (batch.scored or batch.pooled) else ModuleForward(self.model.module)
        if batch.masks is not None:
            batch.masks.start()
        lasts = batch.query_starts[1:] - 1
        with self._running(batch):
            return forward(
                self._to_device(batch.token_ids),
                self._to_device(batch.positions),
                self._to_device(batch.sample_index),
                None if np.array_equal(lasts, batch.sample_index) else self._to_device(lasts),
            )

    @contextlib.contextmanager
    def _running(self, batch: Batch) -> Iterator[None]:
        """Meanwhile forwards are those of a batch."""
        paged = self._batch_class.of(
            batch,
            self._cache,
            of_layers=self._of_layers,
            device=self.model.device,
            states=rows_of(self._states, batch),
        )
        with self._threads.around_step(len(batch.token_ids)), attention.running(paged):
            yield

    @property
    def batch_class(self) -> type[PagedBatch]:
        """How a forward finds its KV; other models on these blocks use the same."""
        return self._batch_class

    @property
    def num_cache_blocks(self) -> int:
        """Blocks of the cache, those for scratch included."""
        return self._cache.num_blocks

    @property
    def _of_layers(self) -> tuple[int, ...]:
        """[layers] number of each layer's group; empty: all are the spine's."""
        return self._layout.of_layers if self._layout.groups else ()

    def _identify(self, path: Path) -> ModelIdentity:
        model = self.model
        split = "" if self._split is None else self._split.told
        choices = ", ".join(part for part in (model.kept, model.rope, split) if part)
        attention_name = self._batch_class.__name__
        return identify(path, model.module, model.dtype, model.device, choices, attention_name)

    def _load(
        self,
        path: Path,
        dtype: str,
        quantization: Quantization,
        device: str,
        block_size: int,
        max_model_len: int | None,
    ) -> LoadedModel:
        return load_checked(path, dtype, device, block_size, quantization, max_model_len, self._split)

    def _to_device(self, values: NDArray[np.int32]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.model.device, torch.int64)


def sample_checked(forwarded: Forwarded, batch: Batch) -> Sampled:
    """The tokens, and which rows of the batch are not to be trusted."""
    sampled = sample(forwarded.logits, batch)
    tokens = torch.from_numpy(sampled.token_ids).to(forwarded.logits.device, torch.int64)
    sums = state_sums(forwarded.states).cpu().numpy()
    chosen = chosen_logits(forwarded.logits, tokens).cpu().numpy()
    sampled.bad_rows = bad_rows(np.isfinite(sums), chosen < np.inf, batch.sample_rows)
    return sampled


def sample_and_read(
    forwarded: Forwarded,
    batch: Batch,
    head: ModelHead,
    captured: CapturedStates,
    scores: dict[int, list[TokenLogprobs]],
) -> Sampled:
    """`sample_checked`, with what the batch's prompts yield: `scores` by `score_prompts`, and what is pooled."""
    sampled = sample_checked(forwarded, batch)
    sampled.prompt_logprobs = scores
    sampled.pooled = read_prompts(head, captured, batch)
    sampled.bad_rows = with_bad_readings(sampled.bad_rows, sampled.pooled)
    return sampled


def load_checked(
    path: Path,
    dtype: str,
    device: str,
    block_size: int,
    quantization: Quantization = Quantization.AUTO,
    max_model_len: int | None = None,
    split: Split | None = None,
) -> LoadedModel:
    """The model with its modules swapped for faster ones if that gives the same logits, else as it is."""
    form = served_quantization(quantization, dtype)
    load = partial(load_model, path, dtype=dtype, device=device, max_model_len=max_model_len, split=split)
    model = load(quantization=form)
    learn_states(model)
    check_chunks(model.module, block_size)
    if form in ROUNDED_BITS and model.num_kept <= 1:
        raise ModelLoadError(
            f"{path} cannot be served in {form}: it has no linear layers, but perhaps a head, that could be rounded."
        )
    if model.num_kept:
        logger.info("%d linear layers are served as whole numbers", model.num_kept)
    if model.device.type == "cpu":
        ranks = split.ranks if split is not None and split.is_cut else None
        failure = fuse_checked(
            model,
            block_size,
            partial(optimize, model.module, model.dtype, ranks),
            prepare=partial(fuse_kept_experts, model.module),
        )
        if failure is None:
            return model
        if model.num_kept and quantization != Quantization.AUTO:
            raise ModelLoadError(f"{path} cannot be served in {quantization}: {failure}") from failure
        logger.warning("The model runs without fused modules, which is slower: %s", failure)
        model = load()
        learn_states(model)
    check_paged_attention(model, block_size)
    return model


def served_quantization(quantization: Quantization, dtype: str) -> Quantization:
    """What is to become of linear layers on a CPU. Whole numbers stay so where a kernel reads them, but not for one who
    asks for float32: rows would be rounded. ModelLoadError where int8 or int4 was asked for and cannot be had."""
    if native_kernels() is not None:
        is_exact = quantization == Quantization.AUTO and dtype == "float32"
        return Quantization.NONE if is_exact else quantization
    if quantization in ROUNDED_BITS:
        raise ModelLoadError(
            f"quantization {quantization} needs the native kernels, which are not available."
        )
    return Quantization.NONE
