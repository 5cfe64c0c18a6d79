"""A model directory as a source of weights: names, shapes and bytes at once, numbers when they are asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker_svc.gguf.source import open_gguf
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.checkpoint import gguf_file, weight_files
from worker_svc.weights.decoders import awq, bitsandbytes, compressed, float4, float8, gptq
from worker_svc.weights.decoders.parts import FLOAT_DTYPES, Tensors, short
from worker_svc.weights.scheme import Scheme, read_scheme
from worker_svc.weights.tensor_file import StoredTensor, read_tensors
from worker_svc.weights.weight import Weight, plain

logger = logging.getLogger(__name__)

DECODERS: dict[str, Callable[[Tensors, Scheme], list[Weight]]] = {
    "awq": awq.decode,
    "gptq": gptq.decode,
    "fp8": float8.decode,
    "compressed-tensors": compressed.decode,
    "mxfp4": float4.decode_mxfp4,
    "modelopt-nvfp4": float4.decode_modelopt,
    "bitsandbytes": bitsandbytes.decode,
}


@dataclass(frozen=True)
class WeightSource:
    """All weights of a checkpoint."""

    weights: Mapping[str, Weight]
    """By transformers' names for checkpoints."""
    scheme: Scheme | None
    """None: plain numbers."""

    @property
    def num_elements(self) -> int:
        return sum(weight.num_elements for weight in self.weights.values())

    @property
    def stored_bytes(self) -> int:
        return sum(weight.stored_bytes for weight in self.weights.values())


def open_weights(model_dir: Path, config: Mapping[str, Any]) -> WeightSource:
    """The weights of a directory whose config.json holds `config`. ModelLoadError names the file or the tensor that
    cannot be read, and a scheme that is not served."""
    gguf = gguf_file(model_dir)
    if gguf is not None:
        weights, name = open_gguf(gguf)
        logger.info("weights: %s", name)
        return WeightSource({weight.name: weight for weight in weights}, Scheme("gguf", name))
    scheme = read_scheme(model_dir, config)
    stored: dict[str, StoredTensor] = {}
    for path in weight_files(model_dir):
        stored |= read_tensors(path)
    weights = _plain(stored) if scheme is None else _quantised(Tensors(stored), scheme, model_dir)
    return WeightSource({weight.name: weight for weight in weights}, scheme)


def _plain(stored: Mapping[str, StoredTensor]) -> list[Weight]:
    return list(map(plain, stored.values()))


def _quantised(tensors: Tensors, scheme: Scheme, model_dir: Path) -> list[Weight]:
    """What is stored as the scheme stores it decides, not what the config lists as left out."""
    made = DECODERS[scheme.method](tensors, scheme)
    if not made:
        raise ModelLoadError(f"{model_dir} is said to be {scheme.name}, but has no weight of that kind.")
    rest = tensors.rest()
    for stored in rest:
        if stored.name.endswith(".weight") and stored.dtype not in FLOAT_DTYPES:
            raise ModelLoadError(
                f"{stored.name} is {short(stored.dtype)}, but has no scales that say what it means."
            )
    logger.info("weights: %s%s", scheme.name, f"; {scheme.told}" if scheme.told else "")
    return made + list(map(plain, rest))
