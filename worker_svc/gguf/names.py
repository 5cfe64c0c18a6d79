"""What the tensors of a layer are called in GGUF, and in transformers, by family."""

from __future__ import annotations

LLAMA = {
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
NORMED = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA = LLAMA | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
JOINED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
PHI3 = {name: LLAMA[name] for name in ("attn_norm", "attn_output", "ffn_norm", "ffn_down")} | JOINED
ATTENTION = {name: LLAMA[name] for name in LLAMA if not name.startswith("ffn_")}
QWEN3_MOE = ATTENTION | {
    **NORMED,
    "ffn_norm": LLAMA["ffn_norm"],
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
"""One tensor in the file has the matrices of all experts; {} is the number of one."""
MIXTRAL = ATTENTION | {
    "ffn_norm": LLAMA["ffn_norm"],
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}
PARALLEL = {name: LLAMA[name] for name in LLAMA if name != "ffn_norm"}
"""One norm for attention and MLP."""
UNGATED = {name: LLAMA[name] for name in LLAMA if name != "ffn_gate"}
STARCODER2 = UNGATED | {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
SEED_OSS = PARALLEL | {"post_attention_norm": LLAMA["ffn_norm"]}
POST_NORMED = {name: LLAMA[name] for name in LLAMA if not name.endswith("_norm")} | {
    **NORMED,
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""Norms of what attention and MLP give, and none of what they take."""
GLM4 = PARALLEL | {
    "post_attention_norm": "post_self_attn_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_mlp_layernorm",
    "ffn_up": JOINED["ffn_up"],
}
del GLM4["ffn_gate"]
HUNYUAN = LLAMA | {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}
