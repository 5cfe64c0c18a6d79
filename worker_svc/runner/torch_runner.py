"""The runner that computes a real model with torch: one flattened forward per step, then the sampler."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, BlockCopy, RunnerInfo, Sampled
from worker_svc.runner import attention, checkpoint
from worker_svc.runner.attention import PagedBatch
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.kv_cache import KVCache, blocks_that_fit, bytes_per_block
from worker_svc.runner.model import LoadedModel, load_model
from worker_svc.runner.optimize import optimize
from worker_svc.runner.probe import check_paged_attention, eager_logits
from worker_svc.runner.sampler import sample

logger = logging.getLogger(__name__)


class TorchRunner:
    """A `ModelRunner` over a Hugging Face model directory. One thread calls it.

    In float32 on a CPU, logits of a step with one query token differ by rounding from those of the same
    token in a larger step (another matrix product routine); in bfloat16 they were found equal bit for bit.
    """

    info: RunnerInfo

    def __init__(
        self,
        model_dir: str | os.PathLike[str],
        *,
        served_model_name: str,
        dtype: str = "auto",
        device: str = "cpu",
        num_blocks: int | None = None,
        num_host_blocks: int = 0,
        block_size: int = 16,
        max_model_len: int | None = None,
        threads: int | None = None,
        kv_cache_memory: int | None = None,
    ) -> None:
        """Loads and checks the model and takes the memory of its KV cache. ModelLoadError if that fails.

        dtype: auto, float32 or bfloat16, for weights and cache. device: cpu or cuda. num_blocks: size of the
        cache; None: as many as kv_cache_memory bytes hold (None: a share of the free memory). max_model_len:
        positions of one request; None: what the model was made for, or the whole cache if that is less.
        threads: of torch and numba; None leaves their own choice.
        """
        check_at_least_one(num_blocks=num_blocks, block_size=block_size, threads=threads)
        self._threads = threads
        self._caller: int | None = None
        self._adopt_caller()
        path = Path(model_dir)
        self.model = load_checked(path, dtype, device, block_size)
        self._cache = make_cache(self.model, num_blocks, block_size, kv_cache_memory)
        if num_host_blocks:
            self._cache.add_host_tier(num_host_blocks)
        self.info = RunnerInfo(
            model=served_model_name,
            num_blocks=self._cache.num_blocks,
            block_size=block_size,
            max_model_len=resolve_max_model_len(
                max_model_len, self.model.max_position_embeddings, self._cache.num_blocks * block_size
            ),
            vocab_size=self.model.vocab_size,
            eos_token_ids=self.model.eos_token_ids,
            tokenizer_fingerprint=tokenizer_fingerprint(path),
            num_host_blocks=num_host_blocks,
        )

    @torch.inference_mode()
    def execute(self, batch: Batch) -> Sampled:
        """Writes the KV of all query tokens and samples; see `ModelRunner`."""
        if not len(batch.token_ids):
            return Sampled(token_ids=np.empty(0, np.int32))
        return sample(self.forward(batch), batch)

    @torch.inference_mode()
    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """Copies whole blocks of all layers, in order."""
        for copy in copies:
            self._cache.copy_block(copy)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> torch.Tensor:
        """Writes the KV of all query tokens. Returns the samples' logits `[N, V]` in the model's dtype."""
        self._adopt_caller()
        paged = PagedBatch(
            cache=self._cache,
            num_decode_rows=batch.num_decode_rows,
            query_starts=batch.query_starts,
            positions=batch.positions,
            block_tables=batch.block_tables,
            device=self.model.device,
        )
        with attention.running(paged):
            output = self.model.module(
                input_ids=self._to_device(batch.token_ids)[None],
                position_ids=self._to_device(batch.positions)[None],
                use_cache=False,
                logits_to_keep=self._to_device(batch.sample_index),
            )
        return output.logits[0]  # type: ignore[no-any-return]

    def _adopt_caller(self) -> None:
        """Limits the threads again when another thread calls; the libraries count by calling thread."""
        caller = threading.get_ident()
        if self._threads is not None and caller != self._caller:
            set_threads(self._threads)
        self._caller = caller

    def _to_device(self, values: NDArray[np.int32]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.model.device, torch.int64)


def check_at_least_one(**settings: int | None) -> None:
    """ModelLoadError if a setting that counts something was set to less than 1."""
    for name, value in settings.items():
        if value is not None and value < 1:
            raise ModelLoadError(f"{name} is {value}, but at least 1 is needed.")


def set_threads(threads: int) -> None:
    """Threads that torch and numba use for the calling thread; best before the first operation."""
    torch.set_num_threads(threads)
    attention.set_threads(threads)


def load_checked(path: Path, dtype: str, device: str, block_size: int) -> LoadedModel:
    """The model with its modules swapped for faster ones if that gives the same logits, else as it is."""
    model = load_model(path, dtype=dtype, device=device)
    if model.device.type == "cpu":
        expected = eager_logits(model)
        try:
            optimize(model.module, model.dtype)
            check_paged_attention(model, block_size, expected)
            return model
        except Exception as error:  # whatever it is: the model's own modules may still do
            logger.warning("The model runs without fused modules, which is slower: %s", error)
        model = load_model(path, dtype=dtype, device=device)
    check_paged_attention(model, block_size)
    return model


def make_cache(
    model: LoadedModel, num_blocks: int | None, block_size: int, kv_cache_memory: int | None
) -> KVCache:
    """The KV cache of `num_blocks` blocks, or of as many as fit."""
    block_bytes = bytes_per_block(model.layer_shapes, block_size, model.dtype)
    if num_blocks is None:
        num_blocks = blocks_that_fit(block_bytes, kv_cache_memory, model.device)
    try:
        return KVCache(
            model.layer_shapes,
            num_blocks=num_blocks,
            block_size=block_size,
            dtype=model.dtype,
            device=model.device,
        )
    except RuntimeError as error:
        raise ModelLoadError(
            f"num_blocks of {num_blocks} takes {num_blocks * block_bytes} bytes, more than the device gave."
        ) from error


def resolve_max_model_len(requested: int | None, model_limit: int, cache_positions: int) -> int:
    """Positions of one request. ModelLoadError if more are asked for than the model was made for."""
    if requested is None:
        return min(model_limit, cache_positions)
    if not 1 <= requested <= model_limit:
        raise ModelLoadError(
            f"max_model_len is {requested}, but max_position_embeddings of the model is {model_limit}."
        )
    return requested


def tokenizer_fingerprint(model_dir: Path) -> str:
    """SHA-256 of tokenizer.json in hexadecimal; empty if there is none."""
    path = model_dir / checkpoint.TOKENIZER
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
