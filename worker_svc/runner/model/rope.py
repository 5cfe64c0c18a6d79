"""Rotations that would follow the longest position of a batch, fixed at load: no request's result depends on others."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

logger = logging.getLogger(__name__)

FIXED = "fixed"
"""A type that transformers does not know, and so leaves alone."""
SCALES = ("short_mscale", "long_mscale")
"""What cosines and sines are multiplied by, for short and for long batches."""


@torch.no_grad()
def fix_rope(model: nn.Module, num_positions: int) -> str:
    """Chooses once what transformers chooses anew for each batch, for requests of up to `num_positions`. Returns what
    was chosen, where there was a choice: a part of the model's identity (I7).

    longrope: the long factors if a request can be longer than the model's first training was, else the short ones, as
    in vLLM; so are the scales, where a model has one for each (PhiMoE). dynamic: the plain frequencies, which
    transformers uses for all positions that the model was made for.
    """
    chosen: set[str] = set()
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str):
            module.rope_type = _fixed(module, kinds, None, num_positions, chosen)  # type: ignore[assignment]
        elif isinstance(kinds, dict):
            fixed = {
                layer: _fixed(module, kind, layer, num_positions, chosen) for layer, kind in kinds.items()
            }
            module.rope_type = fixed  # type: ignore[assignment]
    return ", ".join(sorted(chosen))


def _fixed(module: Any, kind: str, layer_type: str | None, num_positions: int, chosen: set[str]) -> str:
    """The type that the module is to have from now on; its frequencies are changed in place, and told to `chosen`."""
    if "dynamic" in kind:
        return FIXED
    settings = getattr(getattr(module, "config", None), "rope_parameters", None)
    _fix_scale(settings or {}, layer_type, num_positions, chosen)
    if kind != "longrope":
        return kind
    prefix, place = ("", {}) if layer_type is None else (f"{layer_type}_", {"layer_type": layer_type})
    frequencies = getattr(module, f"{prefix}inv_freq")
    found, _ = ROPE_INIT_FUNCTIONS[kind](module.config, frequencies.device, seq_len=num_positions, **place)
    is_long = not torch.equal(found.to(frequencies), frequencies)
    logger.info(
        "longrope: the %s factors, for requests of up to %d positions, also for shorter ones, where transformers "
        "chooses by the longest of a batch; --max-model-len decides",
        "long" if is_long else "short",
        num_positions,
    )
    frequencies.copy_(found)
    chosen.add(f"longrope {'long' if is_long else 'short'}")
    return FIXED


def _fix_scale(
    settings: dict[str, Any], layer_type: str | None, num_positions: int, chosen: set[str]
) -> None:
    """Makes one of two scales, of which the model's own code would choose by the batch: whichever it chooses is the
    same."""
    rope = settings if layer_type is None else settings.get(layer_type, settings)
    scales = [rope.get(name) for name in SCALES]
    if None in scales or scales[0] == scales[1]:
        return
    is_long = num_positions > rope["original_max_position_embeddings"]
    rope.update(dict.fromkeys(SCALES, scales[is_long]))
    chosen.add(f"longrope scale {'long' if is_long else 'short'}")
