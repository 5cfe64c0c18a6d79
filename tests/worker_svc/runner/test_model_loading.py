"""What is refused at load, and how a loaded model's facts are found."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.core_model_loading import GLOBAL_WORKERS

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import loading, memory, probe
from worker_svc.runner.model.lazy_weights import LazyWeights
from worker_svc.runner.model.loading import choose_dtype, load_model
from worker_svc.runner.model.quantised_linear import QuantisedLinear, skipping_products
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.weights.held import hold
from worker_svc.weights.rounding import round_to_eight_bits

ModelDir = Callable[[str], Path]


@pytest.fixture
def broken(model_dir: ModelDir, tmp_path: Path) -> Path:
    """A copy of a good model directory, to be damaged."""
    return Path(shutil.copytree(model_dir("tiny-llama"), tmp_path / "model"))


def load(path: Path, **settings: Any) -> TorchRunner:
    options: dict[str, Any] = {"dtype": "float32", "num_blocks": 8, "threads": 1}
    return TorchRunner(path, served_model_name="tiny", **(options | settings))


def refusal(path: Path, **settings: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def change_config(path: Path, **changes: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | changes))


def test_missing_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere") == (
        f"the model directory {tmp_path / 'nowhere'} does not exist; for a model by its name: "
        "signalbox serve worker --model NAME"
    )


def test_missing_config(broken: Path) -> None:
    (broken / "config.json").unlink()
    assert refusal(broken) == f"{broken / 'config.json'} does not exist."


@pytest.mark.parametrize(
    ("text", "reason"), [('{"model_type":', "is not valid JSON"), ("[]", "does not hold a JSON object")]
)
def test_broken_config(broken: Path, text: str, reason: str) -> None:
    (broken / "config.json").write_text(text)
    message = refusal(broken)
    assert str(broken / "config.json") in message
    assert reason in message


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("bloom", "attention code of its own"),
        ("zamba2", "recurrent layers of a kind that is not known"),
        (None, "not the name of a family"),
        (7, "not the name of a family"),
    ],
)
def test_unsupported_family(broken: Path, family: object, reason: str) -> None:
    change_config(broken, model_type=family)
    message = refusal(broken)
    assert f"model_type {family!r}" in message
    assert reason in message


def test_unknown_family(broken: Path) -> None:
    change_config(broken, model_type="no_such_family")
    assert str(broken) in refusal(broken)


def test_rope_by_layer_type_is_looked_into(broken: Path) -> None:
    change_config(broken, rope_parameters={"full_attention": {"rope_type": "spiral", "factor": 2.0}})
    assert "rope_parameters of type 'spiral'" in refusal(broken)


@pytest.mark.parametrize("rope", [{"rope_type": "spiral", "factor": 2.0}, {"type": "mrope"}])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_that_depends_on_the_batch(broken: Path, key: str, rope: dict[str, Any]) -> None:
    change_config(broken, **{key: rope})
    assert f"{key} of type {next(iter(rope.values()))!r}" in refusal(broken)


def test_quantised_weights(broken: Path) -> None:
    change_config(broken, quantization_config={"quant_method": "gptq"})
    assert "quantization_config" in refusal(broken)


def test_unknown_layer_type(broken: Path) -> None:
    change_config(broken, layer_types=["full_attention", "linear_attention", "full_attention"])
    assert "'linear_attention'" in refusal(broken)


def test_truncated_weights(broken: Path) -> None:
    weights = broken / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-100])
    assert refusal(broken) == f"{weights} is truncated: it has {len(data) - 100} of {len(data)} bytes."


@pytest.mark.parametrize("data", [b"", b"1234", b"\xff" * 100, (16).to_bytes(8, "little") + b"x" * 40])
def test_weights_that_are_not_safetensors(broken: Path, data: bytes) -> None:
    (broken / "model.safetensors").write_bytes(data)
    assert str(broken / "model.safetensors") in refusal(broken)


def test_missing_weights(broken: Path) -> None:
    (broken / "model.safetensors").unlink()
    assert refusal(broken).startswith(f"{broken} has neither model.safetensors nor")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_never_opened(broken: Path, name: str) -> None:
    (broken / "model.safetensors").unlink()
    (broken / name).write_bytes(b"not even a pickle")
    message = refusal(broken)
    assert name in message
    assert "convert them to safetensors" in message


@pytest.mark.parametrize("name", ["model-00002-of-00002.safetensors", "../elsewhere.safetensors", "a.bin"])
def test_index_that_names_a_bad_file(broken: Path, name: str) -> None:
    (broken / "model.safetensors").unlink()
    index = broken / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    assert name in refusal(broken)


def test_a_weight_that_is_missing_is_not_made_up(broken: Path) -> None:
    weights = load_file(broken / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    message = refusal(broken)
    assert "lacks the weight model.layers.1.mlp.up_proj.weight" in message
    assert str(broken) in message


def test_a_weight_of_another_shape(broken: Path) -> None:
    change_config(broken, intermediate_size=96)
    assert str(broken) in refusal(broken)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dtype": "float8"}, "dtype 'float8' is not one of auto, float32, bfloat16."),
        ({"device": "tpu9"}, "device 'tpu9'"),
        ({"device": "meta"}, "device 'meta' is neither cpu nor cuda."),
        ({"threads": 0}, "threads is 0, but at least 1 is needed."),
        ({"num_blocks": 0}, "num_blocks is 0, but at least 1 is needed."),
        ({"block_size": 0}, "block_size is 0, but at least 1 is needed."),
        (
            {"num_blocks": None, "kv_cache_memory": 1000},
            "kv_cache_memory of 1000 bytes does not hold one block",
        ),
        ({"num_blocks": 1 << 40}, f"The KV cache of {1 << 40} blocks takes"),
        ({"kv_cache_memory": 1 << 20}, "num_blocks and kv_cache_memory both size the KV cache"),
        (
            {"num_blocks": None, "gpu_memory_utilization": 0.5},
            "gpu_memory_utilization is for a GPU; kv_cache_memory sizes the cache on a CPU.",
        ),
        ({"max_model_len": 513}, "max_model_len is 513, but max_position_embeddings of the model is 512."),
        ({"max_model_len": 0}, "max_model_len is 0"),
    ],
    ids=str,
)
def test_refused_settings(model_dir: ModelDir, settings: dict[str, Any], reason: str) -> None:
    assert reason in refusal(model_dir("tiny-llama"), **settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_absent_cuda_device(model_dir: ModelDir) -> None:
    assert "torch sees no CUDA device" in refusal(model_dir("tiny-llama"), device="cuda")


def test_info(broken: Path) -> None:
    (broken / "tokenizer.json").write_bytes(b"{}")
    info = load(broken, num_blocks=None, kv_cache_memory=1 << 20, block_size=8).info
    assert info.model == "tiny"
    assert info.num_blocks == (1 << 20) // (3 * 8 * 2 * (16 + 16) * 4)
    assert (info.block_size, info.max_model_len, info.vocab_size) == (8, 512, 512)
    assert info.eos_token_ids == (2,)
    assert info.tokenizer_fingerprint == hashlib.sha256(b"{}").hexdigest()


def test_max_model_len_is_what_the_cache_holds(model_dir: ModelDir) -> None:
    assert load(model_dir("tiny-llama"), num_blocks=3, block_size=16).info.max_model_len == 48
    assert load(model_dir("tiny-llama"), num_blocks=99, block_size=16).info.max_model_len == 512
    assert load(model_dir("tiny-llama"), num_blocks=99, max_model_len=100).info.max_model_len == 100


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [([7, 5], 3, (3, 5, 7)), (4, 3, (3, 4)), (4, 4, (4,)), (None, [3, 1], (1, 3)), (None, None, ())],
)
def test_eos_tokens(broken: Path, generation: object, config: object, expected: tuple[int, ...]) -> None:
    (broken / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    change_config(broken, eos_token_id=config)
    assert load_model(broken, dtype="float32").eos_token_ids == expected


@pytest.mark.parametrize("eos_token", ["<|im_end|>", {"content": "<|im_end|>"}])
@pytest.mark.parametrize(
    "tokenizer",
    [
        {"added_tokens": [{"id": 9, "content": "<|im_end|>"}]},
        {"model": {"vocab": {"<|im_end|>": 9}}},
    ],
)
def test_the_tokenizers_end_of_sequence_is_one_too(
    broken: Path, eos_token: object, tokenizer: object
) -> None:
    """A fine-tune says <|im_end|> in its tokenizer only, and would never stop."""
    (broken / "tokenizer.json").write_text(json.dumps(tokenizer))
    (broken / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos_token}))
    assert load_model(broken, dtype="float32").eos_token_ids == (2, 9)
    (broken / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<other>"}))
    assert load_model(broken, dtype="float32").eos_token_ids == (2,)


def test_eos_tokens_without_generation_config(broken: Path) -> None:
    (broken / "generation_config.json").unlink()
    assert load_model(broken, dtype="float32").eos_token_ids == (2,)


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ("sse2 avx2 fma avx512f", torch.float32),
        ("avx512f avx512_bf16", torch.bfloat16),
        ("avx2 amx_bf16", torch.bfloat16),
        ("fp asimd asimddp i8mm", torch.float32),
        ("fp asimd asimddp i8mm bf16", torch.bfloat16),
    ],
)
def test_auto_dtype_is_one_that_the_cpu_is_fast_at(
    flags: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux names instructions, on x86 and on ARM."""
    monkeypatch.setattr(loading, "cpu_flags", lambda: set(flags.split()))
    assert choose_dtype("auto", torch.device("cpu")) == dtype


def test_default_memory_is_a_share_of_what_is_free() -> None:
    cpu = torch.device("cpu")
    chosen = memory.default_cache_bytes(cpu)
    assert 0 < chosen <= min(memory.CPU_MEMORY_CAP_BYTES, memory.available_bytes(cpu))


def test_probe_notices_a_model_that_ignores_our_attention(model_dir: ModelDir) -> None:
    model = load_model(model_dir("tiny-qwen3"), dtype="float32")
    model.module.set_attn_implementation("sdpa")
    with pytest.raises(ModelLoadError, match="does not use the paged attention in layer 0"):
        probe.check_paged_attention(model, block_size=16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_probe_notices_wrong_attention(model_dir: ModelDir, dtype: str) -> None:
    """Here a sliding window that the paged path is not told of."""
    model = load_model(model_dir("tiny-mistral"), dtype=dtype)
    tokens = probe.probe_tokens(model)
    with torch.inference_mode():
        expected = probe.eager_logits(model)
        right, _ = probe._paged_logits(model, tokens, block_size=16)
        model.module.config.sliding_window = None
        wrong, _ = probe._paged_logits(model, tokens, block_size=16)
    tolerance = probe.TOLERANCES[model.dtype]
    assert probe.relative_error(right, expected) < tolerance / 2
    assert probe.relative_error(wrong, expected) > tolerance * 2


@pytest.mark.parametrize("is_broken", [False, True])
def test_threads_that_load_share_those_of_torch(
    broken: Path, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with as many as all together wait for one another."""
    seen: set[int] = set()
    read = LazyWeights.read

    def watched(*arguments: Any) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        if is_broken:
            raise ModelLoadError("broken")
        return read(*arguments)

    monkeypatch.setattr(LazyWeights, "read", watched)
    before, threads = torch.get_num_threads(), 3 * GLOBAL_WORKERS + 1
    torch.set_num_threads(threads)
    try:
        if is_broken:
            with pytest.raises(ModelLoadError):
                load_model(broken)
        else:
            load_model(broken)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert seen == {3}


def test_skipped_products_are_zeros_of_their_shape_and_come_back() -> None:
    held = hold(round_to_eight_bits(torch.randn(6, 32)))
    model = nn.Sequential(nn.Linear(4, 32), QuantisedLinear(held, None, torch.float32), nn.Linear(6, 3))
    x = torch.ones(2, 5, 4)
    expected = model(x)
    assert expected.any()
    with skipping_products(model):
        assert torch.equal(model(x), torch.zeros(2, 5, 3))
        assert torch.equal(model[:2](x), torch.zeros(2, 5, 6))
    assert torch.equal(model(x), expected)
