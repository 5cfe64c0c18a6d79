"""A share of what `run` compares: kinds of model types that were once served wrong, or ended a worker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.worker_svc.runner.model_types.made import save_tiny, tiny_config
from tests.worker_svc.runner.model_types.run import EQUAL, REFUSED, compare, outcome_of
from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from worker_svc.runner.attention.visibility import Visibility
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import loading, probe


def test_a_head_that_calls_the_decoder_inside_its_base_model_is_served() -> None:
    """OPT's: it was accepted, and ended the worker at its first request."""
    assert outcome_of("opt").kind == EQUAL


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("bart", "gives other logits with paged attention"),
        ("doge", "makes a mask of its own"),
        ("phimoe:window", "sliding_window is 24"),
        ("llama:window", "sliding_window 24 of config.json is of no layer of model_type 'llama'"),
        ("llama:indexer", "index_topk of model_type 'llama'"),
    ],
)
def test_what_would_be_served_wrong_is_refused_by_name(model_type: str, words: str) -> None:
    outcome = outcome_of(model_type)
    assert outcome.kind == REFUSED
    assert words in outcome.told and model_type.partition(":")[0] in outcome.told


def test_a_window_that_no_request_is_longer_than_is_served(tmp_path: Path) -> None:
    """As the refusal says."""
    path = save_tiny(tiny_config("llama:window"), tmp_path / "model")
    make_runner(path, max_model_len=24)
    with pytest.raises(ModelLoadError, match="max_model_len of at most 24"):
        make_runner(path, max_model_len=25)


@pytest.mark.parametrize("max_model_len", [128, None])
def test_two_scales_of_longrope_are_one_for_all_requests(tmp_path: Path, max_model_len: int | None) -> None:
    """A short request gives the same logits alone and beside a long one; as transformers, where that has the scale."""
    path = save_tiny(tiny_config("phimoe:scales"), tmp_path / "model")
    config = json.loads((path / "config.json").read_text())
    kind = "short_mscale" if max_model_len else "long_mscale"
    config["rope_parameters"] |= dict.fromkeys(
        ("short_mscale", "long_mscale"), config["rope_parameters"][kind]
    )
    (tmp_path / "one").mkdir()
    shutil.copytree(path, tmp_path / "one", dirs_exist_ok=True)
    (tmp_path / "one" / "config.json").write_text(json.dumps(config))
    assert compare(tmp_path / "one").kind == EQUAL
    outputs = []
    for directory, lengths in ((path, (20, 120)), (tmp_path / "one", (20,))):
        driver = Driver(make_runner(directory, max_model_len=max_model_len))
        requests = [driver.add(prompt, 8) for prompt in make_prompts(lengths)]
        driver.run(chunk_size=40)
        outputs.append(requests[0].output)
    assert outputs[0] == outputs[1]


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tiny_config("mistral"), tmp_path_factory.mktemp("mistral") / "model")


def changed(path: Path, out_dir: Path, **fields: Any) -> Path:
    """The same model with other fields in its config.json."""
    shutil.copytree(path, out_dir)
    config = json.loads((out_dir / "config.json").read_text())
    (out_dir / "config.json").write_text(json.dumps(config | fields))
    return out_dir


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"compress_ratios": [4, 4]}, "compress_ratios of model_type 'mistral'"),
        ({"indexer_types": ["full"]}, "indexer_types of model_type 'mistral'"),
        ({"ngram_vocab_size_base": 20}, "ngram_vocab_size_base of model_type 'mistral'"),
        ({"rope_scaling": {"type": "su", "factor": 2.0}}, "rope_scaling of type 'su' is not one of"),
        ({"layer_types": ["heavy"]}, "layer type 'heavy' of model_type 'mistral'"),
        ({"intermediate_size": 96}, "in the shape [64, 128], but its config.json says [64, 96]"),
        ({"intermediate_size": 96}, "model.layers.0.mlp.down_proj.weight"),
        (
            {"model_type": "baichuan", "auto_map": {"AutoConfig": "configuration_baichuan.Baichuan"}},
            "model_type 'baichuan' is not served: its code is in its own repository (auto_map)",
        ),
        ({"model_type": "hpt"}, "model_type 'hpt' is not served: transformers"),
        ({"hidden_act": "siluu"}, "(model_type 'mistral') was refused by transformers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_name_family_key_and_reason(
    mistral: Path, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelLoadError) as refused:
        make_runner(changed(mistral, tmp_path / "model", **fields))
    assert words in str(refused.value)


def test_a_weight_that_is_not_finite_is_named(mistral: Path, tmp_path: Path) -> None:
    path = changed(mistral, tmp_path / "model")
    weights = load_file(path / "model.safetensors")
    weights["model.layers.1.self_attn.o_proj.weight"][0, 0] = torch.nan
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"layers\.1\.self_attn\.o_proj.* has such numbers"):
        make_runner(path)


def test_an_assertion_of_a_models_code_is_a_refusal(mistral: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names the directory, the family and the place."""

    def broken(*_: object, **__: object) -> None:
        raise AssertionError("never thought of that")

    monkeypatch.setattr(loading, "fix_rope", broken)
    words = r"model.*\(model_type 'mistral'\) cannot be served: AssertionError: never thought.*in broken of"
    with pytest.raises(ModelLoadError, match=words):
        make_runner(mistral)


class FollowsTheBatch(nn.Module):
    """Cosines and sines that are scaled by the longest position of a batch."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, **more: Any) -> Any:
        """As those of `rotary`; twice as large in batches that reach position 256."""
        return [part * (1 + (position_ids.max() >= 256)) for part in self.rotary(x, position_ids, **more)]


def test_the_probe_notices_what_follows_the_longest_of_a_batch(mistral: Path) -> None:
    model = loading.load_model(mistral, dtype="float32")
    probe.check_paged_attention(model, block_size=16)
    model.module.model.rotary_emb = FollowsTheBatch(model.module.model.rotary_emb)
    with pytest.raises(ModelLoadError, match="gives other logits beside another request than alone"):
        probe.check_paged_attention(model, block_size=16)


@pytest.mark.parametrize(("window", "length"), [(24, 64), (300, 340), (None, 40)])
def test_the_probe_is_longer_than_windows(tmp_path: Path, window: int | None, length: int) -> None:
    config = tiny_config("mistral")
    config.sliding_window = window
    model = loading.load_model(save_tiny(config, tmp_path), dtype="float32")
    assert probe.probe_tokens(model).shape[1] == length
    chunks = probe._chunks(length)
    assert [start for start, _ in chunks[1:]] == [end for _, end in chunks[:-1]]
    assert len(chunks) >= 3 and chunks[-1] == (length - 1, length)


def test_long_windows_of_large_models_are_not_computed(
    mistral: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are known from masks alone, which are asked about positions that no forward has."""
    path = changed(mistral, tmp_path / "model", max_position_embeddings=9000, sliding_window=8000)
    monkeypatch.setattr(probe, "MOST_PRODUCTS", 1 << 20)
    model = loading.load_model(path, dtype="float32")
    assert probe.probe_tokens(model).shape[1] == probe.PROBE_TOKENS


@pytest.mark.parametrize(
    ("window", "chunk", "first"),
    [(None, None, 0), (24, None, 77), (None, 32, 96), (16, 64, 85), (999, None, 0)],
)
def test_what_a_mask_shows_is_compared_with_what_the_cache_shows(
    window: int | None, chunk: int | None, first: int
) -> None:
    layer = Visibility(window, chunk, lambda b, h, q, kv: (kv <= q) & (kv >= first))
    assert layer.first_seen(100) == layer.first_seen_by_mask(100) == first


def test_masks_with_gaps_and_without_a_rule() -> None:
    assert Visibility(None, None, lambda b, h, q, kv: kv % 2 == q % 2).first_seen_by_mask(9) == -1
    assert Visibility(None, None, lambda b, h, q, kv: torch.zeros(3)[kv]).first_seen_by_mask(9) is None
    assert Visibility(None, None, None).first_seen_by_mask(9) is None
