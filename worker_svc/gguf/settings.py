"""What the config.json of each family in GGUF has beside what all have."""

from __future__ import annotations

from typing import Any

from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile


def shortest(number: float) -> float:
    """A float32 as whoever wrote it meant it: 1e-05, not 9.999999747378752e-06."""
    return float(f"{number:.7g}")


def qwen3_moe(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    every = {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
    return {"use_sliding_window": False, "attention_bias": False} | every


def mixtral(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"intermediate_size": config.pop("moe_intermediate_size"), "sliding_window": None}


def llama(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"attention_bias": False, "mlp_bias": False}


def qwen2(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"use_sliding_window": False}


def qwen3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"use_sliding_window": False, "attention_bias": False}


def phi3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    scaling = config.get("rope_scaling") or {}
    original = scaling.get("original_max_position_embeddings", config["max_position_embeddings"])
    return {
        "sliding_window": window(file, "phi3.attention.sliding_window"),
        "pad_token_id": None,
        "partial_rotary_factor": rotated_part(file, "phi3", config),
        "original_max_position_embeddings": original,
    }


def cohere(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "logit_scale": shortest(file.number("command-r.logit_scale")),
        "use_qk_norm": False,
        "pad_token_id": 0,
    }


def cohere2(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """Every fourth layer sees all, and does not rotate."""
    return {
        "logit_scale": shortest(file.number("cohere2.logit_scale")),
        "sliding_window": file.size("cohere2.attention.sliding_window"),
        "layer_types": layer_types(file, "cohere2", config),
        "pad_token_id": 0,
    }


def glm4(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"partial_rotary_factor": rotated_part(file, "glm4", config), "pad_token_id": None}


def olmo2(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """One that slides is an OLMo 3, whose scaled rope is that of layers that see all."""
    own = {"attention_bias": False, "pad_token_id": None}
    if window(file, "olmo2.attention.sliding_window") is None:
        return own
    theta = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    scaling = config.pop("rope_scaling", None) or {}
    return own | {
        "model_type": "olmo3",
        "architectures": ["Olmo3ForCausalLM"],
        "sliding_window": file.size("olmo2.attention.sliding_window"),
        "layer_types": layer_types(file, "olmo2", config),
        "rope_parameters": {"full_attention": theta | scaling, "sliding_attention": theta},
    }


def exaone4(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """Only the published one of 64 layers slides."""
    found = window(file, "exaone4.attention.sliding_window")
    kinds = ["full_attention"] * int(config["num_hidden_layers"])
    if found is not None:
        kinds = layer_types(file, "exaone4", config)
    return {"sliding_window": found, "layer_types": kinds}


def smollm3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """Every fourth layer does not rotate."""
    rotates = [int(index % 4 != 3) for index in range(config["num_hidden_layers"])]
    return {
        "attention_bias": False,
        "mlp_bias": False,
        "use_sliding_window": False,
        "no_rope_layers": rotates,
        "pad_token_id": None,
    }


def granite(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """Numbers that are not there, or 0, change nothing."""

    def scale(name: str, default: float) -> float:
        return shortest(file.number(f"granite.{name}", default)) or default

    return {
        "attention_multiplier": scale("attention.scale", float(config["head_dim"]) ** -0.5),
        "embedding_multiplier": scale("embedding_scale", 1.0),
        "residual_multiplier": scale("residual_scale", 1.0),
        "logits_scaling": scale("logit_scale", 1.0),
        "attention_bias": False,
        "mlp_bias": False,
    }


def seed_oss(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"attention_bias": True, "attention_out_bias": False, "mlp_bias": False, "pad_token_id": None}


def starcoder2(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "sliding_window": window(file, "starcoder2.attention.sliding_window"),
        "use_bias": True,
        "hidden_act": "gelu_pytorch_tanh",
    }


def ernie(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"use_bias": False, "pad_token_id": 0}


def hunyuan(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"attention_bias": False, "mlp_bias": False, "pad_token_id": 0}


def arcee(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"attention_bias": False, "mlp_bias": False, "hidden_act": "relu2"}


def gemma(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"hidden_act": "gelu_pytorch_tanh"}


def gemma2(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """The published model of 46 layers divides by another number than its head's."""
    is_largest = config["num_hidden_layers"] == 46
    scalar = config["hidden_size"] // config["num_attention_heads"] if is_largest else config["head_dim"]
    return {
        "query_pre_attn_scalar": scalar,
        "sliding_window": file.size("gemma2.attention.sliding_window"),
        "attn_logit_softcapping": shortest(file.number("gemma2.attn_logit_softcapping", 50.0)),
        "final_logit_softcapping": shortest(file.number("gemma2.final_logit_softcapping", 30.0)),
    }


def gemma3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
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
        "final_logit_softcapping": cap(file, "gemma3.final_logit_softcapping"),
        "attn_logit_softcapping": None,
    }


def cap(file: GgufFile, name: str) -> float | None:
    return shortest(file.number(name)) if name in file.metadata else None


def window(file: GgufFile, name: str) -> int | None:
    return file.size(name) if file.metadata.get(name) else None


def rotated_part(file: GgufFile, prefix: str, config: dict[str, Any]) -> float:
    """Which part of each head rotates."""
    head = int(config["head_dim"])
    rotated = file.size(f"{prefix}.rope.dimension_count", head)
    if rotated > head or rotated % 2 or int(head * (rotated / head)) != rotated:
        raise GgufError(f"a {prefix} whose heads of {head} turn {rotated} is not served")
    return rotated / head


def layer_types(file: GgufFile, prefix: str, config: dict[str, Any]) -> list[str]:
    """Which layers slide: as the file says, or all but every fourth."""
    count = int(config["num_hidden_layers"])
    found = file.metadata.get(f"{prefix}.attention.sliding_window_pattern", 4)
    if isinstance(found, int) and not isinstance(found, bool) and found > 0:
        found = [index % found != found - 1 for index in range(count)]
    if not isinstance(found, list) or len(found) != count:
        raise GgufError(f"{file.path}: {prefix}.attention.sliding_window_pattern is not of {count} layers")
    return ["sliding_attention" if slides else "full_attention" for slides in found]
