"""Multi-head latent attention (DeepSeek-V2, 2024) on a cache that keeps what keys and values are made of.

A position's keys and values of all heads are projections of one small vector, its latent; a roped part of the key is
the same for all heads. The cache keeps these two, side by side, as the only key, and the latent is its own value. The
projection to keys is applied to queries instead, and that to values to what attention gives: the same sums in another
order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from worker_svc.runner.attention.kv_cache import LayerShape
from worker_svc.runner.cpu.packed_linear import relative_error

logger = logging.getLogger(__name__)

PARTS = ("kv_a_proj_with_mqa", "kv_b_proj", "expand_kv", "kv_lora_rank", "qk_rope_head_dim")
"""What transformers' modules of this kind have, whatever the family."""
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Largest relative error of keys and values that the weights give by themselves, as a check of what they are."""


class AbsorbedProjections(nn.Module):
    """A layer's projections from latents to keys and values, as products of queries and of outputs, head by head."""

    def __init__(self, attn: Any) -> None:
        """Shares the memory of the weights of `attn.kv_b_proj`, unless these are quantised."""
        super().__init__()
        self.latent_dim, self.rope_dim = int(attn.kv_lora_rank), int(attn.qk_rope_head_dim)
        self.nope_dim, self.value_dim = int(attn.qk_nope_head_dim), int(attn.v_head_dim)
        halves = attn.kv_b_proj.weight.detach().view(-1, self.nope_dim + self.value_dim, self.latent_dim)
        self.to_keys = halves[:, : self.nope_dim]
        """[Hq, nope_dim, latent_dim]"""
        self.to_values = halves[:, self.nope_dim :]
        """[Hq, value_dim, latent_dim]"""

    @property
    def layer_shape(self) -> LayerShape:
        """What the layer keeps per position."""
        return LayerShape(1, self.latent_dim + self.rope_dim, self.latent_dim, values_in_keys=True)

    def queries(self, query: torch.Tensor) -> torch.Tensor:
        """`[T, Hq, nope_dim + rope_dim]` to `[T, Hq, latent_dim + rope_dim]`."""
        out = query.new_empty((*query.shape[:2], self.latent_dim + self.rope_dim))
        plain = query[..., : self.nope_dim].transpose(0, 1)
        out[..., : self.latent_dim] = torch.bmm(plain, self.to_keys).transpose(0, 1)
        out[..., self.latent_dim :] = query[..., self.nope_dim :]
        return out

    def outputs(self, out: torch.Tensor) -> torch.Tensor:
        """`[T, Hq, latent_dim]` to `[T, Hq, value_dim]`."""
        return torch.bmm(out.transpose(0, 1), self.to_values.transpose(1, 2)).transpose(0, 1)


def absorbed_of(attn: nn.Module) -> AbsorbedProjections | None:
    """The projections of an attention module whose cache keeps latents; None: it keeps keys and values."""
    return cast("AbsorbedProjections | None", attn._modules.get("absorbed"))


@torch.inference_mode()
def absorb_projections(model: nn.Module) -> int:
    """Lets the layers of this kind keep latents; the model's own eager attention goes on as before. Returns how many.

    A layer whose weights are not what its keys and values are made with is left, which is logged.
    """
    layers: list[Any] = [module for module in model.modules() if is_latent(module)]
    absorbed = [(attn, AbsorbedProjections(attn)) for attn in layers]
    for attn, projections in absorbed:
        if not expands_alike(attn, projections):
            logger.warning(
                "%s keeps expanded keys and values: they are not made as is known.", type(attn).__name__
            )
            return 0
    for attn, projections in absorbed:
        attn.absorbed = projections
        attn.expand_kv = keep_latents(attn, attn.expand_kv)
    return len(absorbed)


def is_latent(module: nn.Module) -> bool:
    """True for an attention module of this kind that looks at all positions."""
    known = all(hasattr(module, part) for part in PARTS)
    return known and getattr(module, "indexer", None) is None and module.kv_b_proj.bias is None  # type: ignore[union-attr]


def keep_latents(attn: Any, expand: Callable[..., Any]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Returns a callable in the place of `expand_kv`, from `[1, 1, T, dim]` latents and roped keys: the key and value
    that are kept, or what `expand` makes for the model's own attention."""

    def keep(latent: torch.Tensor, roped: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if attn.config._attn_implementation == "eager":
            return expand(latent, roped)  # type: ignore[no-any-return]
        return torch.cat((latent, roped), dim=-1), latent

    return keep


def drop_expansion(model: nn.Module) -> None:
    """Frees what only the model's own attention needs."""
    layers: list[Any] = [module for module in model.modules() if absorbed_of(module) is not None]
    for attn in layers:
        attn.kv_b_proj = None


def expands_alike(attn: Any, absorbed: AbsorbedProjections) -> bool:
    """True if the model makes keys and values of these weights."""
    generator = torch.Generator().manual_seed(absorbed.latent_dim)
    weight = absorbed.to_keys
    latent, roped = (
        torch.randn(1, 1, 3, dim, generator=generator).to(weight.device, weight.dtype)
        for dim in (absorbed.latent_dim, absorbed.rope_dim)
    )
    keys, values = attn.expand_kv(latent, roped)
    wanted = latent[0] @ absorbed.to_keys.transpose(1, 2)  # [Hq, 3, nope_dim]
    wanted_keys = torch.cat((wanted, roped[0].expand(len(wanted), -1, -1)), dim=-1)
    wanted_values = latent[0] @ absorbed.to_values.transpose(1, 2)
    return all(
        actual[0].shape == expected.shape and relative_error(actual[0], expected) <= TOLERANCES[weight.dtype]
        for actual, expected in ((keys, wanted_keys), (values, wanted_values))
    )
