"""The families of models in GGUF: their config.json, and their tensors by transformers' names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile
from worker_svc.gguf.rope import rope_scaling
from worker_svc.gguf.shapes import layer_shape

OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LLAMA = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMED = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA = LLAMA | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
JOINED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
PHI3 = {name: LLAMA[name] for name in ("attn_norm", "attn_output", "ffn_norm", "ffn_down")} | JOINED
ATTENTION = {name: LLAMA[name] for name in LLAMA if not name.startswith("ffn_")}
QWEN3_MOE = ATTENTION | {
    **NORMED,
    "ffn_norm": LLAMA["ffn_norm"],
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
"""One tensor in the file has the matrices of all experts; {} is the number of one."""
MIXTRAL = ATTENTION | {
    "ffn_norm": LLAMA["ffn_norm"],
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}
INNER_NAME = re.compile(r"blk\.([0-9]{1,6})\.(\w+)\.(weight|bias)")
OUTER_NAME = re.compile(r"(\w+)\.(weight)")
ROPE_TENSORS = ("rope_freqs.weight",)
"""Frequencies that the config tells of."""


@dataclass(frozen=True)
class Family:
    """One architecture of llama.cpp as transformers has it."""

    model_type: str
    architecture: str
    layer: Mapping[str, str]
    """Tensors of a layer, by GGUF's names."""
    settings: Callable[[GgufFile, dict[str, Any]], dict[str, Any]]
    """What the family's config.json has beside what all have."""
    has_neighbours: bool = False
    """Rows of queries and keys lie in pairs of neighbours, where transformers has halves."""
    are_norms_plus_one: bool = False
    """One was added to the weights of norms."""
    common: Mapping[str, Any] = field(default_factory=dict)
    biased: tuple[str, ...] = ()
    """Tensors of a layer that have a bias, too."""
    experts: str = ""
    """The config's name of the number of experts; empty: there are none."""


def check_tensors(family: Family, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]) -> None:
    """Raises GgufError for a tensor that a model of that config does not have, has in another shape, or lacks."""
    hidden, num_layers = config["hidden_size"], config["num_hidden_layers"]
    vocabulary = config["vocab_size"], hidden
    found = {name: shape for name, shape in shapes.items() if name not in ROPE_TENSORS}
    num_outer = len(OUTER) - config["tie_word_embeddings"]
    for name, shape in found.items():
        name_of(family, name)
        inner = INNER_NAME.fullmatch(name)
        if inner and (int(inner[1]) >= num_layers or (inner[3] == "bias" and inner[2] not in family.biased)):
            raise GgufError(f"the tensor {name} is none of a {family.model_type}'s")
        if inner:
            expected = layer_shape(inner[2], config)[: 1 if inner[3] == "bias" else None]
        else:
            expected = (hidden,) if name == "output_norm.weight" else vocabulary
        if shape != expected:
            raise GgufError(f"the tensor {name} has the shape {shape}, not {expected}")
    wanted = num_outer + num_layers * (len(family.layer) + len(family.biased))
    if len(found) != wanted:
        raise GgufError(
            f"a {family.model_type} of {num_layers} layers has {wanted} tensors, and the file {len(found)}"
        )


def find_family(file: GgufFile) -> Family:
    """The family of a file. Raises GgufError for one that is not read here."""
    name = file.text("general.architecture")
    if name not in FAMILIES:
        raise GgufError(f"GGUF of the architecture {name!r} is not served, only {', '.join(FAMILIES)}")
    if name == "llama" and file.metadata.get("llama.expert_count"):
        return MIXTRALS
    return FAMILIES[name]


def name_of(family: Family, tensor: str) -> str | None:
    """transformers' name of a tensor; None: the model has none of that kind. Raises GgufError for one that the family
    does not have."""
    if tensor in ROPE_TENSORS:
        return None
    inner, outer = INNER_NAME.fullmatch(tensor), OUTER_NAME.fullmatch(tensor)
    if inner and inner[2] in family.layer:
        return f"model.layers.{int(inner[1])}.{family.layer[inner[2]]}.{inner[3]}"
    if outer and outer[1] in OUTER:
        return f"{OUTER[outer[1]]}.{outer[2]}"
    raise GgufError(f"the tensor {tensor} is none of a {family.model_type}'s")


def make_config(files: list[GgufFile]) -> dict[str, Any]:
    """config.json. Raises GgufError for another family, for what a model of it cannot be served with, and for tensors
    that are missing, too many, or of another shape than the model has."""
    file = files[0]
    family, prefix = find_family(file), file.text("general.architecture")
    shapes = {name: tensor.shape for each in files for name, tensor in each.tensors.items()}
    hidden, num_heads = file.size(f"{prefix}.embedding_length"), file.size(f"{prefix}.attention.head_count")
    rows = shapes.get("token_embd.weight", ())
    config: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "hidden_size": hidden,
        "intermediate_size": file.size(f"{prefix}.feed_forward_length"),
        "num_hidden_layers": file.size(f"{prefix}.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": file.size(f"{prefix}.attention.head_count_kv", num_heads),
        "head_dim": file.size(f"{prefix}.attention.key_length", max(hidden // num_heads, 1)),
        "max_position_embeddings": file.size(f"{prefix}.context_length"),
        "rms_norm_eps": shortest(file.number(f"{prefix}.attention.layer_norm_rms_epsilon")),
        "rope_theta": shortest(file.number(f"{prefix}.rope.freq_base", 10_000.0)),
        "vocab_size": max(len(file.texts("tokenizer.ggml.tokens")), rows[0] if len(rows) == 2 else 0),
        "tie_word_embeddings": "output.weight" not in shapes,
        "torch_dtype": "bfloat16",
    }
    if config["head_dim"] % 2 or num_heads % config["num_key_value_heads"]:
        raise GgufError(f"a {prefix} of {num_heads} heads cannot have these heads of keys, or of this length")
    if family.experts:
        config |= _experts(file, family, prefix)
    check_tensors(family, shapes, config)
    scaling = rope_scaling(files, prefix, config)
    if scaling is not None:
        config["rope_scaling"] = scaling
    own = family.settings(file, config)
    return config | dict(family.common) | own


def _experts(file: GgufFile, family: Family, prefix: str) -> dict[str, Any]:
    """What the config says of experts."""
    count, used = file.size(f"{prefix}.expert_count"), file.size(f"{prefix}.expert_used_count")
    if used > count:
        raise GgufError(f"a {prefix} of {count} experts cannot take {used} of them")
    width = file.size(f"{prefix}.expert_feed_forward_length", file.size(f"{prefix}.feed_forward_length"))
    return {family.experts: count, "num_experts_per_tok": used, "moe_intermediate_size": width}


def _qwen3_moe(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    every = {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
    return {"use_sliding_window": False, "attention_bias": False} | every


def _mixtral(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"intermediate_size": config.pop("moe_intermediate_size"), "sliding_window": None}


def _llama(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"attention_bias": False, "mlp_bias": False}


def _qwen2(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"use_sliding_window": False}


def _qwen3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"use_sliding_window": False, "attention_bias": False}


def _phi3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    if file.size("phi3.rope.dimension_count", config["head_dim"]) != config["head_dim"]:
        raise GgufError("a phi3 that turns only a part of each head is not served from GGUF")
    return {
        "sliding_window": _window(file, "phi3.attention.sliding_window"),
        "pad_token_id": None,
    }


def _gemma2(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """The published model of 46 layers divides by another number than its head's."""
    is_largest = config["num_hidden_layers"] == 46
    scalar = config["hidden_size"] // config["num_attention_heads"] if is_largest else config["head_dim"]
    return {
        "query_pre_attn_scalar": scalar,
        "sliding_window": file.size("gemma2.attention.sliding_window"),
        "attn_logit_softcapping": shortest(file.number("gemma2.attn_logit_softcapping", 50.0)),
        "final_logit_softcapping": shortest(file.number("gemma2.final_logit_softcapping", 30.0)),
    }


def _gemma3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """Every sixth layer sees all; the others turn by frequencies of their own. Of the published ones, that of 62 layers
    divides by another number than its head's."""
    num_layers = config["num_hidden_layers"]
    is_largest = num_layers == 62
    scalar = config["hidden_size"] // config["num_attention_heads"] if is_largest else config["head_dim"]
    kinds = ["full_attention" if index % 6 == 5 else "sliding_attention" for index in range(num_layers)]
    whole: dict[str, Any] = {"rope_type": "default", **(config.pop("rope_scaling", None) or {})}
    own = {"rope_type": "default", "rope_theta": shortest(file.number("gemma3.rope.freq_base_swa", 10_000.0))}
    return {
        "query_pre_attn_scalar": scalar,
        "sliding_window": file.size("gemma3.attention.sliding_window"),
        "layer_types": kinds,
        "rope_parameters": {
            "full_attention": whole | {"rope_theta": config["rope_theta"]},
            "sliding_attention": own,
        },
        "final_logit_softcapping": _cap(file, "gemma3.final_logit_softcapping"),
        "attn_logit_softcapping": None,
    }


def _cap(file: GgufFile, name: str) -> float | None:
    return shortest(file.number(name)) if name in file.metadata else None


def _window(file: GgufFile, name: str) -> int | None:
    return file.size(name) if file.metadata.get(name) else None


SILU = {"hidden_act": "silu"}
GELU = {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}
FAMILIES = {
    "llama": Family("llama", "LlamaForCausalLM", LLAMA, _llama, has_neighbours=True, common=SILU),
    "qwen2": Family(
        "qwen2", "Qwen2ForCausalLM", LLAMA, _qwen2, common=SILU, biased=("attn_q", "attn_k", "attn_v")
    ),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM", LLAMA | NORMED, _qwen3, common=SILU),
    "qwen3moe": Family(
        "qwen3_moe", "Qwen3MoeForCausalLM", QWEN3_MOE, _qwen3_moe, common=SILU, experts="num_experts"
    ),
    "phi3": Family("phi3", "Phi3ForCausalLM", PHI3, _phi3, common=SILU),
    "gemma2": Family("gemma2", "Gemma2ForCausalLM", GEMMA, _gemma2, are_norms_plus_one=True, common=GELU),
    "gemma3": Family(
        "gemma3_text", "Gemma3ForCausalLM", GEMMA | NORMED, _gemma3, are_norms_plus_one=True, common=GELU
    ),
}
"""Families by llama.cpp's names. Mistral's are llamas there."""
MIXTRALS = Family(
    "mixtral",
    "MixtralForCausalLM",
    MIXTRAL,
    _mixtral,
    has_neighbours=True,
    common=SILU,
    experts="num_local_experts",
)
"""The llamas that have experts."""


def shortest(number: float) -> float:
    """A float32 as whoever wrote it meant it: 1e-05, not 9.999999747378752e-06."""
    return float(f"{number:.7g}")
