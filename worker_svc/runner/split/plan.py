"""What of a model is divided among ranks, by the plans that transformers' families have, and ours for some that have
none. Families that are not named are refused: a wrong cut would show in its outputs alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.split import shares
from worker_svc.runner.split.shares import HeadShares, Share

WIDTHS = (
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "intermediate_size_mlp",
)
"""Settings of a config that say how wide its MLPs are."""
WHOLE_ATTENTION = frozenset(
    ("deepseek_v2", "deepseek_v3", "gemma4_text", "minimax_m2", "olmo2", "olmo3", "stablelm")
)
"""Families whose attention each rank computes as a whole: norms over all heads, latents that all heads share, or heads
that are not the same in all layers."""
DIVIDED = (
    frozenset(
        (
            *(
                "arcee",
                "cohere",
                "cohere2",
                "ernie4_5",
                "exaone4",
                "gemma",
                "gemma2",
                "gemma3_text",
                "glm4_moe",
            ),
            *("gpt_oss", "granite", "llama", "llama4_text", "ministral", "ministral3", "mistral"),
            *(
                "mixtral",
                "nemotron",
                "olmo",
                "phi3",
                "qwen2",
                "qwen2_moe",
                "qwen3",
                "qwen3_moe",
                "qwen3_5_text",
            ),
            *("qwen3_5_moe_text", "qwen3_next", "seed_oss", "smollm3", "starcoder2"),
        )
    )
    | WHOLE_ATTENTION
)
"""Families that are compared with one rank. Recurrent layers are computed by each rank as a whole."""


@dataclass(frozen=True)
class SplitPlan:
    """The part of one rank of `size`."""

    rank: int
    size: int
    heads: HeadShares | None
    """None: each rank computes attention as a whole."""
    widths: Mapping[int, Share] = field(default_factory=dict)
    """The share of MLPs by how wide they are as a whole."""

    @property
    def is_first(self) -> bool:
        """What is added once is added by this rank."""
        return self.rank == 0

    def width(self, length: int) -> Share | None:
        """The share of an MLP of that width, or of several of one width as one; None: it is none."""
        if length in self.widths:
            return self.widths[length]
        for total in sorted(self.widths, reverse=True):
            if length % total == 0:
                return self.widths[total]
        return None


def plan_of(config: Any, rank: int, size: int) -> SplitPlan:
    """The plan for a text model's config. ModelLoadError where it cannot be divided so."""
    family = str(config.model_type)
    if family not in DIVIDED:
        raise ModelLoadError(f"tensor_parallel: model_type {family!r} is not served by several ranks.")
    widths = {}
    for name in WIDTHS:
        total = getattr(config, name, None)
        if not total:
            continue
        share = shares.width(int(total), rank, size)
        if share is None:
            raise ModelLoadError(f"tensor_parallel: {name} {total} cannot be divided by {size}.")
        widths[int(total)] = share
    return SplitPlan(rank, size, _heads(config, rank, size), widths)


def _heads(config: Any, rank: int, size: int) -> HeadShares | None:
    if config.model_type in WHOLE_ATTENTION:
        return None
    num_heads = int(config.num_attention_heads)
    return shares.heads(num_heads, int(config.num_key_value_heads or num_heads), rank, size)


def localise(config: Any, plan: SplitPlan) -> None:
    """Makes a config that of the rank's own part, so that transformers makes modules of its shapes."""
    for name in WIDTHS:
        total = getattr(config, name, None)
        if total:
            setattr(config, name, plan.widths[int(total)].size)
    if plan.heads is None:
        return
    if getattr(config, "head_dim", None) is None:
        config.head_dim = int(config.hidden_size) // int(config.num_attention_heads)
    config.num_attention_heads = plan.heads.queries.size
    config.num_key_value_heads = plan.heads.keys.size
