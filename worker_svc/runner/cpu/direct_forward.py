"""A model's forward on the paged cache, by the shortest way there is: what a small model computes takes less time than
transformers' code around it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.model.head import ModelHead
from worker_svc.runner.model.loading import LoadedModel


class Forwarded(NamedTuple):
    """What a forward makes besides KV."""

    logits: torch.Tensor
    """[N, V] of the wanted query tokens."""
    states: torch.Tensor
    """[R, H] hidden states of the last layer, of the query tokens that are looked at."""


class Forward(Protocol):
    """A model's forward, to be called while a batch is `running`."""

    def __call__(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        wanted: torch.Tensor,
        looked_at: torch.Tensor | None = None,
    ) -> Forwarded:
        """Token ids `[T]`, positions `[T]`, wanted query tokens `[N]`; `looked_at` `[R]`, None: the wanted ones."""


MOST_POSITIONS = 1 << 18
"""Angles of all positions are kept; those of more would take too much memory."""


def forward_of(model: LoadedModel, num_positions: int) -> Forward:
    """The forward of `model`, for positions below `num_positions`."""
    layers = getattr(getattr(model.module, "model", None), "layers", None)
    is_fused = layers is not None and len(layers) == 1 and isinstance(layers[0], FusedDecoder)
    if is_fused and num_positions <= MOST_POSITIONS:
        return DirectForward(model, num_positions)
    return ModuleForward(model.module)


class ModuleForward:
    """The forward by transformers' own code."""

    def __init__(self, module: Any) -> None:
        self._module, self._head = module, ModelHead.of(module)

    def __call__(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        wanted: torch.Tensor,
        looked_at: torch.Tensor | None = None,
    ) -> Forwarded:
        """Logits of the query tokens `wanted`, and hidden states of those `looked_at` (None: of `wanted`)."""
        if looked_at is None:
            looked_at = wanted
        if self._head is None:  # hidden states cannot be had: logits tell as much
            logits = self._logits(token_ids, positions, torch.cat((wanted, looked_at)))
            return Forwarded(logits[: len(wanted)], logits[len(wanted) :])
        with self._head.capturing() as captured:
            logits = self._logits(token_ids, positions, wanted)
        return Forwarded(logits, captured.hidden[looked_at])

    def all(self, token_ids: torch.Tensor, positions: torch.Tensor) -> Forwarded:
        """Logits and hidden states of all query tokens."""
        if self._head is None:
            logits = self._logits(token_ids, positions, 0)
            return Forwarded(logits, logits)
        with self._head.capturing() as captured:
            logits = self._logits(token_ids, positions, 0)
        return Forwarded(logits, captured.hidden)

    def _logits(
        self, token_ids: torch.Tensor, positions: torch.Tensor, keep: torch.Tensor | int
    ) -> torch.Tensor:
        output = self._module(
            input_ids=token_ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=keep
        )
        logits: torch.Tensor = output.logits[0]
        return logits


class DirectForward:
    """Embedding, all layers in one native call, norm and head: for the families that `FusedDecoder` knows."""

    def __init__(self, model: LoadedModel, num_positions: int) -> None:
        body = model.module.model
        self._embed, self._layers, self._norm = body.embed_tokens, body.layers[0], body.norm
        self._head = model.module.lm_head
        positions = torch.arange(num_positions, device=model.device)[None]
        example = torch.empty(0, dtype=model.dtype, device=model.device)
        angles = body.rotary_emb(example, positions)
        self._cosines, self._sines = (part[0].to(model.dtype) for part in angles)

    def __call__(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        wanted: torch.Tensor,
        looked_at: torch.Tensor | None = None,
    ) -> Forwarded:
        """Logits of the query tokens `wanted`, and hidden states of those `looked_at` (None: of `wanted`)."""
        angles = (self._cosines[positions][None], self._sines[positions][None])
        hidden = self._layers(self._embed(token_ids)[None], angles)
        states = hidden[0, wanted]
        return Forwarded(
            self._head(self._norm(states)), states if looked_at is None else hidden[0, looked_at]
        )
