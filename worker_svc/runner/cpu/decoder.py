"""All layers of a decoder of Llama's kind as one module, which computes them in one native call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from worker_svc.runner.attention import attention
from worker_svc.runner.attention.families import is_one_call_layer, window_of
from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.attention.projections import gated_projections
from worker_svc.runner.cpu.experts.order import gate_up_order
from worker_svc.runner.cpu.fused import ACTIVATIONS, NotFusableError, known_projections, norm_epsilon
from worker_svc.runner.cpu.kept_linear import pack_kept, quantised_only
from worker_svc.runner.cpu.native.kernels import LARGEST_HEAD, TILE, Kernels
from worker_svc.runner.cpu.native.structs import DecoderCall, LayerCall
from worker_svc.runner.cpu.native_linear import PackedWeight, check_packs
from worker_svc.runner.cpu.packed_codes import PackedCodes
from worker_svc.runner.cpu.packed_linear import PackingError, join_biases, release_weight, weight_and_bias
from worker_svc.runner.model.quantised_linear import QuantisedLinear
from worker_svc.runner.split.over_memory import MemoryCommunicator


@dataclass
class PackedLayer:
    """What one layer needs; the tensors are kept because the kernel has pointers to them."""

    qkv: PackedWeight | PackedCodes
    out: PackedWeight | PackedCodes
    gate_up: PackedWeight | PackedCodes
    down: PackedWeight | PackedCodes
    norms: list[torch.Tensor | None]
    """Input, after attention, query, key."""
    window: int


class FusedDecoder(nn.Module):
    """Stands in the model's list of layers for all of them, in bfloat16 on a CPU with the bfloat16 dot product.

    Weights may be whole numbers, each of a layer's four by itself."""

    def __init__(
        self,
        layers: Sequence[nn.Module],
        kernels: Kernels,
        ranks: MemoryCommunicator | None = None,
        first: int = 0,
    ) -> None:
        """NotFusableError if the layers are not of a known kind. Their own weights are not kept. ranks: who has the
        other heads and columns; None: all are here. first: number of the first of them in the model."""
        super().__init__()
        # All of them ahead of any: a layer that is packed loses its weights.
        for layer in layers:
            check_layer(layer)
        example: Any = layers[0]
        self._kernels, self._ranks, self._first = kernels, ranks, first
        self._call = make_call(example)
        self._layers = [pack_layer(layer) for layer in layers]
        self._cache: KVCache | None = None
        self._structs = (LayerCall * len(self._layers))()
        self._has_tables = False
        self.seconds: NDArray[np.float64] | None = None
        """If an array of 3, what products, attention and the rest take is added there."""

    @property
    def weight_bytes(self) -> int:
        """Bytes that a step reads of the weights."""
        return sum(
            part.packed.nbytes
            for layer in self._layers
            for part in (layer.qkv, layer.out, layer.gate_up, layer.down)
        )

    def forward(
        self, hidden_states: torch.Tensor, position_embeddings: tuple[torch.Tensor, torch.Tensor], **_: Any
    ) -> torch.Tensor:
        """`[1, T, D]` to `[1, T, D]`; `position_embeddings` are cosines and sines `[1, T, rotary dim]`."""
        batch = attention.current()
        if batch.cache is not self._cache:
            self._point_to(batch.cache)
        batch.layers_called.update(range(self._first, self._first + len(self._layers)))
        hidden = hidden_states.clone(memory_format=torch.contiguous_format)
        cosines, sines = (part.to(hidden.dtype).contiguous() for part in position_embeddings)
        self._use_tables(batch)
        call = self._call
        call.layers = ctypes.addressof(self._structs)
        call.hidden, call.cosines, call.sines = hidden.data_ptr(), cosines.data_ptr(), sines.data_ptr()
        call.query_starts = batch.query_starts.ctypes.data
        call.positions = batch.positions.ctypes.data
        call.ways = batch.ways.ctypes.data
        call.block_tables = batch.block_tables.ctypes.data
        call.block_ids, call.offsets = batch.block_ids.data_ptr(), batch.offsets.data_ptr()
        call.num_layers = len(self._layers)
        call.num_tokens, call.num_rows = hidden.shape[1], batch.num_rows
        call.table_width, call.rotary_dim = batch.block_tables.shape[1], cosines.shape[-1]
        call.block_size = batch.cache.block_size
        call.seconds = None if self.seconds is None else self.seconds.ctypes.data
        if self._ranks is None:
            self._kernels.decode(call)
            return hidden
        num_sums = 2 * len(self._layers)
        with self._ranks.summing(num_sums, num_sums * hidden.nbytes) as exchange:
            call.ranks = ctypes.addressof(exchange)
            self._kernels.decode(call)
        return hidden

    def _use_tables(self, batch: attention.PagedBatch) -> None:
        """Tells each layer its own tables, where the batch has some of several groups."""
        if not (batch.of_layers or self._has_tables):
            return
        for index, struct in enumerate(self._structs):
            own = batch.for_layer(self._first + index)
            is_spine = own is batch
            struct.block_tables = None if is_spine else own.block_tables.ctypes.data
            struct.block_ids = None if is_spine else own.block_ids.data_ptr()
        self._has_tables = bool(batch.of_layers)

    def _point_to(self, cache: KVCache) -> None:
        """Writes the structures that the kernel reads, for this cache."""
        parts = cache.layers[self._first : self._first + len(self._layers)]
        for struct, layer, part in zip(self._structs, self._layers, parts, strict=True):
            struct.qkv, struct.out = layer.qkv.call, layer.out.call
            struct.gate_up, struct.down = layer.gate_up.call, layer.down.call
            pointers = [None if norm is None else norm.data_ptr() for norm in layer.norms]
            struct.input_norm, struct.post_norm, struct.query_norm, struct.key_norm = pointers
            struct.keys, struct.values = part.keys.data_ptr(), part.values.data_ptr()
            struct.window = layer.window
        self._cache = cache


def is_decoder_layer(module: nn.Module) -> bool:
    """True for the layers that `FusedDecoder` is made for."""
    return is_one_call_layer(module)


def can_be_one_call(layers: Sequence[nn.Module]) -> bool:
    """Whether a `FusedDecoder` can be made of these layers."""
    try:
        for layer in layers:
            check_layer(layer)
        make_call(layers[0])
    except (NotFusableError, PackingError):
        return False
    return True


def check_layer(layer: Any) -> None:
    """NotFusableError for a layer that cannot be packed."""
    if not is_decoder_layer(layer):
        raise NotFusableError(f"{type(layer).__name__} is not of a known kind")
    gated = gated_projections(layer.mlp)
    if gated is None:
        raise NotFusableError("its MLP is not one that the kernel knows")
    parts = known_projections(layer.self_attn)
    for linear in (*parts.inputs, parts.out, *gated.inputs, gated.down):
        if not isinstance(linear, QuantisedLinear):
            weight, _ = weight_and_bias(linear)
            check_packs(weight)


def make_call(layer: Any) -> DecoderCall:
    """The call without what changes with each batch. NotFusableError for shapes that the kernel does not know."""
    attn = layer.self_attn
    parts, gated = known_projections(attn), gated_projections(layer.mlp)
    if gated is None:
        raise NotFusableError("its MLP is not one that the kernel knows")
    activation = ACTIVATIONS.get(type(gated.activation).__name__)
    if activation is None:
        raise NotFusableError(
            f"its activation {type(gated.activation).__name__} is not one that the kernel knows"
        )
    hidden_size = int(parts.inputs[0].in_features)  # type: ignore[arg-type]
    if parts.dim % TILE or parts.dim > LARGEST_HEAD or hidden_size % TILE or gated.width % TILE:
        raise NotFusableError(f"its sizes are not multiples of {TILE}")
    return DecoderCall(
        hidden_size=hidden_size,
        num_heads=parts.num_heads,
        num_kv_heads=parts.num_kv_heads,
        dim=parts.dim,
        intermediate=gated.width,
        epsilon=norm_epsilon(layer.input_layernorm),
        norm_epsilon=norm_epsilon(attn.q_norm) if hasattr(attn, "q_norm") else 0.0,
        scaling=attn.scaling,
        activation=activation,
    )


def pack_layer(layer: Any) -> PackedLayer:
    """One layer's weights as the kernel reads them; it loses its own."""
    attn = layer.self_attn
    parts, gated = known_projections(attn), gated_projections(layer.mlp)
    if gated is None:
        raise NotFusableError("its MLP is not one that the kernel knows")
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [getattr(attn, "q_norm", None), getattr(attn, "k_norm", None)]
    packed = PackedLayer(
        qkv=pack_side_by_side(*parts.inputs, order=parts.order),
        out=pack_side_by_side(parts.out),
        gate_up=pack_alternating(*gated.inputs),
        down=pack_side_by_side(gated.down),
        norms=[None if norm is None else norm.weight.detach().contiguous() for norm in norms],
        window=window_of(attn) or 0,
    )
    for linear in (*parts.inputs, parts.out, *gated.inputs, gated.down):
        release_weight(linear)
    return packed


def pack_side_by_side(*linears: nn.Module, order: torch.Tensor | None = None) -> PackedWeight | PackedCodes:
    """The outputs of all, one layer's behind the other's, or in that `order`, int64 `[outputs]`."""
    kept = quantised_only(linears)
    if kept is not None:
        return pack_kept(kept, order)
    weights, biases = zip(*map(weight_and_bias, linears), strict=True)
    bias = join_biases(weights, biases)
    return PackedWeight(weights, bias if bias is None or order is None else bias[order], order)


def pack_alternating(*linears: nn.Module) -> PackedWeight | PackedCodes:
    """16 gates, 16 ups, and so on: they meet in one tile. `linears` give all gates and then all ups."""
    outputs = sum(int(linear.out_features) for linear in linears)  # type: ignore[arg-type, misc]
    return pack_side_by_side(*linears, order=gate_up_order(outputs // 2, is_concatenated=True))
