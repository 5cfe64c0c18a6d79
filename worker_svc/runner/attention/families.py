"""How the attention of each family departs from Llama's: one table for the fused modules of CPU and GPU."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch import nn


class Window(Enum):
    """Where an attention module has its sliding window."""

    LAYER = "the module's own attribute; None or missing: there is none"
    CONFIG = "the configuration's, the same for all layers"
    SLIDING = "the module's, where it `is_sliding`"


class Rotated(Enum):
    """Which layers rotate queries and keys."""

    ALL = "all"
    CHOSEN = "those that `use_rope`"
    SLIDING = "those that slide, and all where none does"
    WINDOWED = "those with a window of their own"


class Angles(Enum):
    """How cosines and sines are told to an attention module."""

    TWICE = "for the first half of a head's elements, and again for the second"
    ONCE = "for both halves at once"
    IN_PAIRS = "for two neighbours, and so on"
    COMPLEX = "once for both, as one complex number"


@dataclass(frozen=True)
class Family:
    """Attention that projects, normalizes if it has norms, rotates halves, attends, projects back, but for this."""

    window: Window = Window.LAYER
    rotated: Rotated = Rotated.ALL
    has_sinks: bool = False
    """Each head has a position without value, `sinks`."""
    angles: Angles = Angles.TWICE
    rotates_neighbours: bool = False
    """Pairs that are rotated are neighbours, not elements half a head apart."""
    is_clipped: bool = False
    """Queries, keys and values are cut off at the configuration's `clip_qkv`, if that has one."""
    is_scaled_by_position: bool = False
    """Queries grow with their position, by the rope's `llama_4_scaling_beta`."""
    is_llama4: bool = False
    """Some layers attend within chunks; the others do not rotate, and their queries grow with their position. Queries
    and keys that were rotated are divided by their root mean square."""
    one_call: bool = False
    """A layer is norm, attention, sum, norm, gated MLP, sum: all of them can be computed in one call."""


FAMILIES = {
    "Apertus": Family(),
    "Arcee": Family(),
    "Cohere": Family(rotates_neighbours=True, angles=Angles.IN_PAIRS),
    "Cohere2": Family(rotates_neighbours=True, angles=Angles.IN_PAIRS, rotated=Rotated.WINDOWED),
    "Ernie4_5": Family(rotates_neighbours=True, one_call=True),
    "Exaone4": Family(window=Window.SLIDING, rotated=Rotated.SLIDING),
    "Gemma": Family(),
    "Gemma2": Family(),
    "Gemma3": Family(),
    "Gemma4Text": Family(),
    "Gemma4UnifiedText": Family(),
    "Glm": Family(rotates_neighbours=True, one_call=True),
    "Glm4": Family(rotates_neighbours=True),
    "Glm4Moe": Family(),
    "GptOss": Family(has_sinks=True, angles=Angles.ONCE),
    "Granite": Family(),
    "GraniteMoe": Family(),
    "Llama": Family(one_call=True),
    "Llama4Text": Family(
        rotates_neighbours=True, angles=Angles.COMPLEX, rotated=Rotated.CHOSEN, is_llama4=True
    ),
    "MiniMaxM2": Family(),
    "Ministral": Family(one_call=True),
    "Ministral3": Family(window=Window.CONFIG, is_scaled_by_position=True),
    "Mistral": Family(window=Window.CONFIG, one_call=True),
    "Mixtral": Family(window=Window.CONFIG),
    "Nemotron": Family(),
    "Olmo": Family(is_clipped=True),
    "Olmo2": Family(),
    "Olmo3": Family(),
    "Phi": Family(),
    "Phi3": Family(window=Window.CONFIG, one_call=True),
    "Qwen2": Family(one_call=True),
    "Qwen2Moe": Family(),
    "Qwen3": Family(one_call=True),
    "Qwen3Moe": Family(),
    "SeedOss": Family(one_call=True),
    "SmolLM3": Family(rotated=Rotated.CHOSEN),
    "StableLm": Family(),
    "Starcoder2": Family(window=Window.CONFIG),
}
"""By how the names of transformers' classes begin. Norms of heads or of all heads at once are told by their sizes."""


def attention_family(module: nn.Module) -> Family | None:
    """The family whose attention `module` is; None: it is no attention, or one that is not known."""
    name = type(module).__name__
    return FAMILIES.get(name.removesuffix("Attention")) if name.endswith("Attention") else None


def is_one_call_layer(module: nn.Module) -> bool:
    """Whether `module` is a decoder layer of which all can be computed in one call."""
    name = type(module).__name__
    family = FAMILIES.get(name.removesuffix("DecoderLayer")) if name.endswith("DecoderLayer") else None
    return family is not None and family.one_call


def window_of(attn: Any) -> int | None:
    """The sliding window of an attention module, as it would pass it to an attention function; None: there is none."""
    family = attention_family(attn) or Family()
    if family.window == Window.SLIDING and not attn.is_sliding:
        return None
    return getattr(attn.config if family.window == Window.CONFIG else attn, "sliding_window", None)


def chunk_of(attn: Any) -> int | None:
    """The chunks of so many positions that an attention module keeps to; None: it looks at all before a query."""
    family = attention_family(attn) or Family()
    if not family.is_llama4 or attn.config.layer_types[attn.layer_idx] != "chunked_attention":
        return None
    return int(attn.config.attention_chunk_size)


@dataclass(frozen=True)
class Growth:
    """What queries are multiplied by: 1 + rate * log(1 + floor((position + shift) / length))."""

    rate: float
    length: float
    shift: int = 0


def growth_of(attn: Any) -> Growth | None:
    """How queries of an attention module grow with their position; None: they do not."""
    family = attention_family(attn) or Family()
    if family.is_scaled_by_position:
        rope = attn.config.rope_parameters
        return Growth(rope["llama_4_scaling_beta"], rope["original_max_position_embeddings"])
    if family.is_llama4 and attn.attn_temperature_tuning and not attn.use_rope:
        return Growth(attn.attn_scale, attn.floor_scale, shift=1)
    return None


def is_rotated(attn: Any) -> bool:
    """Whether an attention module rotates queries and keys."""
    family = attention_family(attn) or Family()
    if family.rotated == Rotated.CHOSEN:
        return bool(attn.use_rope)
    if family.rotated == Rotated.SLIDING:
        return attn.sliding_window is None or bool(attn.is_sliding)
    if family.rotated == Rotated.WINDOWED:
        return attn.sliding_window is not None
    return True
