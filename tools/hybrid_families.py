"""Tiny models of the families with recurrent layers, beside full attention in each."""

from __future__ import annotations

from typing import Any

from transformers import (
    BambaConfig,
    FalconH1Config,
    GraniteMoeHybridConfig,
    JambaConfig,
    KimiLinearConfig,
    Lfm2Config,
    Lfm2MoeConfig,
    NemotronHConfig,
    OlmoHybridConfig,
    PreTrainedConfig,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
)

from tools.tiny_families import TINY

HEADLESS = {name: value for name, value in TINY.items() if name != "head_dim"}
DELTA = {
    "layer_types": ["linear_attention", "linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
}
CONVOLUTIONS = {"layer_types": ["conv", "full_attention", "conv"]}
HYBRID_PRESETS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "hybrid-qwen3-next": (Qwen3NextConfig, TINY | DELTA | EXPERTS),
    "hybrid-qwen3-5": (Qwen3_5TextConfig, TINY | DELTA),
    "hybrid-qwen3-5-moe": (Qwen3_5MoeTextConfig, TINY | DELTA | EXPERTS),
    "hybrid-kimi-linear": (
        KimiLinearConfig,
        HEADLESS
        | {
            "layer_types": DELTA["layer_types"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "num_key_value_heads": 4,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 16,
            "linear_head_dim": 16,
            "linear_num_heads": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "pad_token_id": 0,
        },
    ),
    "hybrid-falcon-h1": (
        FalconH1Config,
        HEADLESS
        | MAMBA2
        | {
            "mamba_d_ssm": 128,
            "head_dim": 32,
            "key_multiplier": 0.7,
            "ssm_in_multiplier": 1.3,
            "ssm_multipliers": [0.7, 1.2, 0.6, 0.8, 1.4],
        },
    ),
    "hybrid-olmo": (OlmoHybridConfig, HEADLESS | DELTA | {"num_key_value_heads": 4, "pad_token_id": 0}),
    "hybrid-lfm2": (
        Lfm2Config,
        HEADLESS | CONVOLUTIONS | {"block_auto_adjust_ff_dim": False},
    ),
    "hybrid-lfm2-moe": (
        Lfm2MoeConfig,
        HEADLESS
        | CONVOLUTIONS
        | {"num_dense_layers": 1, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    ),
    "hybrid-granite": (
        GraniteMoeHybridConfig,
        HEADLESS
        | MAMBA2
        | {
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "attention_multiplier": 0.25,
            "residual_multiplier": 0.7,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 32,
        },
    ),
    "hybrid-bamba": (BambaConfig, HEADLESS | MAMBA2 | {"attn_layer_indices": [1]}),
    "hybrid-jamba": (
        JambaConfig,
        HEADLESS
        | {"attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2}
        | {"mamba_d_state": 16, "mamba_dt_rank": 4, "use_mamba_kernels": False},
    ),
    "hybrid-nemotron-h": (
        NemotronHConfig,
        {name: value for name, value in TINY.items() if name != "num_hidden_layers"}
        | {
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention", "moe"],
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "n_groups": 2,
            "ssm_state_size": 16,
            "chunk_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "moe_shared_expert_intermediate_size": 32,
        },
    ),
}
"""By name: config class and settings."""
