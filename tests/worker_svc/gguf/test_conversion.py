"""GGUF files made into model directories, and served from there: the same weights, the same tokens, and a sentence for
what is not read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.worker_svc.gguf.tiny_gguf import (
    F32,
    METADATA,
    NUM_HEADS,
    NUM_KV_HEADS,
    Q4_1,
    Q8_0,
    TEMPLATE,
    TOKENS,
    Array,
    draw_weights,
    write_gguf,
)
from worker_svc.gguf.conversion import convert
from worker_svc.gguf.errors import GgufError
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import load_model
from worker_svc.weights.digest import digest_of

LARGEST_ERROR = {F32: 0.0, Q8_0: 0.004, Q4_1: 0.03}
"""Of one number of about 0.1, by how it is stored."""


def converted(folder: Path, kind: int = F32, **changed: Any) -> Path:
    """A model directory made of a small file; metadata that is changed to None is left out."""
    folder.mkdir(exist_ok=True)
    metadata = {name: value for name, value in (METADATA | changed).items() if value is not None}
    write_gguf(folder / "model.gguf", metadata, kind=kind)
    convert(folder / "model.gguf", folder / "model")
    return folder / "model"


def loaded(directory: Path) -> dict[str, torch.Tensor]:
    """The model's parameters in float32."""
    state: dict[str, torch.Tensor] = load_model(directory, dtype="float32").module.state_dict()
    return state


def neighbours_paired(weight: torch.Tensor, num_heads: int) -> Array:
    """Rows of queries or keys as llama.cpp's converter puts them into the file."""
    halves = weight.float().numpy().reshape(num_heads, 2, -1, weight.shape[1])
    return np.asarray(halves.swapaxes(1, 2).reshape(weight.shape))


@pytest.mark.parametrize("kind", [F32, Q8_0, Q4_1])
def test_weights_come_out_as_they_went_in(tmp_path: Path, kind: int) -> None:
    made, drawn = loaded(converted(tmp_path, kind)), draw_weights()
    query = neighbours_paired(made["model.layers.1.self_attn.q_proj.weight"], NUM_HEADS)
    key = neighbours_paired(made["model.layers.0.self_attn.k_proj.weight"], NUM_KV_HEADS)
    pairs = [
        (query, drawn["blk.1.attn_q.weight"]),
        (key, drawn["blk.0.attn_k.weight"]),
        (made["model.layers.1.mlp.down_proj.weight"].float().numpy(), drawn["blk.1.ffn_down.weight"]),
        (made["model.embed_tokens.weight"].float().numpy(), drawn["token_embd.weight"]),
    ]
    for mine, theirs in pairs:
        assert mine == pytest.approx(theirs, rel=1e-6, abs=LARGEST_ERROR[kind])
    assert len(made) == len(drawn) + 1, "the embeddings are the head, too"


def test_the_worker_loads_it(tmp_path: Path) -> None:
    model = load_model(converted(tmp_path), dtype="float32")
    assert (model.vocab_size, model.max_position_embeddings) == (len(TOKENS), 256)
    assert model.eos_token_ids == (2,)
    config = model.module.config
    assert (config.rms_norm_eps, config.rope_parameters["rope_theta"]) == (1e-5, 100_000)
    assert config.tie_word_embeddings


def test_the_tokenizer_cuts_text_as_its_model_was_taught(tmp_path: Path) -> None:
    """SmolLM2 sees every digit by itself, and no special token comes before a text."""
    tokenizer = Tokenizer.from_file(str(converted(tmp_path) / "tokenizer.json"))
    assert tokenizer.encode("a the 10").tokens == ["a", "Ġthe", "Ġ", "1", "0"]
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert tokenizer.decode(tokenizer.encode("zoë <|im_end|>").ids) == "zoë "
    config = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert (config["eos_token"], config["chat_template"]) == ("<|im_end|>", TEMPLATE)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"general.architecture": "mamba"}, "the architecture 'mamba' is not served, only llama, qwen2"),
        ({"tokenizer.ggml.model": "bert"}, "GGUF's kind bert"),
        ({"tokenizer.ggml.pre": "viking"}, "cuts text by 'viking'"),
        ({"tokenizer.ggml.eos_token_id": 1 << 20}, "1048576 is no token that could be eos"),
        ({"llama.rope.scaling.type": "longrope"}, "the kind longrope"),
        ({"llama.rope.scaling.type": "dynamic", "llama.rope.scaling.factor": 2.0}, "the kind dynamic"),
        ({"llama.embedding_length": None}, "has no llama.embedding_length"),
    ],
)
def test_what_is_not_converted_is_named(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        converted(tmp_path, **changed)


@pytest.mark.parametrize("kept", [0, 3, 20, 400, 3000, -1])
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(GgufError):
        convert(path, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_count_that_the_file_does_not_hold_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    data = path.read_bytes()
    wrong = data.replace(len(TOKENS).to_bytes(8, "little"), (1 << 60).to_bytes(8, "little"))
    path.write_bytes(wrong)
    with pytest.raises(GgufError, match="not a whole GGUF file"):
        convert(path, tmp_path / "model")


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "worker_svc.gguf", str(tmp_path / "model.gguf"), str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{tmp_path / 'model.gguf'} cannot be read")
    write_gguf(tmp_path / "model.gguf")
    subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (tmp_path / "model" / "model.gguf").samefile(tmp_path / "model.gguf")


def test_weights_are_not_written_again(tmp_path: Path) -> None:
    """The directory has another name of the same file, or a symbolic link where there can be none."""
    directory = converted(tmp_path)
    assert (directory / "model.gguf").stat().st_ino == (tmp_path / "model.gguf").stat().st_ino
    assert {path.suffix for path in directory.iterdir()} == {".json", ".gguf"}


def test_stops_are_all_that_the_file_names(tmp_path: Path) -> None:
    directory = converted(tmp_path, **{"tokenizer.ggml.eot_token_id": 0})
    assert load_model(directory, dtype="float32").eos_token_ids == (0, 2)


def split(folder: Path, count: int) -> Path:
    """A model in parts as llama.cpp's gguf-split makes them: the metadata is in the first. Returns the path of that."""
    weights = list(draw_weights().items())
    size = -(-len(weights) // count)
    for number in range(count):
        about: dict[str, Any] = METADATA if number == 0 else {}
        told = {"split.no": number, "split.count": count, "split.tensors.count": len(weights)}
        part = dict(weights[number * size : (number + 1) * size])
        write_gguf(folder / f"tiny-{number + 1:05}-of-{count:05}.gguf", about | told, part)
    return folder / f"tiny-00001-of-{count:05}.gguf"


def test_a_model_in_parts_is_one(tmp_path: Path) -> None:
    convert(split(tmp_path, 3), tmp_path / "model")
    whole, parts = loaded(converted(tmp_path / "whole")), loaded(tmp_path / "model")
    assert all(torch.equal(parts[name], weight) for name, weight in whole.items())


def test_parts_and_whole_have_one_digest_and_another_form_has_another(tmp_path: Path) -> None:
    """I7."""
    convert(split(tmp_path, 3), tmp_path / "model")
    whole = digest_of(converted(tmp_path / "whole"))
    assert digest_of(tmp_path / "model") == whole
    assert digest_of(converted(tmp_path / "rounded", Q8_0)) != whole


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    first = split(tmp_path, 3)
    (tmp_path / "tiny-00002-of-00003.gguf").unlink()
    with pytest.raises(GgufError, match=r"tiny-00002-of-00003\.gguf cannot be read"):
        convert(first, tmp_path / "model")


def test_a_part_of_another_model_is_named(tmp_path: Path) -> None:
    first = split(tmp_path, 3)
    (tmp_path / "tiny-00002-of-00003.gguf").write_bytes((tmp_path / "tiny-00003-of-00003.gguf").read_bytes())
    with pytest.raises(GgufError, match=r"tiny-00002-of-00003\.gguf is not part 2 of 3"):
        convert(first, tmp_path / "model")


def test_a_file_that_was_cut_after_its_conversion_is_named(tmp_path: Path) -> None:
    path = converted(tmp_path) / "model.gguf"
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(ModelLoadError, match=r"model\.gguf is truncated"):
        load_model(path.parent, dtype="float32")
