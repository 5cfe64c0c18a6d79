"""The families of models in GGUF: their config.json, and their tensors by transformers' names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from worker_svc.gguf import names, settings
from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile
from worker_svc.gguf.rope import FREQUENCIES, LONG, SHORT, rope_scaling
from worker_svc.gguf.settings import shortest
from worker_svc.gguf.shapes import layer_shape

OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
INNER_NAME = re.compile(r"blk\.([0-9]{1,6})\.(\w+)\.(weight|bias)")
OUTER_NAME = re.compile(r"(\w+)\.(weight|bias)")
ROPE_TENSORS = (FREQUENCIES, LONG, SHORT)
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
    may_be_biased: tuple[str, ...] = ()
    """Tensors that have a bias in some files, all of them or none."""
    has_layer_norms: bool = False
    """Norms take the mean away, too; the last one has a bias where those of layers do."""
    epsilon: str = "rms_norm_eps"
    """The config's name of what norms add to a variance."""
    is_tied: bool = False
    """The head is always the embedding."""
    experts: str = ""
    """The config's name of the number of experts; empty: there are none."""


def check_tensors(family: Family, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]) -> None:
    """Raises GgufError for a tensor that a model of that config does not have, has in another shape, or lacks."""
    hidden, num_layers = config["hidden_size"], config["num_hidden_layers"]
    vocabulary = config["vocab_size"], hidden
    found = {name: shape for name, shape in shapes.items() if name not in ROPE_TENSORS}
    biased = biases_of(family, shapes)
    num_outer = len(OUTER) - config["tie_word_embeddings"] + ("attn_norm" in biased)
    for name, shape in found.items():
        name_of(family, name)
        inner = INNER_NAME.fullmatch(name)
        if inner and (int(inner[1]) >= num_layers or (inner[3] == "bias" and inner[2] not in biased)):
            raise GgufError(f"the tensor {name} is none of a {family.model_type}'s")
        if inner:
            expected = layer_shape(inner[2], config)[: 1 if inner[3] == "bias" else None]
        else:
            expected = (hidden,) if name.startswith("output_norm.") else vocabulary
        if shape != expected:
            raise GgufError(f"the tensor {name} has the shape {shape}, not {expected}")
    wanted = num_outer + num_layers * (len(family.layer) + len(biased))
    if len(found) != wanted:
        raise GgufError(
            f"a {family.model_type} of {num_layers} layers has {wanted} tensors, and the file {len(found)}"
        )


def biases_of(family: Family, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Tensors of a layer of this file that have a bias, too."""
    has = any(f"blk.0.{name}.bias" in shapes for name in family.may_be_biased)
    return family.biased + (family.may_be_biased if has else ())


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
        family.epsilon: shortest(
            file.number(f"{prefix}.attention.layer_norm{'' if family.has_layer_norms else '_rms'}_epsilon")
        ),
        "rope_theta": shortest(file.number(f"{prefix}.rope.freq_base", 10_000.0)),
        "vocab_size": max(len(file.texts("tokenizer.ggml.tokens")), rows[0] if len(rows) == 2 else 0),
        "tie_word_embeddings": family.is_tied or "output.weight" not in shapes,
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
    if family.may_be_biased:
        config["attention_bias"] = biases_of(family, shapes) != family.biased
    own = family.settings(file, config)
    return config | dict(family.common) | own


def _experts(file: GgufFile, family: Family, prefix: str) -> dict[str, Any]:
    """What the config says of experts."""
    count, used = file.size(f"{prefix}.expert_count"), file.size(f"{prefix}.expert_used_count")
    if used > count:
        raise GgufError(f"a {prefix} of {count} experts cannot take {used} of them")
    width = file.size(f"{prefix}.expert_feed_forward_length", file.size(f"{prefix}.feed_forward_length"))
    return {family.experts: count, "num_experts_per_tok": used, "moe_intermediate_size": width}


SILU = {"hidden_act": "silu"}
GELU = {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}
QKV = ("attn_q", "attn_k", "attn_v")
LAYER_NORMS: dict[str, Any] = {"has_layer_norms": True, "epsilon": "layer_norm_eps", "common": SILU}
FAMILIES = {
    "llama": Family(
        "llama", "LlamaForCausalLM", names.LLAMA, settings.llama, has_neighbours=True, common=SILU
    ),
    "qwen2": Family("qwen2", "Qwen2ForCausalLM", names.LLAMA, settings.qwen2, common=SILU, biased=QKV),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM", names.LLAMA | names.NORMED, settings.qwen3, common=SILU),
    "qwen3moe": Family(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        names.QWEN3_MOE,
        settings.qwen3_moe,
        common=SILU,
        experts="num_experts",
    ),
    "phi3": Family("phi3", "Phi3ForCausalLM", names.PHI3, settings.phi3, common=SILU),
    "gemma2": Family(
        "gemma2", "Gemma2ForCausalLM", names.GEMMA, settings.gemma2, are_norms_plus_one=True, common=GELU
    ),
    "gemma3": Family(
        "gemma3_text",
        "Gemma3ForCausalLM",
        names.GEMMA | names.NORMED,
        settings.gemma3,
        are_norms_plus_one=True,
        common=GELU,
    ),
    "gemma": Family(
        "gemma", "GemmaForCausalLM", names.LLAMA, settings.gemma, are_norms_plus_one=True, is_tied=True
    ),
    "command-r": Family(
        "cohere", "CohereForCausalLM", names.PARALLEL, settings.cohere, is_tied=True, **LAYER_NORMS
    ),
    "cohere2": Family(
        "cohere2", "Cohere2ForCausalLM", names.PARALLEL, settings.cohere2, is_tied=True, **LAYER_NORMS
    ),
    "glm4": Family("glm4", "Glm4ForCausalLM", names.GLM4, settings.glm4, common=SILU, may_be_biased=QKV),
    "olmo2": Family("olmo2", "Olmo2ForCausalLM", names.POST_NORMED, settings.olmo2, common=SILU),
    "exaone4": Family("exaone4", "Exaone4ForCausalLM", names.POST_NORMED, settings.exaone4, common=SILU),
    "smollm3": Family(
        "smollm3", "SmolLM3ForCausalLM", names.LLAMA, settings.smollm3, has_neighbours=True, common=SILU
    ),
    "granite": Family(
        "granite", "GraniteForCausalLM", names.LLAMA, settings.granite, has_neighbours=True, common=SILU
    ),
    "seed_oss": Family(
        "seed_oss", "SeedOssForCausalLM", names.SEED_OSS, settings.seed_oss, common=SILU, biased=QKV
    ),
    "starcoder2": Family(
        "starcoder2",
        "Starcoder2ForCausalLM",
        names.STARCODER2,
        settings.starcoder2,
        has_layer_norms=True,
        epsilon="norm_epsilon",
        biased=tuple(names.STARCODER2),
    ),
    "ernie4_5": Family("ernie4_5", "Ernie4_5ForCausalLM", names.LLAMA, settings.ernie, common=SILU),
    "hunyuan-dense": Family(
        "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", names.HUNYUAN, settings.hunyuan, common=SILU
    ),
    "arcee": Family("arcee", "ArceeForCausalLM", names.UNGATED, settings.arcee, has_neighbours=True),
}
"""Families by llama.cpp's names. Mistral's are llamas there."""
MIXTRALS = Family(
    "mixtral",
    "MixtralForCausalLM",
    names.MIXTRAL,
    settings.mixtral,
    has_neighbours=True,
    common=SILU,
    experts="num_local_experts",
)
"""The llamas that have experts."""
