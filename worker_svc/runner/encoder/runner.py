"""The runner of an encoder: prompts are computed at once, where their last chunks are, and nothing is kept of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.modeling_outputs import BaseModelOutputWithPooling

from signalbox.protocol.enums import ModelTask
from worker_svc.core.batch import Batch, BlockCopy, RunnerInfo, Sampled, StateCopy
from worker_svc.core.requests.pooling import LABEL_TASKS, TOKEN_TASKS, PoolingMode, PoolingParams
from worker_svc.runner.encoder.loading import LoadedEncoder, load_encoder
from worker_svc.runner.errors import ModelLoadError, check_at_least_one
from worker_svc.runner.model.label_head import HeadKind, label_settings
from worker_svc.runner.model.model_identity import identify
from worker_svc.runner.model.pooling_config import has_pooling_config
from worker_svc.runner.model.unexpected import refusing
from worker_svc.runner.runner_info import choose_pooling_mode, resolve_max_model_len, tokenizer_fingerprint
from worker_svc.runner.sampling.finite import with_bad_readings
from worker_svc.runner.sampling.prompt_results import params_of

STEPS_OF_BLOCKS = 4
"""Blocks hold so many of the largest steps: they are counted and never written, so they cost nothing."""


class Prompt(NamedTuple):
    """A prompt whose last chunk is in the step."""

    row: int
    slot: int
    length: int
    params: PoolingParams


class EncoderRunner:
    """A `ModelRunner` over a Hugging Face model directory of an encoder. One thread calls it.

    A prompt has blocks as everywhere, so that the scheduler needs to know nothing of it; nobody writes to them.
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
        block_size: int = 16,
        max_model_len: int | None = None,
        threads: int | None = None,
        max_num_batched_tokens: int = 8192,
    ) -> None:
        """Loads and checks the model. Settings as those of `TorchRunner`; ModelLoadError if that fails."""
        check_at_least_one(num_blocks=num_blocks, block_size=block_size, threads=threads)
        if threads is not None:
            torch.set_num_threads(threads)
        self._threads = threads
        path = Path(model_dir)
        with refusing(path):
            self.encoder = load_encoder(path, dtype=dtype, device=device)
        self._head = EncoderHead(self.encoder)
        length = resolve_max_model_len(max_model_len, self.encoder.max_positions, self.encoder.max_positions)
        tasks, mode = encoder_tasks(path, self.encoder)
        if num_blocks is None:
            num_blocks = -(-STEPS_OF_BLOCKS * max(length, max_num_batched_tokens) // block_size)
        self.info = RunnerInfo(
            model=served_model_name,
            num_blocks=num_blocks,
            block_size=block_size,
            max_model_len=length,
            vocab_size=self.encoder.vocab_size,
            eos_token_ids=(),
            tokenizer_fingerprint=tokenizer_fingerprint(path),
            tasks=tasks,
            has_logprobs=False,
            embedding_size=self.encoder.module.config.hidden_size,
            pooling_mode=mode,
            reads_both_ways=True,
            identity=identify(path, self.encoder.module, self.encoder.dtype, self.encoder.device),
            **label_settings(self.encoder.head),
        )

    @torch.inference_mode()
    def execute(self, batch: Batch) -> Sampled:
        """Computes the prompts whose last chunk this is; see `ModelRunner`."""
        sampled = Sampled(token_ids=np.zeros(len(batch.sample_index), np.int32))
        prompts = [
            Prompt(
                span.row,
                int(batch.slots[span.row]),
                int(batch.seq_lens[span.row]),
                params_of(batch, span.row),
            )
            for span in batch.pooled
        ]
        if prompts:
            prompts.sort(key=lambda prompt: prompt.length)  # those of one length attend in one call
            sampled.pooled = self._run(prompts, batch)
            sampled.bad_rows = with_bad_readings(sampled.bad_rows, sampled.pooled)
        return sampled

    @torch.inference_mode()
    def check(self) -> None:
        """Runs the model on one token; see `ModelRunner`."""
        one = torch.zeros(1, dtype=torch.int64, device=self.encoder.device)
        if not bool(self.encoder.states(one, one, one, [1]).sum().isfinite()):
            raise ArithmeticError("the hidden state is not finite")

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """Copies nothing: there is nothing in a block."""

    def copy_states(self, copies: list[StateCopy]) -> None:
        """Never called: there are no recurrent states."""

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """Returns a callable that copies nothing."""
        return lambda: None

    def _run(self, prompts: list[Prompt], batch: Batch) -> dict[int, NDArray[np.float32]]:
        if self._threads is not None and torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)  # the library counts by calling thread
        lengths = [prompt.length for prompt in prompts]
        token_ids = np.concatenate([batch.tokens[prompt.slot, : prompt.length] for prompt in prompts])
        positions = np.concatenate([np.arange(length) for length in lengths])
        states = self.encoder.states(
            self._to_device(token_ids),
            self._to_device(positions),
            self._to_device(np.concatenate([token_types(prompt) for prompt in prompts])),
            lengths,
        )
        return self._read(prompts, list(torch.split(states, lengths)))

    def _read(self, prompts: list[Prompt], states: list[torch.Tensor]) -> dict[int, NDArray[np.float32]]:
        """The result of each prompt, by row, from its last hidden states `[n, H]`."""
        pooled = [_pool(part, prompt.params) for prompt, part in zip(prompts, states, strict=True)]
        labelled = [number for number, prompt in enumerate(prompts) if prompt.params.task in LABEL_TASKS]
        if labelled:
            for number, values in zip(
                labelled, self._head.labels([pooled[number] for number in labelled]), strict=True
            ):
                pooled[number] = values
        sizes = [len(values) for values in pooled]
        results: dict[int, NDArray[np.float32]] = {}
        by_width: dict[int, list[int]] = {}
        for number, values in enumerate(pooled):
            by_width.setdefault(values.shape[1], []).append(number)
        for numbers in by_width.values():  # one copy for all of a width
            whole = torch.cat([pooled[number] for number in numbers]).cpu().numpy()
            pieces = np.split(whole, np.cumsum([sizes[number] for number in numbers])[:-1])
            for number, piece in zip(numbers, pieces, strict=True):
                prompt = prompts[number]
                results[prompt.row] = piece if prompt.params.task in TOKEN_TASKS else piece[0]
        return results

    def _to_device(self, values: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.encoder.device, torch.int64)


def token_types(prompt: Prompt) -> NDArray[np.int64]:
    """`[length]` 0 for the tokens of the first part, 1 for those behind."""
    first = prompt.params.num_first_tokens or prompt.length
    return (np.arange(prompt.length) >= first).astype(np.int64)


def _pool(states: torch.Tensor, params: PoolingParams) -> torch.Tensor:
    """`[1, H]` float32 of the hidden states `[n, H]`; for a task for tokens all of them."""
    if params.task in TOKEN_TASKS:
        return states.float()
    if params.mode == PoolingMode.MEAN:
        return states.float().mean(0, keepdim=True)
    return (states[:1] if params.mode == PoolingMode.CLS else states[-1:]).float()


def encoder_tasks(path: Path, encoder: LoadedEncoder) -> tuple[tuple[ModelTask, ...], PoolingMode]:
    """What can be asked of an encoder, and how it pools. ModelLoadError if it can do nothing as it is meant."""
    if encoder.head is not None:
        own = getattr(encoder.module.config, "classifier_pooling", "cls")
        mode = PoolingMode.MEAN if own == "mean" else PoolingMode.CLS
        return encoder.head.tasks(for_tokens=False), mode
    mode_of_embeddings = choose_pooling_mode(path) if has_pooling_config(path) else PoolingMode.CLS
    if mode_of_embeddings is None:
        raise ModelLoadError(
            f"{path} pools in a way that is not known here, and an encoder does nothing else."
        )
    return (ModelTask.EMBED, ModelTask.TOKEN_EMBED), mode_of_embeddings


class EncoderHead:
    """The classification head of an encoder, in the family's own code: that is called with its base model replaced by
    one whose output is known."""

    def __init__(self, encoder: LoadedEncoder) -> None:
        self._encoder = encoder

    def labels(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        """`[n, L]` float32 for each of `states` `[n, H]`: the pooled one of a prompt, or those of its tokens."""
        encoder = self._encoder
        assert encoder.head is not None, "requests for labels are refused without a head"
        rows = torch.cat(states).to(encoder.dtype)
        hidden = rows[None] if encoder.head.kind == HeadKind.TOKENS else rows[:, None]
        module, name, base = encoder.module, encoder.module.base_model_prefix, encoder.base
        pooler = getattr(base, "pooler", None)
        known = BaseModelOutputWithPooling(
            last_hidden_state=hidden, pooler_output=None if pooler is None else pooler(hidden)
        )
        setattr(module, name, _Known(known))
        try:
            logits = module(input_ids=rows.new_zeros(hidden.shape[:2], dtype=torch.int64)).logits
        finally:
            setattr(module, name, base)
        flat = logits.reshape(len(rows), -1).float()
        return list(torch.split(flat, [len(part) for part in states]))


class _Known(torch.nn.Module):
    """A base model whose output is known."""

    def __init__(self, output: BaseModelOutputWithPooling) -> None:
        super().__init__()
        self._output = output

    def forward(self, *_: object, **__: object) -> BaseModelOutputWithPooling:
        return self._output
