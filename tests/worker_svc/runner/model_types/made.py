"""Tiny models of any model type of transformers, by one rule: what most configs call by the same names, made small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig

from tools.make_random_model import fill_weights
from tools.tiny_families import EOS_TOKEN_ID, LONG_ROPE

WINDOW = 24
"""Positions of sliding windows, where the type has any; prompts are longer."""
MOST_WEIGHTS = 4_000_000
"""A model with more was not made small by the rule."""
SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "ffn_dim": 128,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": EOS_TOKEN_ID,
    "pad_token_id": 0,
    "word_embed_proj_dim": 64,
    "moe_intermediate_size": 32,
    "expert_ffn_hidden_size": 32,
    "shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "moe_topk": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 32,
    "v_head_dim": 16,
    "sliding_window": WINDOW,
}
"""Fields that are set where a type's config has them."""
DECODER = {"is_decoder": True, "encoder_layers": 1, "decoder_layers": 2, "num_hidden_layers": 2} | {
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_ffn_dim": 128,
    "encoder_ffn_dim": 128,
    "d_model": 64,
}
WITH_ENCODERS = (
    *("bart", "blenderbot", "blenderbot-small", "bigbird_pegasus", "marian", "mbart", "mvp", "pegasus"),
    *("plbart", "trocr", "whisper", "prophetnet"),
)
"""Types whose decoders can stand alone."""
ENCODERS = (
    *("bert-generation", "big_bird", "data2vec-text", "ernie", "megatron-bert", "rembert"),
    *("roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta-xl", "xmod"),
)
"""Types of encoders that can be decoders."""
MODEL_TYPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(WITH_ENCODERS, DECODER),
    **{name: {"is_decoder": True} for name in ENCODERS},
    "phimoe:scales": {
        "rope_parameters": LONG_ROPE | {"short_mscale": 1.0, "long_mscale": 1.3},
        "sliding_window": None,
    },
    "phimoe:window": {"sliding_window": WINDOW},
    "phimoe": {"sliding_window": None},
    "llama:window": {"sliding_window": WINDOW},
    "llama:indexer": {"index_topk": 16},
    "longcat_flash": {"num_layers": 2, "num_hidden_layers": 4},
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "vocab_size_per_layer_input": 512,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.0, 0.0, 0.0],
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
    "dots1": {"sliding_window": WINDOW, "n_shared_experts": 1},
    "dbrx": {
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 3,
        "max_seq_len": 512,
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 64},
    },
}
"""What single types need besides; behind a colon, another form of the type."""
SETTINGS: dict[str, dict[str, Any]] = {"phimoe:scales": {"max_model_len": 128}}
"""Settings of the runner that forms of types are compared with: of longer ones transformers chooses by the batch."""


class CannotMakeError(Exception):
    """transformers makes no tiny model of the type by the rule; says why."""


def tiny_config(model_type: str) -> PreTrainedConfig:
    """The type's config with the fields that it has of `SIZES`. CannotMakeError if it does not take them."""
    config_class = CONFIG_MAPPING[model_type.partition(":")[0]]
    try:
        known = config_class()
        fields = {name: value for name, value in SIZES.items() if hasattr(known, name)}
        if "kv_lora_rank" in fields:  # all heads share a latent
            fields["num_key_value_heads"] = SIZES["num_attention_heads"]
        if not getattr(known, "sliding_window", None) and getattr(known, "use_sliding_window", None) is None:
            fields.pop("sliding_window", None)
        config: PreTrainedConfig = config_class(**(fields | MODEL_TYPES.get(model_type, {})))
    except Exception as error:
        raise CannotMakeError(f"{type(error).__name__}: {error}") from error
    return config


def save_tiny(config: PreTrainedConfig, path: Path, seed: int = 0) -> Path:
    """Writes the model of a config with random weights. Returns `path`. CannotMakeError if there is none, or it is not
    tiny."""
    auto_model: Any = AutoModelForCausalLM
    torch.manual_seed(seed)
    try:
        with torch.device("meta"):
            model = auto_model.from_config(config)
        size = sum(weight.numel() for weight in model.parameters())
        if size > MOST_WEIGHTS:
            raise CannotMakeError(f"it has {size} weights")
        model = auto_model.from_config(config, dtype=torch.float32)
    except CannotMakeError:
        raise
    except Exception as error:
        raise CannotMakeError(f"{type(error).__name__}: {error}") from error
    fill_weights(model, torch.Generator().manual_seed(seed))
    model.generation_config.eos_token_id = EOS_TOKEN_ID
    model.save_pretrained(path)
    return path
