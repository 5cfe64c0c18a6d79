"""The structs of the library, mirrored field by field, and compared with it when it is loaded."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_float, c_int32, c_int64, c_uint32, c_void_p


class LayoutError(Exception):
    """A struct is another one here than in the library: what is passed would be misread."""


class AttentionCall(ctypes.Structure):
    """Mirror of `Attention` in kernels.cpp."""

    _fields_ = (
        *((name, c_void_p) for name in ("query", "keys", "values", "out")),
        *((name, c_void_p) for name in ("query_starts", "positions", "ways", "block_tables", "sinks")),
        *((name, c_int64) for name in ("query_stride", "out_stride", "num_rows", "table_width")),
        *((name, c_int64) for name in ("num_heads", "num_kv_heads", "key_dim", "value_dim")),
        *((name, c_int64) for name in ("block_size", "window", "value_stride")),
        *((name, c_float) for name in ("scaling", "softcap")),
        *((name, c_int32) for name in ("is_bf16", "num_threads")),
    )


class RopeCall(ctypes.Structure):
    """Mirror of `Rope` in kernels.cpp."""

    _fields_ = (
        *((name, c_void_p) for name in ("qkv", "cosines", "sines", "query_norm", "key_norm")),
        *((name, c_void_p) for name in ("keys", "values", "block_ids", "offsets")),
        *((name, c_int64) for name in ("num_tokens", "num_heads", "num_kv_heads", "dim", "rotary_dim")),
        ("block_size", c_int64),
        *((name, c_float) for name in ("epsilon", "weight_offset")),
        *((name, c_int32) for name in ("is_bf16", "num_threads")),
    )


class PackedCall(ctypes.Structure):
    """Mirror of `Packed` in linear.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("weight", "bias")),
        *((name, c_int64) for name in ("inputs", "outputs", "group")),
        *((name, c_int32) for name in ("bits", "scale_bytes", "has_offsets", "is_e2m1")),
    )


class LayerCall(ctypes.Structure):
    """Mirror of `Layer` in decoder.h."""

    _fields_ = (
        *((name, PackedCall) for name in ("qkv", "out", "gate_up", "down")),
        *((name, c_void_p) for name in ("input_norm", "post_norm", "query_norm", "key_norm")),
        *((name, c_void_p) for name in ("keys", "values", "block_tables", "block_ids")),
        ("window", c_int64),
    )


class DecoderCall(ctypes.Structure):
    """Mirror of `Decoder` in decoder.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("layers", "hidden", "cosines", "sines", "query_starts")),
        *((name, c_void_p) for name in ("positions", "ways", "block_tables", "block_ids", "offsets")),
        *((name, c_int64) for name in ("num_layers", "num_tokens", "num_rows", "table_width")),
        *((name, c_int64) for name in ("hidden_size", "num_heads", "num_kv_heads", "dim")),
        *((name, c_int64) for name in ("intermediate", "rotary_dim", "block_size")),
        *((name, c_float) for name in ("epsilon", "norm_epsilon", "scaling")),
        ("seconds", c_void_p),
        ("ranks", c_void_p),
        *((name, c_int32) for name in ("activation", "num_threads")),
    )


class ChoiceCall(ctypes.Structure):
    """Mirror of `Choice` in kernels.cpp."""

    _fields_ = (
        *((name, c_void_p) for name in ("scores", "rows", "masks", "mask_index")),
        *((name, c_void_p) for name in ("temperatures", "top_ks", "top_ps", "min_ps", "numbers", "tokens")),
        *((name, c_int64) for name in ("count", "columns", "mask_words")),
        *((name, c_int32) for name in ("is_bf16", "num_threads")),
    )


class ExpertsCall(ctypes.Structure):
    """Mirror of `Experts` in experts.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("gate_up", "down", "x", "chosen", "weights", "out")),
        *((name, c_int64) for name in ("num_rows", "num_chosen", "num_experts")),
        *((name, c_float) for name in ("alpha", "limit")),
        *((name, c_int32) for name in ("activation", "is_bf16", "num_threads")),
    )


class GroupsCall(ctypes.Structure):
    """Mirror of `Groups` in rounding.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("numbers", "codes", "scales", "offsets")),
        ("count", c_int64),
        *((name, c_int32) for name in ("is_bf16", "num_threads")),
    )


class PackingCall(ctypes.Structure):
    """Mirror of `Packing` in packing.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("rows", "out")),
        *((name, c_int64) for name in ("tiles", "words", "group_words", "head_bytes")),
        *((name, c_int32) for name in ("flips", "num_threads")),
    )


class DeltaNetCall(ctypes.Structure):
    """Mirror of `DeltaNet` in states/delta_net.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("projected", "gates", "decays")),
        *((name, c_void_p) for name in ("conv_weight", "rates", "step_bias", "norm_weight")),
        *((name, c_void_p) for name in ("inputs", "states", "query_starts", "sources", "targets", "out")),
        *(
            (name, c_int64)
            for name in ("num_rows", "num_key_heads", "num_value_heads", "key_dim", "value_dim")
        ),
        *((name, c_int64) for name in ("width", "kernel")),
        *((name, c_float) for name in ("epsilon", "update_scale")),
        *((name, c_int32) for name in ("is_bf16", "num_threads")),
    )


class ConvolutionCall(ctypes.Structure):
    """Mirror of `Convolution` in states/short_convolution.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("projected", "weight", "bias", "inputs")),
        *((name, c_void_p) for name in ("query_starts", "sources", "targets", "out")),
        *((name, c_int64) for name in ("num_rows", "channels", "width", "kernel")),
        *((name, c_int32) for name in ("is_gated", "is_bf16", "num_threads")),
    )


class SelectiveScanCall(ctypes.Structure):
    """Mirror of `SelectiveScan` in states/selective_scan.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("projected", "convolved", "parts", "steps", "rates")),
        *((name, c_void_p) for name in ("step_bias", "skips", "in_norm", "out_norm", "states")),
        *((name, c_void_p) for name in ("query_starts", "sources", "targets", "normed", "out")),
        *((name, c_int64) for name in ("num_rows", "channels", "parts_width")),
        *((name, c_float) for name in ("in_epsilon", "out_epsilon")),
        *((name, c_int32) for name in ("is_bf16", "num_threads")),
    )


class StateSpaceCall(ctypes.Structure):
    """Mirror of `StateSpace` in states/state_space.h."""

    _fields_ = (
        *(
            (name, c_void_p)
            for name in ("projected", "conv_weight", "conv_bias", "rates", "step_bias", "skips")
        ),
        *(
            (name, c_void_p)
            for name in ("scales", "norm_weight", "inputs", "states", "query_starts", "sources", "targets")
        ),
        *((name, c_void_p) for name in ("convolved", "out")),
        *((name, c_int64) for name in ("num_rows", "num_heads", "num_groups", "head_dim", "state_dim")),
        *((name, c_int64) for name in ("kernel", "norm_dim")),
        *((name, c_float) for name in ("epsilon", "least_step")),
        *((name, c_int32) for name in ("norms_first", "is_bf16", "num_threads")),
    )


class ExchangeCall(ctypes.Structure):
    """Mirror of `Exchange` in exchange.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("memory", "values")),
        *((name, c_int64) for name in ("count", "part_bytes")),
        ("seconds", c_double),
        ("number", c_uint32),
        *((name, c_int32) for name in ("rank", "size", "kind", "item_bytes", "has_ended")),
    )


class StripPair(ctypes.Structure):
    """Mirror of `StripPair` in row_copies.h."""

    _fields_ = (("target", c_void_p), ("source", c_void_p), ("row_bytes", c_int64))


StateCall = DeltaNetCall | ConvolutionCall | SelectiveScanCall | StateSpaceCall
"""What recurrent layers run between their products."""

MIRRORS: dict[str, type[ctypes.Structure]] = {
    "Attention": AttentionCall,
    "Rope": RopeCall,
    "Packed": PackedCall,
    "Layer": LayerCall,
    "Decoder": DecoderCall,
    "Choice": ChoiceCall,
    "Experts": ExpertsCall,
    "Groups": GroupsCall,
    "Packing": PackingCall,
    "DeltaNet": DeltaNetCall,
    "Convolution": ConvolutionCall,
    "SelectiveScan": SelectiveScanCall,
    "StateSpace": StateSpaceCall,
    "Exchange": ExchangeCall,
    "StripPair": StripPair,
}
"""The mirrors by their names in the sources; the library knows the same ones."""


class _Layout(ctypes.Structure):
    """Mirror of `Layout` in kernels.cpp."""

    _fields_ = (("name", ctypes.c_char_p), ("size", c_int64), ("last", c_int64))


def check_layouts(library: ctypes.CDLL) -> None:
    """Compares sizes, and where the last fields lie. Raises LayoutError."""
    library.signalbox_layouts.restype = ctypes.POINTER(_Layout)
    there: dict[str, tuple[int, int]] = {}
    for layout in library.signalbox_layouts():
        if not layout.name:
            break
        there[layout.name.decode()] = layout.size, layout.last
    here = {name: (ctypes.sizeof(mirror), _last_offset(mirror)) for name, mirror in MIRRORS.items()}
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            raise LayoutError(
                f"struct {name} of the native kernels: bytes, and bytes before the last field, are"
                f" {there.get(name)} in the library and {here.get(name)} in {__name__}"
            )


def _last_offset(mirror: type[ctypes.Structure]) -> int:
    name = mirror._fields_[-1][0]
    return int(getattr(mirror, name).offset)
