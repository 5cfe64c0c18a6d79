"""Writes weights in bfloat16 as one safetensors file, a tensor at a time."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from worker_svc.gguf.blocks import Floats
from worker_svc.gguf.llama import Weight

ITEM_BYTES = 2
HEADER_ALIGNMENT_BYTES = 8


def write_weights(path: Path, weights: Sequence[Weight], tell: Callable[[int, int], None]) -> None:
    """Writes the file and has it on disk when it returns. `tell` gets the bytes done and those of all."""
    header = make_header(weights)
    total = sum(map(_num_bytes, weights))
    done = 0
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for weight in weights:
            file.write(to_bfloat16(weight.read()))
            done += _num_bytes(weight)
            tell(done, total)
        file.flush()
        os.fsync(file.fileno())


def make_header(weights: Sequence[Weight]) -> bytes:
    """The JSON before the data: type, shape and place of each tensor."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for weight in weights:
        end = at + _num_bytes(weight)
        entries[weight.name] = {"dtype": "BF16", "shape": weight.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":"))
    return text.ljust(-(-len(text) // HEADER_ALIGNMENT_BYTES) * HEADER_ALIGNMENT_BYTES).encode()


def to_bfloat16(numbers: Floats) -> bytes:
    """Rounded to the nearest, and halves to even; the numbers are finite."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def _num_bytes(weight: Weight) -> int:
    return math.prod(weight.shape) * ITEM_BYTES
