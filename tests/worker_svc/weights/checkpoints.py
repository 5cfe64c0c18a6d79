"""Small random checkpoints, each twice: as a scheme stores it, and with the numbers that this stands for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from worker_svc.runner.model.loading import load_model

SHAPE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
Encode = Callable[[str, torch.Tensor], tuple[Mapping[str, torch.Tensor], torch.Tensor]]
"""Module and weight to the tensors that are stored of it, without the module's name, and the numbers they stand for."""


@dataclass(frozen=True)
class Twins:
    """Two directories of one model."""

    quantised: Path
    plain: Path


def make_twins(
    folder: Path,
    family: str,
    encode: Encode,
    settings: Mapping[str, Any] | None,
    *,
    is_encoded: Callable[[str], bool] = lambda name: name.endswith("_proj.weight"),
    files: Mapping[str, Any] | None = None,
    **shape: Any,
) -> Twins:
    """A model of that family with random weights. `settings` is what config.json says of the quantised twin; `files`
    are other JSON files beside it."""
    plain, quantised = folder / "plain", folder / "quantised"
    config: Any = transformers.AutoConfig.for_model(family, **{**SHAPE, **shape})
    torch.manual_seed(0)
    model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(plain)
    model.save_pretrained(quantised)
    stored: dict[str, torch.Tensor] = {}
    meant: dict[str, torch.Tensor] = {}
    for name, weight in load_file(plain / "model.safetensors").items():
        if not is_encoded(name):
            stored[name] = meant[name] = weight
            continue
        parts, meant[name] = encode(name, weight)
        module = name.removesuffix(".weight")
        stored |= {f"{module}{_joint(part)}{part}": tensor.contiguous() for part, tensor in parts.items()}
    write(plain, meant)
    write(quantised, stored)
    if settings is not None:
        change_config(quantised, quantization_config=dict(settings))
    for name, content in (files or {}).items():
        (quantised / name).write_text(json.dumps(content))
    return Twins(quantised, plain)


def write(directory: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """The weights file of a directory."""
    contiguous = {name: weight.contiguous().clone() for name, weight in weights.items()}
    save_file(contiguous, directory / "model.safetensors", metadata={"format": "pt"})


def change_config(directory: Path, **changed: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def change_tensors(directory: Path, changed: Mapping[str, torch.Tensor | None]) -> None:
    """Replaces every tensor with a name that ends so; None takes it out."""
    weights = load_file(directory / "model.safetensors")
    for suffix, tensor in changed.items():
        for name in [name for name in weights if name.endswith(suffix)]:
            del weights[name]
            if tensor is not None:
                weights[name] = tensor
    write(directory, weights)


@torch.inference_mode()
def assert_equal_models(twins: Twins, tolerance: float = 0.0) -> None:
    """All parameters and the logits of a few tokens. `tolerance` is of one number, relative to the largest of its
    tensor: float32's own rounding, where the reference rounds elsewhere."""
    ours, theirs = (load_model(path, dtype="float32").module for path in (twins.quantised, twins.plain))
    expected = theirs.state_dict()
    for name, parameter in ours.state_dict().items():
        allowed = tolerance * float(expected[name].abs().max())
        worst = float((parameter - expected[name]).abs().max())
        assert worst <= allowed, f"{name} is {worst} off"
    tokens = torch.arange(20)[None] % 96
    logits = []
    for module in (ours, theirs):
        module.set_attn_implementation("eager")
        logits.append(module(input_ids=tokens, use_cache=False).logits)
    torch.testing.assert_close(*logits, rtol=0, atol=100 * tolerance * float(logits[1].abs().max()))


def _joint(part: str) -> str:
    return "" if part.startswith("_") else "."
