"""Checkpoints of models that also see or hear, as the language model inside them: its config and its weights' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WRAPPERS = frozenset(
    (
        *("aya_vision", "cohere2_vision", "gemma3", "gemma4", "gemma4_unified", "internvl"),
        *("kimi_k25", "llama4", "llava", "llava_next", "mistral3", "qwen2_5_vl", "qwen2_vl", "qwen3_5"),
        *("qwen3_5_moe", "qwen3_vl", "smolvlm"),
    )
)
"""model_types whose language model is one of its own, which reads text as it would alone."""
TEXT_FAMILIES = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
}
"""Language models that are another family's as long as there is only text: all parts of a position are then one."""
DEFAULT_TEXT_FAMILIES = {
    "cohere2_vision": "cohere2",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
}
"""The language model of a wrapper whose text_config does not name it."""
PREFIXES = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.text_model.", "model."),
    *((name, name) for name in ("model.layers.", "model.embed_tokens.", "model.norm.", "lm_head.", "score.")),
)
"""How names of a language model's weights begin in a wrapper's checkpoint, and in its own."""


def is_wrapper(config: Mapping[str, Any]) -> bool:
    """Whether config.json is that of a model with a language model inside."""
    return isinstance(config.get("text_config"), dict) or config.get("model_type") in TEXT_FAMILIES


def unknown_wrapper(config: Mapping[str, Any]) -> str | None:
    """The model_type of a wrapper whose language model is not known to read text as it would alone; None: it is."""
    family = config.get("model_type")
    return str(family) if is_wrapper(config) and family not in WRAPPERS | TEXT_FAMILIES.keys() else None


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json that the language model would have of its own; `config` itself where it is no wrapper."""
    if not is_wrapper(config):
        return dict(config)
    inner = config.get("text_config")
    # Older Qwen VL have the language model's fields beside the vision's.
    text = dict(inner) if isinstance(inner, dict) else dict(config)
    outer_family = str(config.get("model_type"))
    family = text.get("model_type") or DEFAULT_TEXT_FAMILIES.get(outer_family, outer_family)
    text["model_type"] = TEXT_FAMILIES.get(family, family)
    text["eos_token_id"] = _all_ids(config.get("eos_token_id"), text.get("eos_token_id"))
    if text.get("quantization_config") is None and config.get("quantization_config") is not None:
        text["quantization_config"] = config["quantization_config"]
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(text.get(key), dict):
            text[key] = _rope_of_text(text[key])
    text.pop("text_config", None)
    text.pop("vision_config", None)
    text["architectures"] = config.get("architectures")
    return text


def text_name(name: str) -> str | None:
    """The name that a weight of a wrapper has in the language model; None: it is not part of that."""
    for prefix, own in PREFIXES:
        if name.startswith(prefix):
            return own + name.removeprefix(prefix)
    return None


def _rope_of_text(rope: Mapping[str, Any]) -> dict[str, Any]:
    """A rope setting without the split of positions into time, height and width, which are one for text."""
    kept = {key: value for key, value in rope.items() if key not in ("mrope_section", "mrope_interleaved")}
    return {key: "default" if value == "mrope" else value for key, value in kept.items()}


def _all_ids(*values: Any) -> list[int] | None:
    """Each is one token, a list or None."""
    ids = [token_id for value in values for token_id in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(token_id for token_id in ids if token_id is not None)) or None
