"""The shapes of a layer's tensors, as follow from a model's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JOINED = ("phi3", "glm4")
"""Families whose gates are in one matrix with what they gate."""
NORMED_TOGETHER = ("olmo2", "olmo3")
"""Families that normalize all queries, and all keys, as one."""


def layer_shape(tensor: str, config: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of the weight that GGUF calls `tensor`, `attn_q` for one; rows first."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = (config[name] * head for name in ("num_attention_heads", "num_key_value_heads"))
    experts = config.get("num_experts") or config.get("num_local_experts", 0)
    width = config.get("moe_intermediate_size", inner)
    is_joined = config["model_type"] in JOINED
    norms = (queries, keys) if config["model_type"] in NORMED_TOGETHER else (head, head)
    return {
        "attn_q": (queries, hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_qkv": (queries + 2 * keys, hidden),
        "attn_output": (hidden, queries),
        "attn_q_norm": norms[:1],
        "attn_k_norm": norms[1:],
        "ffn_gate": (inner, hidden),
        "ffn_up": (2 * inner if is_joined else inner, hidden),
        "ffn_down": (hidden, inner),
        "ffn_gate_inp": (experts, hidden),
        "ffn_gate_exps": (experts, width, hidden),
        "ffn_up_exps": (experts, width, hidden),
        "ffn_down_exps": (experts, hidden, width),
    }.get(tensor, (hidden,))
