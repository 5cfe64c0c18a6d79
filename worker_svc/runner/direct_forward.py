"""A model's forward on the paged cache, by the shortest way there is: what a small model computes takes less time than
transformers' code around it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from worker_svc.runner.decoder import FusedDecoder
from worker_svc.runner.model import LoadedModel

Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Token ids `[T]`, positions `[T]` and the wanted query tokens `[N]`, to logits `[N, V]`."""

MOST_POSITIONS = 1 << 18
"""Angles of all positions are kept; those of more would take too much memory."""


def forward_of(model: LoadedModel, num_positions: int) -> Forward:
    """The forward of `model`, for positions below `num_positions`; to be called while a batch is `running`."""
    layers = getattr(getattr(model.module, "model", None), "layers", None)
    is_fused = layers is not None and len(layers) == 1 and isinstance(layers[0], FusedDecoder)
    if is_fused and num_positions <= MOST_POSITIONS:
        return DirectForward(model, num_positions)
    return module_forward(model)


def module_forward(model: LoadedModel) -> Forward:
    """The forward by transformers' own code."""

    def forward(token_ids: torch.Tensor, positions: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        output = model.module(
            input_ids=token_ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=wanted
        )
        logits: torch.Tensor = output.logits[0]
        return logits

    return forward


class DirectForward:
    """Embedding, all layers in one native call, norm and head: for the families that `FusedDecoder` knows."""

    def __init__(self, model: LoadedModel, num_positions: int) -> None:
        body = model.module.model
        self._embed, self._layers, self._norm = body.embed_tokens, body.layers[0], body.norm
        self._head = model.module.lm_head
        positions = torch.arange(num_positions, device=model.device)[None]
        example = torch.empty(0, dtype=model.dtype, device=model.device)
        self._cosines, self._sines = (part[0] for part in body.rotary_emb(example, positions))

    def __call__(
        self, token_ids: torch.Tensor, positions: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        """See `Forward`."""
        angles = (self._cosines[positions][None], self._sines[positions][None])
        hidden = self._layers(self._embed(token_ids)[None], angles)
        logits: torch.Tensor = self._head(self._norm(hidden[0, wanted]))
        return logits
