"""Modules that compute what a Hugging Face model's own do, in fewer and faster operations on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from worker_svc.runner.attention import attention
from worker_svc.runner.attention.families import (
    Angles,
    Family,
    Growth,
    attention_family,
    chunk_of,
    growth_of,
    is_rotated,
    window_of,
)
from worker_svc.runner.attention.projections import (
    Projections,
    attention_projections,
    gated_projections,
)
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cpu.kept_linear import KeptLinear, quantised_only
from worker_svc.runner.cpu.native.kernels import LANES, LARGEST_HEAD, Activation, Kernels
from worker_svc.runner.cpu.native_linear import NativeLinear, uses_dot
from worker_svc.runner.cpu.packed_linear import (
    PackedLinear,
    pack,
    probe_rows,
    relative_error,
)
from worker_svc.runner.model.quantised_linear import QuantisedLinear

ACTIVATIONS = {
    "SiLU": Activation.SILU,
    "SiLUActivation": Activation.SILU,
    "GELUTanh": Activation.GELU_TANH,
    "PytorchGELUTanh": Activation.GELU_TANH,
}
NORM_VARIANTS = ((0.0, True), (0.0, False), (1.0, False))
"""(added to the weight, whether it rounds before the multiplication): Llama, OLMo 2 and gpt-oss, Gemma."""
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""Largest relative errors of the parts that are checked one by one, as in packed_linear."""
KEPT_TOLERANCE = 1e-3
"""Least tolerance where products are of whole numbers: what differs in its last bit may differ in a code."""


class NotFusableError(Exception):
    """The module is not one of those known, or the fused one gives other results: it stays as it is."""


class FusedNorm(nn.Module):
    """A root mean square norm."""

    def __init__(self, norm: Any, kernels: Kernels) -> None:
        super().__init__()
        self.weight = norm.weight
        self.epsilon = norm_epsilon(norm)
        self._kernels = kernels
        self.weight_offset, self._rounds = self._find_variant(norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., D]` to `[..., D]`."""
        return self._norm(x, self.weight_offset, self._rounds)

    def _norm(self, x: torch.Tensor, offset: float, rounds: bool) -> torch.Tensor:
        return self._kernels.rms_norm(x.contiguous(), self.weight, self.epsilon, offset, rounds)

    def _find_variant(self, norm: Any) -> tuple[float, bool]:
        """The variant that gives what `norm` gives."""
        probe = probe_rows(len(self.weight), self.weight.dtype)
        expected = norm(probe)
        errors = [relative_error(self._norm(probe, *variant), expected) for variant in NORM_VARIANTS]
        if not min(errors) <= TOLERANCES[self.weight.dtype]:
            raise NotFusableError("it is no root mean square norm of a known kind")
        return NORM_VARIANTS[errors.index(min(errors))]


class FusedMLP(nn.Module):
    """A gated MLP: gates and ups in one product."""

    def __init__(self, mlp: Any, kernels: Kernels) -> None:
        super().__init__()
        parts = gated_projections(mlp)
        activation = None if parts is None else ACTIVATIONS.get(type(parts.activation).__name__)
        if parts is None or activation is None or parts.width % LANES:
            raise NotFusableError("its activation or width is not one that the kernel knows")
        self._kernels, self._activation = kernels, activation
        first: Any = parts.inputs[0]
        probe = probe_rows(first.in_features, dtype_of(first))
        expected = mlp(probe)
        self.gate_up_proj = pack_layers(kernels, *parts.inputs)
        self.down_proj = pack_layers(kernels, parts.down)
        least = KEPT_TOLERANCE if isinstance(self.down_proj, KeptLinear) else 0.0
        tolerance = max(TOLERANCES[probe.dtype], least)
        if not relative_error(self(probe), expected) <= 2 * tolerance:
            raise NotFusableError("the fused MLP gives other results")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., D]` to `[..., D]`."""
        return self.down_proj(self._kernels.gate(self.gate_up_proj(x), self._activation))  # type: ignore[no-any-return]


class JoinedAttention(nn.Module):
    """Attention of a layer: one product for Q, K and V, one pass that normalizes, rotates and writes the cache.

    Its results are checked with those of the whole model, by the probe.
    """

    qkv_proj: nn.Module
    o_proj: nn.Module

    def __init__(self, attn: Any, kernels: Any, fuse_norm: Callable[[Any], Any]) -> None:
        """`kernels` has `rope_and_write`; `fuse_norm` makes a fused norm, or raises NotFusableError."""
        super().__init__()
        self.layer_idx: int = attn.layer_idx
        self._kernels = kernels
        parts = known_projections(attn)  # not kept: the joined weights would be in memory twice
        self._dim, self._num_heads, self._num_kv_heads = parts.dim, parts.num_heads, parts.num_kv_heads
        self._family = attention_family(attn) or Family()
        self._clip: float | None = attn.config.clip_qkv if self._family.is_clipped else None
        self._is_rotated = is_rotated(attn)
        self._whole_norms: list[tuple[slice, Any]] = []
        self._norms = self._take_norms(attn, fuse_norm, is_ordered=parts.order is not None)
        self._value_norm = getattr(attn, "v_norm", None)
        self._scores = Scores(
            scaling=attn.scaling,
            sliding_window=window_of(attn),
            softcap=getattr(attn, "attn_logit_softcapping", None),
            sinks=attn.sinks.detach() if self._family.has_sinks else None,
            chunk=chunk_of(attn),
        )
        self._growth = growth_of(attn)

    def _take_norms(self, attn: Any, fuse_norm: Callable[[Any], Any], *, is_ordered: bool) -> dict[str, Any]:
        """Arguments of the kernel for norms of single heads; norms of all heads at once are kept aside. is_ordered: the
        heads' outputs are put into another order, which no norm of theirs is."""
        if hasattr(
            attn, "qk_norm"
        ):  # without weights, so that it is the same ahead of the rotation as behind it
            ones = torch.ones(self._dim, dtype=dtype_of(attn.o_proj), device=device_of(attn.o_proj))
            return {"query_norm": ones, "key_norm": ones, "epsilon": norm_epsilon(attn.qk_norm)}
        norms = [getattr(attn, name, None) for name in ("q_norm", "k_norm")]
        if norms == [None, None]:
            return {}
        if is_ordered or not all(is_rms_norm(norm) for norm in norms):
            raise NotFusableError("its norms are not those that the kernel knows")
        query, key = (fuse_norm(norm) for norm in norms)
        widths = self._num_heads * self._dim, self._num_kv_heads * self._dim
        lengths = len(query.weight), len(key.weight)
        if lengths != (self._dim, self._dim):
            if lengths != widths:
                raise NotFusableError("its norms are neither of single heads nor of all")
            self._whole_norms = [(slice(0, widths[0]), query), (slice(widths[0], sum(widths)), key)]
            return {}
        return {
            "query_norm": query.weight,
            "key_norm": key.weight,
            "epsilon": query.epsilon,
            "weight_offset": query.weight_offset,
        }

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | torch.Tensor,
        position_ids: torch.Tensor | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """`[1, T, D]` to `[1, T, D]`; `position_embeddings` are cosines and sines `[1, T, rotary dim]`, or of COMPLEX
        `Angles` one tensor `[1, T, rotary dim / 2]`."""
        batch = attention.current().for_layer(self.layer_idx)
        layer = batch.enter_layer(self.layer_idx)
        qkv = self.qkv_proj(hidden_states)[0]
        if self._clip is not None:
            qkv.clamp_(-self._clip, self._clip)
        for columns, norm in self._whole_norms:
            qkv[:, columns] = norm(qkv[:, columns])
        if self._value_norm is not None:
            values = qkv.view(len(qkv), -1, self._dim)[:, self._num_heads + self._num_kv_heads :]
            values.copy_(self._value_norm(values))
        cosines, sines = (part.to(qkv.dtype) for part in self._angles(position_embeddings))
        self._kernels.rope_and_write(
            qkv,
            layer,
            cosines=cosines,
            sines=sines,
            block_ids=batch.block_ids,
            offsets=batch.offsets,
            num_heads=self._num_heads,
            **self._norms,
        )
        query = qkv.view(len(qkv), -1, self._dim)[:, : self._num_heads]
        if self._growth is not None:
            positions = batch.position_tensor if position_ids is None else position_ids[0]
            query = query * self._growth_at(self._growth, positions).to(query.dtype)
        out = attention.attend(query, layer, batch, self._scores)
        return self.o_proj(out.view(1, len(qkv), -1)), None

    def _angles(
        self, told: tuple[torch.Tensor, torch.Tensor] | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines for both halves; those of no angle where the layer does not rotate."""
        cosines, sines = (told.real, told.imag) if isinstance(told, torch.Tensor) else told
        if self._family.angles == Angles.IN_PAIRS:
            cosines, sines = cosines[..., ::2], sines[..., ::2]
        if self._family.angles != Angles.TWICE:
            cosines, sines = torch.cat((cosines, cosines), dim=-1), torch.cat((sines, sines), dim=-1)
        if not self._is_rotated:
            return torch.ones_like(cosines), torch.zeros_like(sines)
        return cosines.contiguous(), sines.contiguous()

    def _growth_at(self, growth: Growth, positions: torch.Tensor) -> torch.Tensor:
        """`[T, 1, 1]` what queries at `positions` `[T]` are multiplied by."""
        steps = torch.floor((positions + growth.shift) / growth.length)
        factors: torch.Tensor = 1 + growth.rate * torch.log(1 + steps)
        return factors[:, None, None]


class FusedAttention(JoinedAttention):
    """Attention with packed weights and compiled kernels."""

    def __init__(self, attn: Any, kernels: Kernels) -> None:
        if attn.head_dim > LARGEST_HEAD:
            raise NotFusableError("its heads are larger than the kernel takes")
        super().__init__(attn, kernels, lambda norm: FusedNorm(norm, kernels))
        parts = known_projections(attn)
        self.qkv_proj = pack_layers(kernels, *parts.inputs, order=parts.order)
        self.o_proj = pack_layers(kernels, parts.out)


def known_projections(attn: Any) -> Projections:
    """The projections of an attention module. NotFusableError where there is more than them and known norms."""
    if getattr(attn, "is_kv_shared_layer", False) or getattr(attn, "store_full_length_kv", False):
        raise NotFusableError("it shares keys and values with another layer")
    parts = attention_projections(attn)
    if parts is None:
        raise NotFusableError("its heads are not those that the kernel knows")
    if hasattr(attn, "q_layernorm"):
        raise NotFusableError("its norms are not those that the kernel knows")
    return parts


def pack_layers(
    kernels: Kernels, *linears: nn.Module, order: torch.Tensor | None = None
) -> PackedLinear | KeptLinear | NativeLinear:
    """One layer that gives the outputs of `linears` side by side, or in that `order`. PackingError if it does not give
    the same."""
    kept = quantised_only(linears)
    if kept is not None:
        return KeptLinear(kept, kernels, order)
    if uses_dot(kernels, dtype_of(linears[0])):
        return NativeLinear(linears, kernels, order)
    return pack(*linears, order=order)


def dtype_of(linear: Any) -> torch.dtype:
    """The dtype that a linear layer, quantised or not, is computed in."""
    return linear.dtype if isinstance(linear, QuantisedLinear) else linear.weight.dtype


def device_of(linear: Any) -> torch.device:
    """Where a linear layer is; quantised ones are on the CPU."""
    return torch.device("cpu") if isinstance(linear, QuantisedLinear) else linear.weight.device


def norm_epsilon(norm: Any) -> float:
    """The epsilon of a norm, under either name."""
    epsilon = getattr(norm, "variance_epsilon", None)
    return float(norm.eps if epsilon is None else epsilon)


def is_attention(module: nn.Module) -> bool:
    """True for the attention modules that `FusedAttention` is made for."""
    return attention_family(module) is not None


def is_gated_mlp(module: nn.Module) -> bool:
    """True for `down(act(gate(x)) * up(x))`, by its parts; whether it is so is checked by numbers."""
    return type(module).__name__.endswith("MLP") and gated_projections(module) is not None


def is_rms_norm(module: Any) -> bool:
    """True for a norm with one weight vector and an epsilon; its variant is found by numbers."""
    known = type(module).__name__.endswith("RMSNorm")
    has_epsilon = hasattr(module, "variance_epsilon") or hasattr(module, "eps")
    return known and has_epsilon and isinstance(getattr(module, "weight", None), nn.Parameter)
