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
INNER_NAME = re.compile(r"blk\.([0-9]{1,6})\.(\w+)\.weight")


@dataclass(frozen=True)
class Weight:
    """A tensor as a model directory has it."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], Floats]


def make_config(file: GgufFile) -> dict[str, Any]:
    """config.json. Raises GgufError for another family."""
    family = file.text("general.architecture")
    if family != "llama":
        raise GgufError(f"GGUF of the architecture {family!r} is not converted here, only llama")
    if "rope_freqs.weight" in file.tensors or "llama.rope.scaling.type" in file.metadata:
        raise GgufError("GGUF of a llama with scaled rope frequencies is not converted here")
    hidden, num_heads = file.size("llama.embedding_length"), file.size("llama.attention.head_count")
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": file.size("llama.feed_forward_length"),
        "num_hidden_layers": file.size("llama.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": file.size("llama.attention.head_count_kv", num_heads),
        "head_dim": file.size("llama.attention.key_length", max(hidden // num_heads, 1)),
        "max_position_embeddings": file.size("llama.context_length"),
        "rms_norm_eps": _shortest(file.number("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(file.number("llama.rope.freq_base", 10_000.0)),
        "vocab_size": len(file.texts("tokenizer.ggml.tokens")),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "bfloat16",
    }
    if config["head_dim"] % 2 or num_heads % config["num_key_value_heads"]:
        raise GgufError(f"a llama of {num_heads} heads cannot have these heads of keys, or of this length")
    return config


def list_weights(file: GgufFile, config: dict[str, Any]) -> list[Weight]:
    """All weights, in the order of the file. Raises GgufError for a tensor that the family does not have, for one that
    is missing, and for another shape than the config says."""
    weights = [_weight(file, tensor, config) for tensor in file.tensors.values()]
    num_layers = config["num_hidden_layers"]
    expected = len(OUTER) - config["tie_word_embeddings"] + num_layers * len(INNER)
    if len(weights) != expected:
        raise GgufError(f"a llama of {num_layers} layers has {expected} tensors, and the file {len(weights)}")
    return weights


def _shape_of(tensor: str, config: dict[str, Any]) -> tuple[int, ...]:
    """The shape of a tensor, by its name in GGUF without the number of its layer."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    return {
        "token_embd.weight": (config["vocab_size"], hidden),
        "output.weight": (config["vocab_size"], hidden),
        "attn_q": (queries, hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_output": (hidden, queries),
        "ffn_gate": (inner, hidden),
        "ffn_up": (inner, hidden),
        "ffn_down": (hidden, inner),
    }.get(tensor, (hidden,))


def _weight(file: GgufFile, tensor: Tensor, config: dict[str, Any]) -> Weight:
    name, short = _name_of(tensor.name, config["num_hidden_layers"])
    expected = _shape_of(short, config)
    if tensor.shape != expected:
        raise GgufError(f"the tensor {tensor.name} has the shape {tensor.shape}, not {expected}")
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        num_heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        return Weight(name, tensor.shape, lambda: halves_apart(file.read(tensor), num_heads))
    return Weight(name, tensor.shape, lambda: file.read(tensor))


def _name_of(name: str, num_layers: int) -> tuple[str, str]:
    """(transformers' name, the name without the number of its layer)."""
    match = INNER_NAME.fullmatch(name)
    if match and match[2] in INNER and int(match[1]) < num_layers:
        return f"model.layers.{int(match[1])}.{INNER[match[2]]}.weight", match[2]
    if name not in OUTER:
        raise GgufError(f"the tensor {name} is none of a llama's")
    return OUTER[name], name


def halves_apart(weight: Floats, num_heads: int) -> Floats:
    """Rows of queries or keys as transformers rotates them: the first halves of the pairs, then the second ones. In a
    GGUF file of a llama the two of a pair are neighbours."""
    pairs = weight.reshape(num_heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _shortest(number: float) -> float:
    """A float32 as whoever wrote it meant it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(number)))
