"""Models of each family written as GGUF, as llama.cpp's converter names and changes tensors, and served from there:
the same logits as transformers' own model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.worker_svc.gguf.tiny_gguf import METADATA, Q4_1, Q8_0, TOKENS, write_gguf
from tests.worker_svc.runner.cpu.test_kept_linear import needs_bfloat16, needs_kernels
from tests.worker_svc.weights.test_kept_experts import compare
from worker_svc.gguf.conversion import convert
from worker_svc.gguf.errors import GgufError
from worker_svc.runner.model.kept_weights import Quantization
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
ARCHITECTURES = {
    "gemma3_text": "gemma3",
    "qwen3_moe": "qwen3moe",
    "mixtral": "llama",
    "cohere": "command-r",
    "olmo3": "olmo2",
    "hunyuan_v1_dense": "hunyuan-dense",
}
NEIGHBOURS = ("llama", "mixtral", "smollm3", "granite", "arcee")
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
POST_NAMES = [
    ("post_attention_layernorm", "post_attention_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
]
OWN_NAMES = {
    "glm4": [
        ("post_attention_layernorm", "ffn_norm"),
        ("post_self_attn_layernorm", "post_attention_norm"),
        ("post_mlp_layernorm", "post_ffw_norm"),
    ],
    **dict.fromkeys(("olmo2", "olmo3", "exaone4"), POST_NAMES),
    "seed_oss": [("post_attention_layernorm", "post_attention_norm")],
    "hunyuan_v1_dense": [
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.query_layernorm", "attn_q_norm"),
        ("self_attn.key_layernorm", "attn_k_norm"),
    ],
    "starcoder2": [
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.c_fc", "ffn_up"),
        ("mlp.c_proj", "ffn_down"),
    ],
}
GEMMA_NAMES = [
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
]
KINDS = (["sliding_attention"] * 3 + ["full_attention"]) * 2
SLIDES = [True, True, True, False] * 2
LAYER_NORMED = {"layer_norm_eps": 1e-5, "pad_token_id": 0}
LAYER_EPSILON = {"attention.layer_norm_epsilon": 1e-5}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "short_factor": [1.0, 1.25, 1.5, 2.0],
    "original_max_position_embeddings": 16,
    "partial_rotary_factor": 0.5,
}
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
    "phi3, longrope on a part": (
        "phi3",
        {
            "tie_word_embeddings": False,
            "partial_rotary_factor": 0.5,
            "original_max_position_embeddings": 16,
            "rope_parameters": LONG_ROPE,
        },
        {
            "rope.dimension_count": 8,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.attn_factor": math.sqrt(1 + math.log(16) / math.log(16)),
        },
    ),
    "gemma": ("gemma", {}, {}),
    "command-r": ("cohere", LAYER_NORMED | {"logit_scale": 0.25}, LAYER_EPSILON | {"logit_scale": 0.25}),
    "cohere2": (
        "cohere2",
        LAYER_NORMED | {"logit_scale": 0.25, "sliding_window": 8, "layer_types": KINDS},
        LAYER_EPSILON | {"logit_scale": 0.25, "attention.sliding_window": 8, "rope.dimension_count": 16},
    ),
    "glm4": ("glm4", {"attention_bias": True}, {"rope.dimension_count": 8}),
    "olmo2": ("olmo2", {}, {}),
    "olmo3": ("olmo3", {"sliding_window": 8, "layer_types": KINDS}, {"attention.sliding_window": 8}),
    "exaone4": (
        "exaone4",
        {"sliding_window": 8, "layer_types": KINDS},
        {"attention.sliding_window": 8, "attention.sliding_window_pattern": SLIDES},
    ),
    "exaone4, no window": ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 8}, {}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 1, 1, 0] * 2}, {}),
    "granite": (
        "granite",
        {"attention_multiplier": 0.2, "residual_multiplier": 0.7, "embedding_multiplier": 2.0}
        | {"logits_scaling": 3.0},
        {"attention.scale": 0.2, "residual_scale": 0.7, "embedding_scale": 2.0, "logit_scale": 3.0},
    ),
    "seed_oss": ("seed_oss", {"attention_bias": True, "attention_out_bias": False}, {}),
    "starcoder2": (
        "starcoder2",
        {"norm_epsilon": 1e-5, "sliding_window": None, "use_bias": True},
        {"attention.layer_norm_epsilon": 1e-5},
    ),
    "ernie4_5": ("ernie4_5", {}, {}),
    "hunyuan-dense": ("hunyuan_v1_dense", {}, {}),
    "arcee": ("arcee", {}, {}),
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
    names = OWN_NAMES.get(family, [("post_attention_layernorm", "ffn_norm")]) + NAMES
    if family.startswith("gemma") and family != "gemma":
        names = GEMMA_NAMES + NAMES
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
    rope = model.config.rope_parameters
    for kind in ("long", "short"):
        if f"{kind}_factor" in rope:
            weights[f"rope_factors_{kind}.weight"] = np.array(rope[f"{kind}_factor"], np.float32)
    if rope.get("rope_type") == "llama3":
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
    rope = model.config.rope_parameters
    if family == "olmo3":
        rope = rope["full_attention"]
    theta = {"rope.freq_base": float(rope.get("rope_theta", 10_000.0))}
    write_gguf(tmp_path / "model.gguf", metadata_of(architecture, theta | more), as_gguf(model))
    convert(tmp_path / "model.gguf", tmp_path / "served")
    served = load_model(tmp_path / "served", dtype="float32").module
    tokens = (torch.arange(30) * 7 % len(TOKENS))[None]
    logits = []
    for each in (served, model):
        each.set_attn_implementation("eager")
        logits.append(each(input_ids=tokens, use_cache=False).logits)
    torch.testing.assert_close(*logits, rtol=0, atol=2e-4 * float(logits[1].abs().max()))


@needs_kernels
@needs_bfloat16
@pytest.mark.parametrize(("kind", "form"), [(Q4_1, "int4/32+"), (Q8_0, "int8/32")])
@pytest.mark.parametrize("case", ["qwen3moe", "mixtral"])
def test_whole_numbers_of_experts_are_kept(tmp_path: Path, case: str, kind: int, form: str) -> None:
    """One tensor in the file has the experts of a layer; two layers, seven matrices in each but the router, 4 experts,
    of which gate and up are one."""
    family, changed, more = FAMILIES[case]
    model = make_model(family, changed | {"num_hidden_layers": 2})
    metadata = metadata_of(ARCHITECTURES[family], {"block_count": 2} | more)
    write_gguf(tmp_path / "model.gguf", metadata, as_gguf(model), kind)
    served = tmp_path / "served"
    convert(tmp_path / "model.gguf", served)
    told = compare(served, served, Quantization.AUTO)
    assert told.split(" ", 1)[1] == form
    assert int(told.split(" ", 1)[0]) >= 2 * (4 + 2 * 4)
