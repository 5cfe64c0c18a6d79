"""The Llama family in GGUF: its config.json, and its tensors by transformers' names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from worker_svc.gguf.blocks import Floats
from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile, Tensor

OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
INNER = {
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
INNER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


@dataclass(frozen=True)
class Weight:
    """A tensor as a model directory has it."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], Floats]


def make_config(file: GgufFile) -> dict[str, Any]:
    """config.json. Raises GgufError for another family."""
    family = file.value("general.architecture")
    if family != "llama":
        raise GgufError(f"GGUF of the architecture {family!r} is not converted here, only llama")
    if "rope_freqs.weight" in file.tensors or "llama.rope.scaling.type" in file.metadata:
        raise GgufError("GGUF of a llama with scaled rope frequencies is not converted here")
    hidden, num_heads = file.value("llama.embedding_length"), file.value("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": file.value("llama.feed_forward_length"),
        "num_hidden_layers": file.value("llama.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": file.value("llama.attention.head_count_kv", num_heads),
        "head_dim": file.value("llama.attention.key_length", hidden // num_heads),
        "max_position_embeddings": file.value("llama.context_length"),
        "rms_norm_eps": _shortest(file.value("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(file.value("llama.rope.freq_base", 10_000.0)),
        "vocab_size": len(file.value("tokenizer.ggml.tokens")),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "bfloat16",
    }


def list_weights(file: GgufFile, config: dict[str, Any]) -> list[Weight]:
    """All weights, in the order of the file. Raises GgufError for a tensor that the family does not have."""
    return [_weight(file, tensor, config) for tensor in file.tensors.values()]


def _weight(file: GgufFile, tensor: Tensor, config: dict[str, Any]) -> Weight:
    name = _name_of(tensor.name)
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        num_heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        return Weight(name, tensor.shape, lambda: halves_apart(file.read(tensor), num_heads))
    return Weight(name, tensor.shape, lambda: file.read(tensor))


def _name_of(name: str) -> str:
    match = INNER_NAME.fullmatch(name)
    if match and match[2] in INNER:
        return f"model.layers.{match[1]}.{INNER[match[2]]}.weight"
    if name not in OUTER:
        raise GgufError(f"the tensor {name} is none of a llama's")
    return OUTER[name]


def halves_apart(weight: Floats, num_heads: int) -> Floats:
    """Rows of queries or keys as transformers rotates them: the first halves of the pairs, then the second ones. In a
    GGUF file of a llama the two of a pair are neighbours."""
    pairs = weight.reshape(num_heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _shortest(number: float) -> float:
    """A float32 as whoever wrote it meant it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(number)))
