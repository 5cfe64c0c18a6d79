"""The compiled kernels as functions of tensors. All tensors are on the CPU, in float32 or bfloat16, contiguous."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.runner.attention.kv_cache import LayerCache
from worker_svc.runner.cpu.flags import MATRIX_UNITS_FLAG, cpu_flags
from worker_svc.runner.cpu.native.choices import Choices, choice_call
from worker_svc.runner.cpu.native.library import load_library
from worker_svc.runner.cpu.native.signatures import DOT_SIGNATURES, SIGNATURES
from worker_svc.runner.cpu.native.structs import (
    AttentionCall,
    DecoderCall,
    ExchangeCall,
    ExpertsCall,
    GroupsCall,
    PackedCall,
    PackingCall,
    RopeCall,
    StateCall,
    check_layouts,
)

I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]
LANES = 16
"""Vectors of this many elements are read whole."""
TILE = 32
"""Columns that weights are packed in."""
LARGEST_HEAD = 1024
ROUNDED_GROUP = 32
"""Inputs that share a scale where numbers are rounded."""
DTYPES = (torch.float32, torch.bfloat16)


class Activation(IntEnum):
    """What `gate` applies to the gates."""

    SILU = 0
    GELU_TANH = 1
    CLAMPED = 2
    """gpt-oss's: only of experts"""


class Kernels:
    """The functions of the library. They run on as many threads as torch does in the calling thread."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Binds the functions of the library. Raises LayoutError."""
        check_layouts(library)
        self.library = library
        self._functions: dict[str, Any] = {}
        self.has_dot = bool(library.signalbox_has_dot())
        self.has_matrix_units = MATRIX_UNITS_FLAG in cpu_flags() and bool(
            library.signalbox_use_matrix_units(1)
        )
        """Products with bfloat16 run on matrix units, with sums of their own: other numbers than without."""
        for name, argtypes in (SIGNATURES | (DOT_SIGNATURES if self.has_dot else {})).items():
            function = getattr(library, name)
            function.argtypes = argtypes
            function.restype = None
            self._functions[name.removeprefix("signalbox_")] = function
        self._rms_norm, self._gate = self._functions["rms_norm"], self._functions["gate"]

    def attend(
        self,
        query: torch.Tensor,
        layer: LayerCache,
        out: torch.Tensor,
        *,
        query_starts: I32,
        positions: I32,
        ways: NDArray[np.uint8],
        block_tables: I32,
        scaling: float,
        sliding_window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        """Attention of the R rows of `query_starts` `[R + 1]`; writes them in `out` `[T, Hq, Dv]`, but for rows that go
        the way of a prompt where the kernel does not know it (`attends_prompts`).

        `query` is `[T, Hq, D]`, the heads of a token side by side, `positions` `[T]`, `ways` `[R]` (`Way`),
        `block_tables` `[R, W]`, `sinks` `[Hq]` float32. Takes what `can_attend` allows. A result depends on the way,
        and neither on the other rows, nor on the other query tokens of its row, nor on the threads.
        """
        num_kv_heads, block_size, key_dim = layer.keys.shape[1:]
        call = AttentionCall(
            query.data_ptr(),
            layer.keys.data_ptr(),
            layer.values.data_ptr(),
            out.data_ptr(),
            query_starts.ctypes.data,
            positions.ctypes.data,
            ways.ctypes.data,
            block_tables.ctypes.data,
            None if sinks is None else sinks.data_ptr(),
            query.stride(0),
            out.stride(0),
            len(query_starts) - 1,
            block_tables.shape[1],
            query.shape[1],
            num_kv_heads,
            key_dim,
            layer.values.shape[3],
            block_size,
            sliding_window or 0,
            layer.values.stride(2),
            scaling,
            softcap or 0.0,
            query.dtype == torch.bfloat16,
            torch.get_num_threads(),
        )
        self._functions["attend_all" if self.attends_prompts(layer) else "attend"](call)

    def attends_prompts(self, layer: LayerCache) -> bool:
        """True if `attend` is good for rows of many tokens too."""
        dims = (layer.keys.shape[3], layer.values.shape[3])
        return self.has_dot and layer.keys.dtype == torch.bfloat16 and not any(dim % TILE for dim in dims)

    def rope_and_write(
        self,
        qkv: torch.Tensor,
        layer: LayerCache,
        *,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        block_ids: torch.Tensor,
        offsets: torch.Tensor,
        num_heads: int,
        query_norm: torch.Tensor | None = None,
        key_norm: torch.Tensor | None = None,
        epsilon: float = 0.0,
        weight_offset: float = 0.0,
    ) -> None:
        """Normalizes (if there are weights `[D]`) and rotates Q and K, in place, and writes K and V to the cache.

        `qkv` is `[T, (Hq + 2 * Hkv) * D]`, `cosines` and `sines` `[T, rotary dim]` for halves that are rotated
        against each other, `block_ids` and `offsets` `[T]` int64. `weight_offset` is added to the norms' weights.
        """
        num_kv_heads, block_size, dim = layer.keys.shape[1:]
        call = RopeCall(
            qkv.data_ptr(),
            cosines.data_ptr(),
            sines.data_ptr(),
            None if query_norm is None else query_norm.data_ptr(),
            None if key_norm is None else key_norm.data_ptr(),
            layer.keys.data_ptr(),
            layer.values.data_ptr(),
            block_ids.data_ptr(),
            offsets.data_ptr(),
            len(block_ids),
            num_heads,
            num_kv_heads,
            dim,
            cosines.shape[-1],
            block_size,
            epsilon,
            weight_offset,
            qkv.dtype == torch.bfloat16,
            torch.get_num_threads(),
        )
        self._functions["rope_and_write"](call)

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, epsilon: float, weight_offset: float, rounds: bool
    ) -> torch.Tensor:
        """`x` `[..., D]` over its root mean square, times `weight + weight_offset` `[D]`.

        `rounds`: to the dtype before the multiplication as well as after it, as the model's own code may do.
        """
        out = torch.empty_like(x)
        dim = x.shape[-1]
        self._rms_norm(
            x.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            x.numel() // dim,
            dim,
            epsilon,
            weight_offset,
            rounds,
            x.dtype == torch.bfloat16,
            torch.get_num_threads(),
        )
        return out

    def gate(self, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
        """`activation(gates) * ups` `[..., I]` for `gate_up` `[..., 2 * I]`, the gates first; I in whole vectors."""
        dim = gate_up.shape[-1] // 2
        out = gate_up.new_empty((*gate_up.shape[:-1], dim))
        self._gate(
            gate_up.data_ptr(),
            out.data_ptr(),
            out.numel() // dim,
            dim,
            activation,
            out.dtype == torch.bfloat16,
            torch.get_num_threads(),
        )
        return out

    def linear(self, x: torch.Tensor, packed: PackedCall) -> torch.Tensor:
        """`x` `[..., inputs]` bfloat16 times packed weights: `[..., outputs]`. Where `has_dot`."""
        out = x.new_empty((*x.shape[:-1], packed.outputs))
        rows = x.numel() // packed.inputs
        self._functions["linear"](packed, x.data_ptr(), out.data_ptr(), rows, torch.get_num_threads())
        return out

    def linear_heads(self, x: torch.Tensor, packed: PackedCall, out: torch.Tensor) -> None:
        """Writes `x` `[T, H, inputs or more]` bfloat16 times a matrix for each head to `out` `[T, H, outputs or more]`,
        of both the first elements. `packed` are the matrices' outputs, 32 or a multiple of it, head by head. Where
        `has_dot`."""
        assert x.stride(2) == out.stride(2) == 1
        strides = (x.stride(0), x.stride(1), out.stride(0), out.stride(1))
        self._functions["linear_heads"](
            packed, x.data_ptr(), out.data_ptr(), *x.shape[:2], *strides, torch.get_num_threads()
        )

    def linear_quantised(self, x: torch.Tensor, packed: PackedCall) -> torch.Tensor:
        """`x` `[..., inputs]` times weights kept as whole numbers: `[..., outputs]`."""
        out = x.new_empty((*x.shape[:-1], packed.outputs))
        rows = x.numel() // packed.inputs
        self._functions["linear_quantised"](
            packed, x.data_ptr(), out.data_ptr(), rows, x.dtype == torch.bfloat16, torch.get_num_threads()
        )
        return out

    def linear_plain(self, x: torch.Tensor, packed: PackedCall) -> torch.Tensor:
        """`x` `[..., inputs]` times packed weights of floats, or of bfloat16: `[..., outputs]`, on any processor."""
        out = x.new_empty((*x.shape[:-1], packed.outputs))
        rows = x.numel() // packed.inputs
        self._functions["linear_plain"](
            packed, x.data_ptr(), out.data_ptr(), rows, x.dtype == torch.bfloat16, torch.get_num_threads()
        )
        return out

    def mix_experts(self, call: ExpertsCall) -> None:
        """Runs the experts of one layer; see experts/fused_experts.py."""
        call.num_threads = torch.get_num_threads()
        self._functions["mix_experts"](call)

    def decode(self, call: DecoderCall) -> None:
        """Runs all layers of a decoder; see decoder.py. Where `has_dot`."""
        call.num_threads = torch.get_num_threads()
        self._functions["decode"](call)

    def exchange(self, call: ExchangeCall) -> None:
        """Gives the other ranks what this one has, and waits for theirs; see exchange.h."""
        self._functions["exchange"](call)

    def run_states(self, kind: str, call: StateCall) -> None:
        """Runs what lies between projections of a recurrent layer: of `kind` `delta_net`, `state_space`,
        `convolution` or `selective_scan`; see cpu/recurrent/."""
        call.num_threads = torch.get_num_threads()
        self._functions[f"run_{kind}"](call)

    def round_groups(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Codes int8 -8 to 7 `[outputs, inputs]` of `numbers`, and scales and offsets float32
        `[outputs, inputs / 32]` of their groups: those of least squared error.
        """
        offsets = _empty_scales(numbers)
        codes, scales = self._round("round_groups", numbers, offsets)
        return codes, scales, offsets

    def round_to_bytes(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes int8 -127 to 127 `[outputs, inputs]` of `numbers`, and scales float32 `[outputs, inputs / 32]`, those
        of `round_to_eight_bits`. A group with a number that is not finite has zeros, and a scale that is NaN."""
        return self._round("round_to_bytes", numbers, None)

    def _round(
        self, function: str, numbers: torch.Tensor, offsets: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = numbers.contiguous()
        codes, scales = torch.empty(numbers.shape, dtype=torch.int8), _empty_scales(numbers)
        self._functions[function](
            GroupsCall(
                numbers.data_ptr(),
                codes.data_ptr(),
                scales.data_ptr(),
                None if offsets is None else offsets.data_ptr(),
                scales.numel(),
                numbers.dtype == torch.bfloat16,
                torch.get_num_threads(),
            )
        )
        return codes, scales

    def pack_rows(
        self,
        rows: NDArray[np.int64],
        out: torch.Tensor,
        *,
        words: int,
        group_words: int | None = None,
        head_bytes: int = 0,
        flips: int = 0,
    ) -> None:
        """Writes rows of so many words of 4 bytes to the tiles `out`, contiguous: of 32 rows the first word of each,
        then the second one of each, and so on, with `flips` changed in each word.

        `rows` `[32 * tiles]` are the addresses where they begin. `group_words`: that many words of all lie together,
        behind `head_bytes`, which are left as they are; None: all lie together. They divide `words`.
        """
        self._functions["pack_rows"](
            PackingCall(
                rows.ctypes.data,
                out.data_ptr(),
                len(rows) // TILE,
                words,
                group_words or words,
                head_bytes,
                flips,
                torch.get_num_threads(),
            )
        )

    def argmax(self, values: torch.Tensor) -> NDArray[np.int64]:
        """`[N]` first index of the largest of each row of `[N, V]`; a NaN counts as the largest."""
        out = np.empty(values.shape[0], np.int64)
        self._functions["argmax"](
            values.data_ptr(),
            out.ctypes.data,
            *values.shape,
            values.dtype == torch.bfloat16,
            torch.get_num_threads(),
        )
        return out

    def choose(self, scores: torch.Tensor, choices: Choices) -> NDArray[np.int64]:
        """`[n]` tokens for `scores` `[any, V]`, drawn as `torch_draw.draw` does: by the inverse of the distribution.

        No token depends on another sample.
        """
        tokens = np.empty(len(choices.rows), np.int64)
        self._functions["choose"](choice_call(scores, choices, tokens))
        return tokens

    def uniforms(
        self, seeds: NDArray[np.uint64], choice_indices: U32, output_positions: I32, purpose: int
    ) -> NDArray[np.float64]:
        """`[N]` numbers in [0, 1), those of `uniform.uniforms`."""
        out = np.empty(len(seeds))
        arrays = (seeds, choice_indices, output_positions)
        self._functions["uniforms"](*(a.ctypes.data for a in arrays), purpose, out.ctypes.data, len(seeds))
        return out


def _empty_scales(numbers: torch.Tensor) -> torch.Tensor:
    return torch.empty(numbers.shape[0], numbers.shape[1] // ROUNDED_GROUP)


def can_attend(query: torch.Tensor, layer: LayerCache) -> bool:
    """True if the kernel takes this model's heads: whole vectors, on the CPU, in the cache's dtype."""
    return (
        query.device.type == "cpu"
        and query.dtype == layer.keys.dtype
        and query.dtype in DTYPES
        and query.shape[-1] % LANES == 0
        and layer.values.shape[-1] % LANES == 0
    )


def load_kernels() -> Kernels | None:
    """The kernels, or None where they cannot be had."""
    library = load_library()
    return None if library is None else Kernels(library)
