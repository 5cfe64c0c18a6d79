"""Weights in 8-bit floating point with scales: for a whole tensor, an output, a group or a block of 128 x 128."""

from __future__ import annotations

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.decoders.grid import find_grid, grid_scales
from worker_svc.weights.decoders.parts import FLOAT_DTYPES, Tensors, check_dtype
from worker_svc.weights.scheme import Scheme
from worker_svc.weights.served import in_chunks
from worker_svc.weights.tensor_file import StoredTensor
from worker_svc.weights.weight import Weight, made_of

FLOAT8_DTYPES = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
SCALE_DTYPES = FLOAT_DTYPES | {torch.float8_e8m0fnu, torch.uint8}
SCALES = ("_scale_inv", "_scale")
"""How the scales of a tensor are called, behind its name; by both, numbers are multiplied."""
ACTIVATIONS = (".input_scale", ".activation_scale", ".k_scale", ".v_scale", ".output_scale")
"""Scales of what flows through a model, which is not quantised here."""


def decode(tensors: Tensors, scheme: Scheme) -> list[Weight]:
    """Every tensor of 8-bit floating point."""
    block = read_block(scheme.settings.get("weight_block_size"))
    names = [
        stored.name for stored in tensors.rest() if stored.dtype in FLOAT8_DTYPES and len(stored.shape) > 1
    ]
    leave_out_activations(tensors)
    return [_weight(tensors, name, block) for name in names]


def leave_out_activations(tensors: Tensors) -> None:
    """Takes the scales that no weight needs."""
    for suffix in ACTIVATIONS:
        for module in tensors.ending_in(suffix):
            tensors.take(f"{module}{suffix}")


def read_block(value: object) -> tuple[int, int] | None:
    """Outputs and inputs of a block. ModelLoadError for what is no such pair."""
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(n) is int and n > 0 for n in value):
        return value[0], value[1]
    raise ModelLoadError(f"quantization_config: a block of {value!r} is not two lengths.")


def _weight(tensors: Tensors, name: str, block: tuple[int, int] | None) -> Weight:
    scale_name = next((name + suffix for suffix in SCALES if name + suffix in tensors), name + SCALES[0])
    return float8_weight(tensors.take(name), tensors.take(scale_name), block)


def float8_weight(stored: StoredTensor, scales: StoredTensor, block: tuple[int, int] | None) -> Weight:
    """A weight under the name of `stored`. ModelLoadError where the scales do not fit."""
    check_dtype(scales, SCALE_DTYPES)
    if min(stored.shape) < 1:
        raise ModelLoadError(f"{stored.name} is {list(stored.shape)}, which is empty.")
    grid = find_grid(stored.shape, scales, block)

    def read(dtype: torch.dtype) -> torch.Tensor:
        numbers = stored.load().reshape(-1, stored.shape[-1])
        factors = grid_scales(scales, grid)
        made = in_chunks(
            (numbers.shape[0], numbers.shape[1]),
            dtype,
            lambda chunk: grid.scaled(numbers[chunk].float(), factors, chunk),
        )
        return made.view(stored.shape)

    return made_of([stored, scales], stored.shape, stored.name, read)
