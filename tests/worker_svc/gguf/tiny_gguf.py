"""Writes small GGUF files of a Llama, as llama.cpp's converter would."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32, Q4_1, Q8_0 = 0, 3, 8
HIDDEN, NUM_HEADS, NUM_KV_HEADS, INNER, NUM_LAYERS = 64, 4, 2, 96, 2
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ALPHABET = [chr(code) for code in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]]
TOKENS = [*WORDS, *ALPHABET, *map(chr, range(256, 256 + 68)), "Ġt", "he", "Ġthe"]
MERGES = ["Ġ t", "h e", "Ġt he"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": NUM_LAYERS,
    "llama.context_length": 256,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": INNER,
    "llama.attention.head_count": NUM_HEADS,
    "llama.attention.head_count_kv": NUM_KV_HEADS,
    "llama.rope.freq_base": 100_000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3] * len(WORDS) + [1] * (len(TOKENS) - len(WORDS)),
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": TEMPLATE,
}
Array = NDArray[np.float32]


def draw_weights(seed: int = 0) -> dict[str, Array]:
    """Random weights by the names of GGUF, in the shapes of torch."""
    kv = HIDDEN // NUM_HEADS * NUM_KV_HEADS
    layer = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN)}
    layer |= {"attn_output": (HIDDEN, HIDDEN), "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN)}
    layer |= {"ffn_down": (HIDDEN, INNER)}
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(TOKENS), HIDDEN)}
    for index in range(NUM_LAYERS):
        shapes |= {f"blk.{index}.{name}.weight": shape for name, shape in layer.items()}
        shapes |= {f"blk.{index}.{name}.weight": (HIDDEN,) for name in ("attn_norm", "ffn_norm")}
    shapes["output_norm.weight"] = (HIDDEN,)
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) * 0.1 for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any] = METADATA,
    weights: Mapping[str, Array] | None = None,
    kind: int = F32,
) -> None:
    """Version 3. Matrices are stored as `kind`, vectors as float32."""
    weights = draw_weights() if weights is None else weights
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(weights), len(metadata))
    head += b"".join(_string(name) + _value(value) for name, value in metadata.items())
    data = b""
    for name, weight in weights.items():
        stored_as = kind if weight.ndim > 1 else F32
        shape = struct.pack(f"<I{weight.ndim}Q", weight.ndim, *weight.shape[::-1])
        head += _string(name) + shape + struct.pack("<IQ", stored_as, len(data))
        data += _aligned(b"".join(ENCODERS[stored_as](row) for row in weight.reshape(-1, weight.shape[-1])))
    path.write_bytes(_aligned(head) + data)


def encode_q8_0(row: Array) -> bytes:
    """A scale and 32 signed bytes per block."""
    blocks = []
    for at in range(0, len(row), 32):
        block = row[at : at + 32]
        scale = np.float16(np.abs(block).max() / 127)
        numbers = [round(float(number / np.float32(scale))) for number in block]
        blocks.append(scale.tobytes() + struct.pack("<32b", *(max(-127, min(127, n)) for n in numbers)))
    return b"".join(blocks)


def encode_q4_1(row: Array) -> bytes:
    """A scale, the least value, and 16 bytes: number i in the low half of byte i, number 16 + i in its high one."""
    blocks = []
    for at in range(0, len(row), 32):
        block = row[at : at + 32]
        least, scale = np.float16(block.min()), np.float16((block.max() - block.min()) / 15)
        numbers = [round(float((number - np.float32(least)) / np.float32(scale))) for number in block]
        numbers = [max(0, min(15, number)) for number in numbers]
        halves = [numbers[i] | numbers[i + 16] << 4 for i in range(16)]
        blocks.append(scale.tobytes() + least.tobytes() + bytes(halves))
    return b"".join(blocks)


def encode_float32(row: Array) -> bytes:
    return row.tobytes()


ENCODERS = {F32: encode_float32, Q4_1: encode_q4_1, Q8_0: encode_q8_0}


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    """Type and value, the types as llama.cpp's converter chooses them."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
    if isinstance(value[0], float):
        return struct.pack(f"<IIQ{len(value)}f", 9, 6, len(value), *value)
    return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def _aligned(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // 32) * 32, b"\0")
