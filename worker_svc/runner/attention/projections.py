"""The linear layers of an attention module and of a gated MLP, whatever a family calls and joins them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from worker_svc.runner.attention.families import Family, attention_family


@dataclass(frozen=True)
class Projections:
    """What leads into and out of attention."""

    inputs: tuple[nn.Module, ...]
    """Give queries, keys and values, side by side."""
    out: nn.Module
    num_heads: int
    num_kv_heads: int
    dim: int
    """Elements of a head."""
    order: torch.Tensor | None
    """int64 `[outputs]` the row of `inputs` that is to come where, so that what is rotated is half a head apart; None:
    it is so already."""


def attention_projections(attn: Any) -> Projections | None:
    """What leads into and out of an attention module; None: its keys and values are not of one size."""
    dim, config = int(attn.head_dim), attn.config
    out: nn.Module = attn.dense if hasattr(attn, "dense") else attn.o_proj
    if hasattr(attn, "qkv_proj"):
        inputs: tuple[nn.Module, ...] = (attn.qkv_proj,)
        num_heads, num_kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
    else:
        # Gemma 4 has layers whose values are what their keys are made of.
        values = attn.k_proj if attn.v_proj is None else attn.v_proj
        inputs = (attn.q_proj, attn.k_proj, values)
        num_heads, num_kv_heads = (num_outputs(linear) // dim for linear in inputs[:2])
    if sum(map(num_outputs, inputs)) != (num_heads + 2 * num_kv_heads) * dim:
        return None
    order = None
    if (attention_family(attn) or Family()).rotates_neighbours:
        share = (config.rope_parameters or {}).get("partial_rotary_factor", 1.0)
        order = order_of_halves(num_heads + num_kv_heads, num_kv_heads, dim, int(dim * share))
    return Projections(inputs, out, num_heads, num_kv_heads, dim, order)


def order_of_halves(num_rotated: int, num_values: int, dim: int, rotary_dim: int) -> torch.Tensor:
    """int64 `[(num_rotated + num_values) * dim]` rows of heads: of the first `rotary_dim` rows of those that rotate
    the even ones and then the odd ones. Products of queries and keys are the same in any order that both have."""
    rows = torch.arange(dim)
    turned = rows[:rotary_dim]
    one = torch.cat((turned[::2], turned[1::2], rows[rotary_dim:]))
    heads = torch.arange(num_rotated + num_values)[:, None] * dim
    return torch.cat((heads[:num_rotated] + one, heads[num_rotated:] + rows)).flatten()


@dataclass(frozen=True)
class GatedProjections:
    """What a gated MLP is made of."""

    inputs: tuple[nn.Module, ...]
    """Give gates and ups, side by side."""
    down: nn.Module
    activation: nn.Module
    width: int
    """Gates, which are as many as ups."""


GATED = ({"gate_proj", "up_proj"}, {"gate_up_proj"})
"""What leads into a gated MLP, under either name."""


def gated_projections(mlp: Any) -> GatedProjections | None:
    """The parts of `down(act(gate(x)) * up(x))`; whether it is so is checked by numbers. None: it is none."""
    activation = getattr(mlp, "act_fn", getattr(mlp, "activation_fn", None))
    names = next((names for names in GATED if all(hasattr(mlp, name) for name in names)), None)
    if names is None or activation is None or not hasattr(mlp, "down_proj"):
        return None
    inputs = tuple(getattr(mlp, name) for name in sorted(names))
    outputs = sum(map(num_outputs, inputs))
    has_halves = all(num_outputs(linear) * len(inputs) == outputs for linear in inputs)
    return GatedProjections(inputs, mlp.down_proj, activation, outputs // 2) if has_halves else None


def num_outputs(linear: Any) -> int:
    """Outputs of a linear layer, quantised or not."""
    return int(linear.out_features)
