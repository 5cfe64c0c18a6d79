"""Tokenizers of sentence pieces in GGUF: text to tokens and back, with merges that follow from the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tests.worker_svc.gguf.tiny_gguf import HIDDEN, METADATA, draw_weights, write_gguf
from worker_svc.gguf.conversion import convert

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["a", "b", "c", "▁", "▁a", "ab", "▁ab", "bc", "abc", "▁▁"]
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *WORDS, "<end>"]
SCORES = [0.0] * 259 + [0.0, 0.0, 0.0, 0.0, -2.0, -3.0, -4.0, -1.0, -5.0, -6.0] + [0.0]
TYPES = [2, 3, 3] + [6] * 256 + [1] * len(WORDS) + [4]


def tokenizer_of(folder: Path, **changed: Any) -> Tokenizer:
    metadata = METADATA | {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": SCORES,
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }
    kept = {name: value for name, value in (metadata | changed).items() if value is not None}
    embeddings = {"token_embd.weight": np.zeros((len(TOKENS), HIDDEN), np.float32)}
    write_gguf(folder / "m.gguf", kept, draw_weights() | embeddings)
    convert(folder / "m.gguf", folder / "m")
    return Tokenizer.from_file(str(folder / "m" / "tokenizer.json"))


def test_the_best_score_is_merged_first(tmp_path: Path) -> None:
    """`bc` goes before `ab`, so that `abc` is made of `a` and `bc`, and `▁a` before it."""
    tokenizer = tokenizer_of(tmp_path)
    assert tokenizer.encode("bc").tokens == ["<s>", "▁", "bc"]
    assert tokenizer.encode("abc").tokens == ["<s>", "▁a", "bc"]


def test_a_text_begins_as_the_file_says(tmp_path: Path) -> None:
    assert tokenizer_of(tmp_path).encode("a", add_special_tokens=False).tokens == ["▁a"]
    plain = tokenizer_of(
        tmp_path, **{"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False}
    )
    assert plain.encode("a").tokens == ["a"]
    both = tokenizer_of(
        tmp_path, **{"tokenizer.ggml.add_bos_token": None, "tokenizer.ggml.add_eos_token": True}
    )
    assert both.encode("a").tokens == ["<s>", "▁a", "</s>"]


def test_what_is_not_in_the_vocabulary_is_bytes(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path)
    encoded = tokenizer.encode("a é<end>b")
    assert encoded.tokens == ["<s>", "▁a", "▁", "<0xC3>", "<0xA9>", "<end>", "▁", "b"]
    assert tokenizer.decode(encoded.ids[1:5]) == "a é"
