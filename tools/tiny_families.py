"""Tiny models of the families that are compared with transformers: what is unlike in each, small."""

from __future__ import annotations

from typing import Any

from transformers import (
    ApertusConfig,
    ArceeConfig,
    Cohere2Config,
    CohereConfig,
    DeepseekV2Config,
    DeepseekV3Config,
    DeepseekV32Config,
    Ernie4_5Config,
    Exaone4Config,
    Gemma2Config,
    Gemma3TextConfig,
    Gemma4TextConfig,
    Gemma4UnifiedTextConfig,
    GemmaConfig,
    Glm4Config,
    Glm4MoeConfig,
    GlmConfig,
    GlmMoeDsaConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    GraniteMoeConfig,
    HunYuanDenseV1Config,
    Llama4TextConfig,
    LlamaConfig,
    MiniMaxM2Config,
    Ministral3Config,
    MinistralConfig,
    MistralConfig,
    MixtralConfig,
    NemotronConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoConfig,
    Phi3Config,
    PhiConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SeedOssConfig,
    SmolLM3Config,
    StableLmConfig,
    Starcoder2Config,
)

EOS_TOKEN_ID = 2
TINY = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": EOS_TOKEN_ID,
}
WINDOWS = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
GEMMA4_LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
GEMMA4 = WINDOWS | {
    "layer_types": GEMMA4_LAYERS,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "hidden_size_per_layer_input": 0,
}
"""Full attention has larger heads, of which a quarter turns (proportional rope)."""
GEMMA4_SHARED = GEMMA4 | {
    "num_hidden_layers": 5,
    "layer_types": [*GEMMA4_LAYERS, "sliding_attention", "full_attention"],
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 512,
    "use_double_wide_mlp": True,
}
CHUNKS = {
    "attention_chunk_size": 16,
    "no_rope_layers": [1, 0, 1],
    "moe_layers": [0, 1],
    "num_local_experts": 4,
    "intermediate_size_mlp": 96,
    "floor_scale": 8,
    "attn_scale": 0.5,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 32,
    "v_head_dim": 48,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "moe_intermediate_size": 32,
}
INDEXED = LATENT | {
    "q_lora_rank": 32,
    "topk_group": 2,
    "index_topk": 160,
    "index_head_dim": 64,
    "index_n_heads": 2,
    "first_k_dense_replace": 1,
}
"""An indexer that would pick positions of requests longer than 160 tokens."""
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0],
    "original_max_position_embeddings": 128,
}
TINY_HEADLESS = {key: value for key, value in TINY.items() if key != "head_dim"}
"""For families whose heads share the width of the model evenly."""
PADDED = {"pad_token_id": 0}
"""For families whose own token for padding is beyond a tiny vocabulary."""
TINY_PRESETS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "tiny-llama": (LlamaConfig, TINY | {"tie_word_embeddings": False}),
    "tiny-qwen3": (Qwen3Config, TINY | {"tie_word_embeddings": True}),
    "tiny-mistral": (MistralConfig, TINY | {"sliding_window": 16, "tie_word_embeddings": False}),
    "tiny-llama-linear": (
        LlamaConfig,
        TINY | {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
    ),
    "tiny-llama3": (LlamaConfig, TINY | {"rope_parameters": LLAMA3_ROPE}),
    "tiny-llama-yarn": (LlamaConfig, TINY | {"rope_parameters": YARN_ROPE}),
    "tiny-llama-dynamic": (
        LlamaConfig,
        TINY | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
    ),
    "tiny-llama-proportional": (
        LlamaConfig,
        TINY
        | {
            "rope_parameters": {
                "rope_type": "proportional",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            }
        },
    ),
    "tiny-qwen2": (Qwen2Config, TINY | {"tie_word_embeddings": True}),
    "tiny-qwen3-moe": (
        Qwen3MoeConfig,
        TINY | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    ),
    "tiny-mixtral": (MixtralConfig, TINY | {"num_local_experts": 4, "sliding_window": 16}),
    "tiny-gemma": (GemmaConfig, TINY),
    "tiny-gemma2": (Gemma2Config, TINY | WINDOWS | {"query_pre_attn_scalar": 16}),
    "tiny-gemma3": (Gemma3TextConfig, TINY | WINDOWS | {"query_pre_attn_scalar": 16}),
    "tiny-gemma4": (Gemma4TextConfig, TINY | GEMMA4 | {"final_logit_softcapping": 30.0}),
    "tiny-gemma4-moe": (
        Gemma4TextConfig,
        TINY
        | GEMMA4
        | {"attention_k_eq_v": True, "enable_moe_block": True}
        | {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    ),
    "tiny-gemma4-shared": (Gemma4TextConfig, TINY | GEMMA4_SHARED),
    "tiny-gemma4-unified": (Gemma4UnifiedTextConfig, TINY | GEMMA4 | {"attention_k_eq_v": True}),
    "tiny-phi3": (Phi3Config, TINY | {"sliding_window": 16, "pad_token_id": 0}),
    "tiny-olmo2": (Olmo2Config, TINY),
    "tiny-granite": (
        GraniteConfig,
        TINY | {"attention_multiplier": 0.2, "residual_multiplier": 0.7, "embedding_multiplier": 2.0},
    ),
    "tiny-cohere2": (Cohere2Config, TINY | WINDOWS),
    "tiny-gpt-oss": (
        GptOssConfig,
        TINY | WINDOWS | {"num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": YARN_ROPE},
    ),
    "tiny-deepseek-v2": (
        DeepseekV2Config,
        {key: value for key, value in TINY.items() if key != "head_dim"}
        | {
            "q_lora_rank": None,
            "first_k_dense_replace": 1,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
            "routed_scaling_factor": 4.0,
        }
        | LATENT,
    ),
    "tiny-deepseek-v3": (
        DeepseekV3Config,
        {key: value for key, value in TINY.items() if key != "head_dim"}
        | {
            "q_lora_rank": 32,
            "first_k_dense_replace": 1,
            "topk_group": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "rope_parameters": YARN_ROPE | {"mscale": 1.0, "mscale_all_dim": 1.0},
        }
        | LATENT,
    ),
    "tiny-deepseek-v32": (
        DeepseekV32Config,
        TINY_HEADLESS | INDEXED | {"rope_parameters": YARN_ROPE | {"mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
    "tiny-glm-moe-dsa": (
        GlmMoeDsaConfig,
        TINY_HEADLESS | INDEXED | {"indexer_types": ["full", "shared", "full"], "rms_norm_eps": 1e-4},
    ),
    "tiny-gpt-neox": (
        GPTNeoXConfig,
        {key: value for key, value in TINY.items() if key not in ("head_dim", "num_key_value_heads")},
    ),
    "tiny-gpt2": (
        GPT2Config,
        {
            "vocab_size": 512,
            "n_embd": 64,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 512,
            "bos_token_id": 1,
            "eos_token_id": EOS_TOKEN_ID,
        },
    ),
    "tiny-apertus": (
        ApertusConfig,
        TINY | PADDED | {"rope_parameters": LLAMA3_ROPE},
    ),
    "tiny-arcee": (ArceeConfig, TINY),
    "tiny-cohere": (CohereConfig, TINY_HEADLESS | PADDED),
    "tiny-cohere-normed": (CohereConfig, TINY_HEADLESS | PADDED | {"use_qk_norm": True}),
    "tiny-ernie4-5": (Ernie4_5Config, TINY | PADDED),
    "tiny-exaone4": (Exaone4Config, TINY | WINDOWS),
    "tiny-glm": (GlmConfig, TINY | PADDED),
    "tiny-glm4": (Glm4Config, TINY | PADDED | {"attention_bias": True}),
    "tiny-glm4-moe": (
        Glm4MoeConfig,
        TINY
        | {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        | {"first_k_dense_replace": 1, "use_qk_norm": True, "partial_rotary_factor": 0.5},
    ),
    "tiny-granitemoe": (GraniteMoeConfig, TINY | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "tiny-hunyuan": (HunYuanDenseV1Config, TINY | PADDED),
    "tiny-llama4": (Llama4TextConfig, TINY | CHUNKS | {"num_experts_per_tok": 1}),
    "tiny-llama4-plain": (
        Llama4TextConfig,
        TINY | CHUNKS | {"use_qk_norm": False, "num_experts_per_tok": 2, "rope_parameters": LLAMA3_ROPE},
    ),
    "tiny-minimax-m2": (MiniMaxM2Config, TINY | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "tiny-ministral": (MinistralConfig, TINY | WINDOWS),
    "tiny-ministral3": (
        Ministral3Config,
        TINY
        | {
            "rope_parameters": YARN_ROPE
            | {"factor": 32.0, "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.3}
        },
    ),
    "tiny-nemotron": (NemotronConfig, TINY | {"partial_rotary_factor": 0.5}),
    "tiny-olmo": (OlmoConfig, TINY_HEADLESS | PADDED | {"clip_qkv": 1.5}),
    "tiny-olmo3": (Olmo3Config, TINY_HEADLESS | WINDOWS | PADDED),
    "tiny-phi": (PhiConfig, TINY_HEADLESS | {"partial_rotary_factor": 0.5}),
    "tiny-phi-normed": (
        PhiConfig,
        TINY_HEADLESS | {"num_key_value_heads": 4, "qk_layernorm": True},
    ),
    "tiny-qwen2-moe": (
        Qwen2MoeConfig,
        TINY
        | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        | {"shared_expert_intermediate_size": 32},
    ),
    "tiny-seed-oss": (SeedOssConfig, TINY | PADDED | {"attention_bias": True}),
    "tiny-smollm3": (SmolLM3Config, TINY | PADDED | {"no_rope_layers": [1, 0, 1]}),
    "tiny-stablelm": (StableLmConfig, TINY_HEADLESS | PADDED),
    "tiny-starcoder2": (Starcoder2Config, TINY | {"sliding_window": 16}),
}
