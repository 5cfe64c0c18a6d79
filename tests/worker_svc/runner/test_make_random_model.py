"""The tool that writes random models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tools.make_random_model import PRESETS, copy_tokenizer, make_model


def write_tokenizer(path: Path, size: int) -> Path:
    path.mkdir()
    vocab = {f"t{i}": i for i in range(size - 1)}
    added = [{"id": size - 1, "content": "<end>"}]
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": added}))
    return path


def test_weights_follow_the_seed(tmp_path: Path) -> None:
    first, again, other = (
        load_file(make_model("tiny-qwen3", tmp_path / name, seed, torch.bfloat16) / "model.safetensors")
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)
    assert {weight.dtype for weight in first.values()} == {torch.bfloat16}


def test_qwen3_60m_has_the_shape_that_others_were_measured_with() -> None:
    config = PRESETS["qwen3-60m"][0](**PRESETS["qwen3-60m"][1])
    dims = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.head_dim)
    assert dims == (512, 8, 8, 64)
    assert (config.num_key_value_heads, config.vocab_size, config.tie_word_embeddings) == (4, 32000, True)


def test_tokenizer_is_copied_if_the_vocabulary_allows(tmp_path: Path) -> None:
    out_dir = make_model("tiny-llama", tmp_path / "model")
    copy_tokenizer(write_tokenizer(tmp_path / "fits", 512), out_dir)
    assert json.loads((out_dir / "tokenizer.json").read_text())["added_tokens"][0]["id"] == 511
    with pytest.raises(ValueError, match="has token 512, but the model has 512 tokens"):
        copy_tokenizer(write_tokenizer(tmp_path / "large", 513), out_dir)
