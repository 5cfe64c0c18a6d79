"""The model and its loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from tools.demo_model.batches import cut_rows
from tools.demo_model.settings import MAX_CONTEXT, Settings
from tools.demo_model.tokenizer import EOS, PAD, SPECIAL_TOKENS, VOCAB_SIZE


def build_model(settings: Settings) -> Any:
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        num_key_value_heads=settings.num_kv_heads,
        head_dim=settings.head_dim,
        intermediate_size=settings.intermediate_size,
        max_position_embeddings=MAX_CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index(EOS),
        pad_token_id=SPECIAL_TOKENS.index(PAD),
    )
    torch.manual_seed(settings.seed)
    model = Qwen3ForCausalLM(config)
    for layer in model.model.layers:
        # Each block starts as the identity, which lets a short run use a high learning rate from the start.
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    return model


def count_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def compute_loss(model: Any, rows: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in nats per token; rows: [rows, length + 1]."""
    # Plain float32: without AMX, oneDNN's bfloat16 products are slower than MKL's float32 ones at this size.
    logits: torch.Tensor = model(input_ids=rows[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def measure_loss(model: Any, stream: torch.Tensor, length: int) -> float:
    """Mean loss over the whole stream in windows of `length`."""
    starts = np.arange(0, len(stream) - length - 1, length)
    rows_per_batch = max(1, 4096 // length)
    total = 0.0
    model.eval()
    with torch.inference_mode():
        for i in range(0, len(starts), rows_per_batch):
            rows = cut_rows(stream, starts[i : i + rows_per_batch], length)
            total += compute_loss(model, rows).item() * len(rows)
    model.train()
    return total / len(starts)


def write_model(model: Any, folder: Path) -> None:
    model.to(torch.bfloat16).save_pretrained(folder)
    eos, pad = SPECIAL_TOKENS.index(EOS), SPECIAL_TOKENS.index(PAD)
    generation: Any = GenerationConfig.from_dict({"eos_token_id": eos, "pad_token_id": pad})
    generation.save_pretrained(folder)
