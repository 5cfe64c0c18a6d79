"""Hybrid models in the sizes, or of the shapes, of published ones: for timing."""

from __future__ import annotations

from typing import Any

from transformers import (
    FalconH1Config,
    GraniteMoeHybridConfig,
    JambaConfig,
    KimiLinearConfig,
    Lfm2Config,
    PreTrainedConfig,
    Qwen3_5TextConfig,
)

from tools.tiny_families import TINY, TINY_HEADLESS

HYBRID_SIZES: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "qwen3.5-0.8b": (
        Qwen3_5TextConfig,
        TINY
        | {
            "vocab_size": 248320,
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "intermediate_size": 3584,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "max_position_embeddings": 262144,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000000.0,
                "partial_rotary_factor": 0.25,
                "mrope_section": [11, 11, 10],
            },
        },
    ),
    "granite-4-h-350m": (
        GraniteMoeHybridConfig,
        TINY
        | {
            "vocab_size": 100352,
            "hidden_size": 768,
            "num_hidden_layers": 32,
            "layer_types": ["attention" if i in (10, 13, 17, 27) else "mamba" for i in range(32)],
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "shared_intermediate_size": 2048,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "mamba_n_heads": 48,
            "mamba_d_head": 32,
            "mamba_n_groups": 1,
            "mamba_d_state": 128,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": True,
        },
    ),
    "lfm2-350m": (
        Lfm2Config,
        TINY_HEADLESS
        | {
            "vocab_size": 65536,
            "hidden_size": 1024,
            "num_hidden_layers": 16,
            "layer_types": ["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)],
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "intermediate_size": 4608,
            "block_auto_adjust_ff_dim": False,
            "max_position_embeddings": 128000,
            "tie_word_embeddings": True,
        },
    ),
    "falcon-h1-0.5b": (
        FalconH1Config,
        TINY
        | {
            "vocab_size": 32784,
            "hidden_size": 1024,
            "num_hidden_layers": 36,
            "num_attention_heads": 8,
            "head_dim": 64,
            "intermediate_size": 2048,
            "mamba_d_ssm": 1536,
            "mamba_n_heads": 24,
            "mamba_d_head": 64,
            "mamba_d_state": 128,
            "mamba_chunk_size": 128,
            "ssm_in_multiplier": 1.25,
            "ssm_multipliers": [0.35, 0.25, 0.18, 0.5, 0.35],
            "max_position_embeddings": 16384,
            "tie_word_embeddings": False,
        },
    ),
    "kimi-linear-0.5b": (
        KimiLinearConfig,
        TINY_HEADLESS
        | {
            "vocab_size": 65536,
            "hidden_size": 1024,
            "num_hidden_layers": 12,
            "layer_types": ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(12)],
            "mlp_layer_types": ["dense", *["sparse"] * 11],
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "intermediate_size": 3072,
            "linear_head_dim": 128,
            "linear_num_heads": 8,
            "num_local_experts": 16,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 512,
            "max_position_embeddings": 32768,
            "pad_token_id": 0,
        },
    ),
    "jamba-0.5b": (
        JambaConfig,
        TINY_HEADLESS
        | {
            "vocab_size": 65536,
            "hidden_size": 1024,
            "num_hidden_layers": 16,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "intermediate_size": 2816,
            "num_experts": 1,
            "num_experts_per_tok": 1,
            "mamba_d_state": 16,
            "mamba_dt_rank": 64,
            "use_mamba_kernels": False,
            "max_position_embeddings": 32768,
        },
    ),
}
"""By name: config class and settings. Of Kimi's and Jamba's families there is no model as small as these."""
