"""bitsandbytes: four bits that index a table of 16 numbers, blocks with one scale each, and rows of int8."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.decoders.parts import (
    FLOAT_DTYPES,
    Tensors,
    check_dtype,
    check_matrix,
    check_shape,
    load_scales,
)
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.scheme import Scheme
from worker_svc.weights.served import in_chunks
from worker_svc.weights.tensor_file import StoredTensor
from worker_svc.weights.weight import Weight, made_of

BYTES, INT8 = frozenset({torch.uint8}), frozenset({torch.int8})
STATE = ".weight.quant_state.bitsandbytes__"
LARGEST = 127
"""Code of the largest number of a row of int8."""


@dataclass(frozen=True)
class State:
    """What is told of one weight beside its tensors."""

    shape: tuple[int, int]
    block_size: int
    """Numbers that share a scale, counted through all rows."""
    nested_block_size: int
    nested_offset: float
    """Both of the scales, where these are quantised too."""


def decode(tensors: Tensors, _scheme: Scheme) -> list[Weight]:
    """Every weight with a state of its quantisation, and every one with a scale for each output."""
    made = [
        _four_bits(tensors, module, f"{module}{STATE}{kind}")
        for kind in ("nf4", "fp4")
        for module in tensors.ending_in(STATE + kind)
    ]
    return made + [_rows(tensors, module) for module in tensors.ending_in(".SCB")]


def _rows(tensors: Tensors, module: str) -> Weight:
    stored, scales = tensors.take(f"{module}.weight"), tensors.take(f"{module}.SCB")
    tensors.take_if_there(f"{module}.weight_format")
    outputs, inputs = check_matrix(stored, INT8)
    check_dtype(scales, FLOAT_DTYPES)
    check_shape(scales, (outputs,))

    def read(_dtype: torch.dtype) -> QuantisedMatrix:
        spread = load_scales(scales)[:, None] / LARGEST
        return QuantisedMatrix(stored.load().clone(), spread, None, bits=8, group_size=inputs)

    return made_of([stored, scales], (outputs, inputs), stored.name, read, bits=8)


def _four_bits(tensors: Tensors, module: str, state_name: str) -> Weight:
    state = _read_state(tensors.take(state_name))
    name = f"{module}.weight"
    stored, scales, table = (tensors.take(name + part) for part in ("", ".absmax", ".quant_map"))
    nested = [tensors.take_if_there(f"{name}.nested_{part}") for part in ("absmax", "quant_map")]
    total = math.prod(state.shape)
    num_blocks = -(-total // state.block_size)
    check_dtype(stored, BYTES)
    if math.prod(stored.shape) != -(-total // 2):
        raise ModelLoadError(f"{stored.name} has {math.prod(stored.shape)} bytes, not {-(-total // 2)}.")
    check_shape(scales, (num_blocks,))
    check_shape(table, (16,))
    if nested[0] is not None and nested[1] is not None:
        check_dtype(scales, BYTES)
        check_shape(nested[0], (-(-num_blocks // state.nested_block_size),))
        check_shape(nested[1], (256,))
    else:
        check_dtype(scales, FLOAT_DTYPES)
    if state.shape[1] % state.block_size and state.block_size % state.shape[1]:
        raise ModelLoadError(f"{name}: blocks of {state.block_size} do not follow rows of {state.shape[1]}.")

    def read(dtype: torch.dtype) -> torch.Tensor:
        blocks = _scales(scales, nested, state)
        numbers, rows_bytes = load_scales(table), stored.load().flatten()
        inputs = state.shape[1]

        def rows(chunk: slice) -> torch.Tensor:
            # A row may begin within a byte or a block: all are counted through the whole matrix.
            first, last = chunk.start * inputs, chunk.stop * inputs
            part = rows_bytes[first // 2 : -(-last // 2)]
            halves = torch.stack((part >> 4, part & 15), dim=-1).flatten()[first % 2 :][: last - first]
            places = torch.arange(first, last) // state.block_size
            return (numbers[halves.int()] * blocks[places]).view(-1, inputs)

        return in_chunks(state.shape, dtype, rows)

    parts = [part for part in (stored, scales, table, *nested) if part is not None]
    return made_of(parts, state.shape, name, read)


def _scales(scales: StoredTensor, nested: list[StoredTensor | None], state: State) -> torch.Tensor:
    """float32, one for each block."""
    outer, table = nested
    if outer is None or table is None:
        return load_scales(scales)
    codes = scales.load()
    places = torch.arange(len(codes)) // state.nested_block_size
    return load_scales(table)[codes.int()] * load_scales(outer)[places] + state.nested_offset


def _read_state(stored: StoredTensor) -> State:
    check_dtype(stored, BYTES)
    try:
        told: Any = json.loads(bytes(stored.load().tolist()))
        outputs, inputs = map(int, told["shape"])
        state = State(
            (outputs, inputs),
            int(told["blocksize"]),
            int(told.get("nested_blocksize", 1)),
            float(told.get("nested_offset", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelLoadError(f"{stored.name} does not tell shape and block size.") from error
    if min(*state.shape, state.block_size, state.nested_block_size) < 1:
        raise ModelLoadError(f"{stored.name} tells of an empty shape or block.")
    return state
