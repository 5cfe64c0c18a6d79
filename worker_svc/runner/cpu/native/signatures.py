"""What the functions of the library take."""

from __future__ import annotations

from ctypes import POINTER, c_float, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

from worker_svc.runner.cpu.native.structs import (
    AttentionCall,
    ChoiceCall,
    ConvolutionCall,
    DecoderCall,
    DeltaNetCall,
    ExchangeCall,
    ExpertsCall,
    GroupsCall,
    PackedCall,
    PackingCall,
    RopeCall,
    SelectiveScanCall,
    StateSpaceCall,
    StripPair,
)

SIGNATURES: dict[str, list[Any]] = {
    "signalbox_attend": [POINTER(AttentionCall)],
    "signalbox_rope_and_write": [POINTER(RopeCall)],
    "signalbox_rms_norm": [*[c_void_p] * 3, *[c_int64] * 2, *[c_float] * 2, *[c_int32] * 3],
    "signalbox_gate": [c_void_p, c_void_p, c_int64, c_int64, c_int32, c_int32, c_int32],
    "signalbox_linear_quantised": [POINTER(PackedCall), *[c_void_p] * 2, c_int64, *[c_int32] * 2],
    "signalbox_linear_plain": [POINTER(PackedCall), *[c_void_p] * 2, c_int64, *[c_int32] * 2],
    "signalbox_mix_experts": [POINTER(ExpertsCall)],
    "signalbox_round_groups": [POINTER(GroupsCall)],
    "signalbox_round_to_bytes": [POINTER(GroupsCall)],
    "signalbox_pack_rows": [POINTER(PackingCall)],
    "signalbox_run_delta_net": [POINTER(DeltaNetCall)],
    "signalbox_run_convolution": [POINTER(ConvolutionCall)],
    "signalbox_run_selective_scan": [POINTER(SelectiveScanCall)],
    "signalbox_run_state_space": [POINTER(StateSpaceCall)],
    "signalbox_exchange": [POINTER(ExchangeCall)],
    "signalbox_copy_rows": [POINTER(StripPair), c_int64, *[c_void_p] * 2, c_int64],
    "signalbox_argmax": [c_void_p, c_void_p, c_int64, c_int64, c_int32, c_int32],
    "signalbox_choose": [POINTER(ChoiceCall)],
    "signalbox_uniforms": [*[c_void_p] * 3, c_uint32, c_void_p, c_int64],
}
DOT_SIGNATURES: dict[str, list[Any]] = {
    "signalbox_linear": [POINTER(PackedCall), c_void_p, c_void_p, c_int64, c_int32],
    "signalbox_linear_heads": [POINTER(PackedCall), *[c_void_p] * 2, *[c_int64] * 6, c_int32],
    "signalbox_attend_all": [POINTER(AttentionCall)],
    "signalbox_decode": [POINTER(DecoderCall)],
}
"""Signatures of the functions that are there only where the machine has the bfloat16 dot product."""
