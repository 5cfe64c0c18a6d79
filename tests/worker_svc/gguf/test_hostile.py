"""GGUF files that lie: each is refused with a sentence, and nothing else happens."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker_svc.gguf.tiny_gguf import METADATA, draw_weights, write_gguf
from worker_svc.gguf.conversion import convert
from worker_svc.gguf.errors import GgufError

VALUES: list[Any] = [0, 2**32 - 1, 10**9, "x", "", 1.5, float("nan"), float("inf"), True, ["a"], [1, 2]]
FURTHER = (
    "general.alignment",
    "llama.attention.key_length",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
)


def try_to_convert(path: Path) -> None:
    """Converts, or is refused."""
    try:
        convert(path, path.parent / "made")
    except GgufError as error:
        assert str(error)


@pytest.mark.parametrize("name", [*METADATA, *FURTHER])
def test_metadata_of_any_type_is_taken_or_refused(tmp_path: Path, name: str) -> None:
    for value in VALUES:
        write_gguf(tmp_path / "m.gguf", METADATA | {name: value})
        try_to_convert(tmp_path / "m.gguf")
    write_gguf(tmp_path / "m.gguf", {other: value for other, value in METADATA.items() if other != name})
    try_to_convert(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_norm.weight"])
@pytest.mark.parametrize("shape", [(3,), (64, 65), (2, 3, 4), (0, 64), (1, 64)])
def test_a_tensor_of_another_shape_is_refused(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    """A worker would find it out only when it loads the model."""
    write_gguf(tmp_path / "m.gguf", weights=draw_weights() | {name: np.zeros(shape, np.float32)})
    with pytest.raises(GgufError, match="has the shape"):
        convert(tmp_path / "m.gguf", tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.attn_v.weight", "output_norm.weight"])
def test_a_tensor_that_is_missing_is_found_out(tmp_path: Path, name: str) -> None:
    weights = draw_weights()
    del weights[name]
    write_gguf(tmp_path / "m.gguf", weights=weights)
    with pytest.raises(GgufError, match="tensors, and the file"):
        convert(tmp_path / "m.gguf", tmp_path / "made")


def test_a_layer_beyond_the_last_is_refused(tmp_path: Path) -> None:
    weights = draw_weights()
    weights["blk.7.attn_q.weight"] = weights.pop("blk.1.attn_q.weight")
    write_gguf(tmp_path / "m.gguf", weights=weights)
    with pytest.raises(GgufError, match="none of a llama's"):
        convert(tmp_path / "m.gguf", tmp_path / "made")


def test_arrays_in_arrays_without_end_are_refused(tmp_path: Path) -> None:
    head = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 1) + b"a" + struct.pack("<I", 9)
    (tmp_path / "m.gguf").write_bytes(head + struct.pack("<IQ", 9, 1) * 100_000)
    with pytest.raises(GgufError, match="not a whole GGUF file"):
        convert(tmp_path / "m.gguf", tmp_path / "made")


def test_tokens_and_merges_that_are_none_are_refused(tmp_path: Path) -> None:
    tokens = list(METADATA["tokenizer.ggml.tokens"])
    for changed in (
        {"tokenizer.ggml.tokens": [tokens[1], *tokens[1:]]},
        {"tokenizer.ggml.merges": ["Ġ"]},
        {"tokenizer.ggml.merges": ["nobody knows"]},
        {"tokenizer.ggml.eos_token_id": len(tokens)},
        {"tokenizer.ggml.token_type": [1]},
    ):
        write_gguf(tmp_path / "m.gguf", METADATA | changed)
        with pytest.raises(GgufError):
            convert(tmp_path / "m.gguf", tmp_path / "made")


@pytest.mark.parametrize("seed", range(4))
def test_damaged_heads_are_refused_or_mean_something(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    whole = path.read_bytes()
    end = whole.index(b"output_norm.weight") + 60
    draw = random.Random(seed)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 1, 2, 8])):
            at = draw.randrange(end)
            match draw.randrange(3):
                case 0:
                    damaged[at] = draw.randrange(256)
                case 1:
                    number = draw.choice([0, 1, 33, 2**32, 2**63, 2**64 - 1, len(whole)])
                    damaged[at : at + 8] = struct.pack("<Q", number)
                case 2:
                    del damaged[at : at + draw.randrange(1, 9)]
        path.write_bytes(damaged)
        try_to_convert(path)


@pytest.mark.parametrize("theta", [0.0, -2.5, 1e4, 1e-29])
@pytest.mark.parametrize("divisor", [0.0, -3.0, 5.0, float("nan")])
def test_frequencies_that_are_none_are_refused(tmp_path: Path, theta: float, divisor: float) -> None:
    half = METADATA["llama.embedding_length"] // METADATA["llama.attention.head_count"] // 2
    weights = draw_weights() | {"rope_freqs.weight": np.full(half, divisor, np.float32)}
    write_gguf(tmp_path / "m.gguf", METADATA | {"llama.rope.freq_base": theta}, weights=weights)
    with pytest.raises(GgufError, match=r"rope_freqs\.weight"):
        convert(tmp_path / "m.gguf", tmp_path / "made")


@pytest.mark.timeout(60)
def test_a_token_without_end_takes_no_time(tmp_path: Path) -> None:
    """Each cut of a piece may be a merge: a token of a few megabytes would take days."""
    tokens = list(METADATA["tokenizer.ggml.tokens"])
    pieces = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["a" * (4 << 20), *tokens[1:]],
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": [1] * len(tokens),
    }
    write_gguf(tmp_path / "m.gguf", METADATA | pieces)
    with pytest.raises(GgufError, match="a token of more than"):
        convert(tmp_path / "m.gguf", tmp_path / "made")
