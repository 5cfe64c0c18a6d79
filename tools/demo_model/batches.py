"""Token streams, and the batch of each step."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tools.demo_model.corpus import Corpus, load_corpus
from tools.demo_model.settings import MAX_CONTEXT, Settings
from tools.demo_model.tokenizer import EOS, obtain_tokenizer

LONG_STEP_EVERY = 16


@dataclass(frozen=True)
class Data:
    corpus: Corpus
    tokenizer: Tokenizer
    train: torch.Tensor
    """[tokens] int32; every document is closed by the end-of-text token."""
    held_out: torch.Tensor


def encode_documents(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """One stream of the documents' token ids."""
    eos = tokenizer.token_to_id(EOS)
    ids = [np.array([*encoding.ids, eos], dtype=np.int32) for encoding in tokenizer.encode_batch(texts)]
    return torch.from_numpy(np.concatenate(ids))


def load_data(settings: Settings) -> Data:
    """The token streams are cached, and encoded anew when the corpus or the tokenizer differ."""
    corpus = load_corpus()
    tokenizer = obtain_tokenizer(settings, corpus)
    key = hashlib.sha256((corpus.digest + tokenizer.to_str()).encode()).hexdigest()[:16]
    path = settings.work_dir / f"tokens-{key}.safetensors"
    if not path.exists():
        order = np.random.default_rng(0).permutation(len(corpus.train))
        train = encode_documents(tokenizer, [corpus.train[i] for i in order])
        save_file({"train": train, "held_out": encode_documents(tokenizer, corpus.held_out)}, path)
    tensors = load_file(path)
    return Data(corpus, tokenizer, tensors["train"], tensors["held_out"])


def cut_rows(stream: torch.Tensor, starts: np.ndarray[Any, Any], length: int) -> torch.Tensor:
    """[rows, length + 1] token ids: inputs and, one further on, targets."""
    return torch.stack([stream[start : start + length + 1] for start in starts]).long()


def draw_batch(stream: torch.Tensor, settings: Settings, step: int) -> torch.Tensor:
    """The batch of a step, a function of seed and step alone so that a resumed run needs no sampler state.

    Most steps walk through a fresh permutation of the stream each epoch, shifted so that the cuts differ;
    every sixteenth takes few rows of full context, which teaches the positions beyond `sequence_length`.
    """
    if step % LONG_STEP_EVERY == LONG_STEP_EVERY - 1:
        rng = np.random.default_rng([settings.seed, 1, step])
        rows = max(1, settings.batch_tokens // MAX_CONTEXT)
        return cut_rows(stream, rng.integers(0, len(stream) - MAX_CONTEXT - 1, rows), MAX_CONTEXT)
    length = settings.sequence_length
    rows = settings.batch_tokens // length
    blocks = (len(stream) - 1) // length - 1
    epoch, position = divmod(step * rows, blocks - blocks % rows)
    rng = np.random.default_rng([settings.seed, 0, epoch])
    shift = rng.integers(0, length)
    return cut_rows(stream, shift + length * rng.permutation(blocks)[position : position + rows], length)
