"""Scaled rope frequencies in GGUF, as transformers' config has them."""

from __future__ import annotations

import math
import struct
from typing import Any

from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile

FREQUENCIES = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What all published models with such frequencies have; the file has only what comes of it."""


def rope_scaling(files: list[GgufFile], prefix: str, config: dict[str, Any]) -> dict[str, Any] | None:
    """`rope_scaling` of config.json; None: frequencies are not scaled. Raises GgufError for a kind that is not read
    here."""
    file = files[0]
    for each in files:
        if FREQUENCIES in each.tensors:
            return _llama3(each, config)
    kind = file.text(f"{prefix}.rope.scaling.type", "none")
    factors = {name: each for each in files for name in (LONG, SHORT) if name in each.tensors}
    if factors or kind == "longrope":
        return _longrope(file, factors, prefix, config)
    if kind == "none":
        return None
    factor = file.number(f"{prefix}.rope.scaling.factor")
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        original = file.size(f"{prefix}.rope.scaling.original_context_length")
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    raise GgufError(f"{file.path} has rope frequencies of the kind {kind}, which are not served")


def _longrope(
    file: GgufFile, factors: dict[str, GgufFile], prefix: str, config: dict[str, Any]
) -> dict[str, Any]:
    """Phi 3's: two tensors with the numbers by which frequencies are divided, and what cosines and sines are multiplied
    by."""
    if len(factors) < 2:
        raise GgufError(f"{file.path} has rope frequencies of the kind longrope, without {LONG} and {SHORT}")
    rotated = file.size(f"{prefix}.rope.dimension_count", config["head_dim"])
    length = file.size(f"{prefix}.rope.scaling.original_context_length")
    long, short = (list(_divisors(factors[name], name, rotated)) for name in (LONG, SHORT))
    scaling: dict[str, Any] = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
    name = f"{prefix}.rope.scaling.attn_factor"
    if name in file.metadata:
        scaling["attention_factor"] = file.number(name)
    return scaling | {"original_max_position_embeddings": length}


def _divisors(file: GgufFile, name: str, rotated: int) -> tuple[float, ...]:
    """The numbers of a tensor by which the frequencies of heads that rotate so many elements are divided."""
    tensor = file.tensors[name]
    if tensor.storage.name != "F32" or tensor.num_elements != rotated // 2:
        raise GgufError(f"{file.path}: {name} is not what a model of its heads has")
    found = struct.unpack(f"<{tensor.num_elements}f", file.bytes_of(tensor))
    if not (found and all(map(math.isfinite, found)) and min(found) > 0):
        raise GgufError(f"{file.path}: {name} has no frequencies")
    return found


def _llama3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """Llama 3.1's: the file has the number by which each frequency is divided."""
    found = _divisors(file, FREQUENCIES, config["head_dim"])
    if not config["rope_theta"] > 0:
        raise GgufError(f"{file.path}: {FREQUENCIES} has no frequencies")
    factor = round(max(found), 4)
    scaling = {"rope_type": "llama3", "factor": factor, **LLAMA3}
    expected = [
        _divisor(config["rope_theta"] ** (2 * index / config["head_dim"]), scaling)
        for index in range(len(found))
    ]
    if any(
        not math.isclose(ours, theirs, rel_tol=1e-3) for ours, theirs in zip(expected, found, strict=True)
    ):
        raise GgufError(f"{file.path}: {FREQUENCIES} is not what Llama 3.1 has, which is not served")
    return scaling


def _divisor(inverse: float, scaling: dict[str, Any]) -> float:
    """By what a frequency is divided: 1 for short waves, the factor for long ones, and between them in between."""
    factor, length = float(scaling["factor"]), float(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    wave = 2 * math.pi * inverse
    if wave < length / high:
        return 1.0
    if wave > length / low:
        return factor
    smooth = (length / wave - low) / (high - low)
    return 1 / ((1 - smooth) / factor + smooth)
