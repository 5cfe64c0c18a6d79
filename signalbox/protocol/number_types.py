"""Number types of weights and KV cache, as `--dtype` names them."""

from __future__ import annotations

from typing import Literal

NumberType = Literal["auto", "float32", "bfloat16"]
FLOAT16 = frozenset({"float16", "fp16", "half"})
NO_FLOAT16 = (
    "float16 is not served, as numbers of many models are beyond its range: set bfloat16, or float32 where the "
    "hardware has no bfloat16"
)
