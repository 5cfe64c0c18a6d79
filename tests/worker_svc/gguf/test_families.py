"""Models of each family written as GGUF, as llama.cpp's converter names and changes tensors, and served from there:
the same logits as transformers' own model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.worker_svc.gguf.tiny_gguf import METADATA, TOKENS, write_gguf
from worker_svc.gguf.conversion import convert
from worker_svc.gguf.errors import GgufError
from worker_svc.runner.model.loading import load_model

SHAPE: dict[str, Any] = {
    "vocab_size": len(TOKENS),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "pad_token_id": None,
}
ARCHITECTURES = {"gemma3_text": "gemma3", "qwen3_moe": "qwen3moe", "mixtral": "llama"}
NEIGHBOURS = ("llama", "mixtral")
NAMES = [
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
    ("mlp.gate.", "ffn_gate_inp."),
    ("model.layers.", "blk."),
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("input_layernorm", "attn_norm"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
]
GEMMA_NAMES = [
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
]
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", {"tie_word_embeddings": False}, {}),
    "llama3": (
        "llama",
        {
            "max_position_embeddings": 32768,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
        {"context_length": 32768, "rope.freq_base": 500_000.0},
    ),
    "llama, linear": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "qwen2": ("qwen2", {"tie_word_embeddings": False}, {}),
    "qwen2, yarn": (
        "qwen2",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "rope_theta": 10_000.0,
            }
        },
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        },
    ),
    "qwen3": ("qwen3", {}, {}),
    "qwen3moe": (
        "qwen3_moe",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True},
        {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32},
    ),
    "mixtral": (
        "mixtral",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False},
        {"expert_count": 4, "expert_used_count": 2, "rope.freq_base": 1_000_000.0},
    ),
    "phi3": ("phi3", {"tie_word_embeddings": False}, {"rope.dimension_count": 16}),
    "gemma2": (
        "gemma2",
        {"sliding_window": 8, "query_pre_attn_scalar": 16},
        {
            "attention.sliding_window": 8,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3": (
        "gemma3_text",
        {"sliding_window": 8, "query_pre_attn_scalar": 16},
        {"attention.sliding_window": 8, "rope.freq_base": 1_000_000.0},
    ),
}


def make_model(family: str, changed: dict[str, Any]) -> Any:
    config: Any = transformers.AutoConfig.for_model(family, **(SHAPE | changed))
    torch.manual_seed(0)
    model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def as_gguf(model: Any) -> dict[str, Any]:
    """Its weights by llama.cpp's names, changed as its converter changes them."""
    family = model.config.model_type
    names = (
        GEMMA_NAMES + NAMES
        if family.startswith("gemma")
        else [*NAMES, ("post_attention_layernorm", "ffn_norm")]
    )
    is_tied = model.config.tie_word_embeddings
    weights = {}
    for name, weight in model.state_dict().items():
        if is_tied and name.startswith("lm_head"):
            continue
        array, gguf_name = weight.numpy(), name
        for theirs, ours in names:
            gguf_name = gguf_name.replace(theirs, ours)
        if family.startswith("gemma") and "norm" in gguf_name:
            array = array + 1
        if family in NEIGHBOURS and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = SHAPE["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        if name.endswith("experts.gate_up_proj"):
            for part, half in zip(("gate", "up"), np.split(array, 2, axis=1), strict=True):
                block = gguf_name.removesuffix("mlp.experts.gate_up_proj")
                weights[f"{block}ffn_{part}_exps.weight"] = np.ascontiguousarray(half)
            continue
        weights[gguf_name] = np.ascontiguousarray(array)
    if getattr(model.config, "rope_parameters", {}).get("rope_type") == "llama3":
        whole = 1 / 500_000.0 ** (torch.arange(0, 16, 2) / 16)
        weights["rope_freqs.weight"] = (whole / model.model.rotary_emb.inv_freq).float().numpy()
    return weights


def metadata_of(architecture: str, more: dict[str, Any]) -> dict[str, Any]:
    tokenizer = {name: value for name, value in METADATA.items() if name.startswith("tokenizer")}
    shape = {
        "block_count": 8,
        "context_length": 256,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10_000.0,
    }
    own = {f"{architecture}.{name}": value for name, value in (shape | more).items()}
    return {"general.architecture": architecture, **own, **tokenizer}


@pytest.mark.parametrize("case", ["qwen3moe", "mixtral"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"expert_count": 3},
        {"expert_count": 2**30},
        {"expert_used_count": 5},
        {"expert_used_count": 0},
        {"expert_feed_forward_length": 48},
    ],
    ids=str,
)
def test_a_count_of_experts_that_lies_is_refused(tmp_path: Path, case: str, wrong: dict[str, int]) -> None:
    family, changed, more = FAMILIES[case]
    weights = as_gguf(make_model(family, changed | {"num_hidden_layers": 1}))
    lying = metadata_of(ARCHITECTURES[family], {"block_count": 1} | more | wrong)
    write_gguf(tmp_path / "model.gguf", lying, weights)
    with pytest.raises(GgufError):
        convert(tmp_path / "model.gguf", tmp_path / "served")


@pytest.mark.parametrize("case", FAMILIES)
@torch.inference_mode()
def test_logits_are_transformers_own(tmp_path: Path, case: str) -> None:
    family, changed, more = FAMILIES[case]
    model = make_model(family, changed)
    architecture = ARCHITECTURES.get(family, family)
    write_gguf(tmp_path / "model.gguf", metadata_of(architecture, more), as_gguf(model))
    convert(tmp_path / "model.gguf", tmp_path / "served")
    served = load_model(tmp_path / "served", dtype="float32").module
    tokens = (torch.arange(30) * 7 % len(TOKENS))[None]
    logits = []
    for each in (served, model):
        each.set_attn_implementation("eager")
        logits.append(each(input_ids=tokens, use_cache=False).logits)
    torch.testing.assert_close(*logits, rtol=0, atol=2e-4 * float(logits[1].abs().max()))
