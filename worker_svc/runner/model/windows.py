"""Checks that each layer's queries see on the paged cache what transformers' masks and the config let them see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from worker_svc.runner.attention.visibility import Visibility
from worker_svc.runner.errors import ModelLoadError

WINDOW_KEYS = ("sliding_window", "sliding_window_size", "attention_window_size", "attention_chunk_size")
"""Keys of a config that say how many positions queries of some layers see."""
SLIDING, CHUNKED = "sliding_attention", "chunked_attention"
WINDOWED = (SLIDING, CHUNKED)
"""Layer types whose queries do not see all positions."""
MOST_POSITIONS = 1 << 18
"""Most positions that masks are evaluated at, so that it takes milliseconds."""


def check_visibility(config: Any, seen: Mapping[int, Visibility], num_positions: int) -> None:
    """ModelLoadError where a layer would see other positions than by its mask, or where the config names a window that
    no layer has; both for requests of up to `num_positions`."""
    family, last = config.model_type, min(num_positions, MOST_POSITIONS) - 1
    by_rule: dict[tuple[int, int], int | None] = {}  # layers share masks
    for number, layer in sorted(seen.items()):
        for position in (last, last // 2):
            key = id(layer.rule), position
            if key not in by_rule:
                by_rule[key] = layer.first_seen_by_mask(position)
            by_mask = by_rule[key]
            if by_mask is not None and by_mask != layer.first_seen(position):
                raise ModelLoadError(_other_positions(config, number, layer, position, by_mask))
    name, reach = _named_window(config, num_positions)
    if not seen or name is None or _has_window(config, seen):
        return
    raise ModelLoadError(
        f"{name} {reach} of config.json is of no layer of model_type {family!r}: queries would see all positions. "
        f"It is served with a max_model_len of at most {reach}."
    )


def _other_positions(config: Any, number: int, layer: Visibility, position: int, by_mask: int) -> str:
    """The error message for a layer whose mask and paged attention let a query attend to different positions."""
    family, own = config.model_type, layer.first_seen(position)
    seen = f"positions from {by_mask} on" if by_mask >= 0 else "some of the positions before it"
    key, reach = _named_window(config, position + 1)
    named = "" if key is None else f" ({key} is {reach})"
    return (
        f"model_type {family!r}: by its mask a query of layer {number} at position {position} sees {seen}{named}, but "
        f"its attention function is told of no such limit and would see those from {own} on."
    )


def _named_window(config: Any, num_positions: int) -> tuple[str | None, int]:
    """The key of the shortest window or chunk that the config names and requests can be longer than; None: no key."""
    if getattr(config, "use_sliding_window", None) is False:
        return None, 0
    found = [(reach, key) for key in WINDOW_KEYS for reach in _numbers(getattr(config, key, None))]
    reach, key = min((each for each in found if each[0] < num_positions), default=(0, None))
    return key, reach


def named_windows(config: Any) -> list[int]:
    """The windows and chunks that the config names, ascending."""
    return sorted({reach for key in WINDOW_KEYS for reach in _numbers(getattr(config, key, None))})


def _numbers(value: Any) -> Iterable[int]:
    """The positive whole numbers of a setting for all layers, or for each."""
    values = value if isinstance(value, list | tuple) else [value]
    return [each for each in values if type(each) is int and each > 0]


def _has_window(config: Any, seen: Mapping[int, Visibility]) -> bool:
    """Whether those layers have a window or chunk that are said to: by their types, where the config has these, else
    any."""
    kinds = getattr(config, "layer_types", None)
    has = {number for number, layer in seen.items() if layer.window is not None or layer.chunk is not None}
    if not isinstance(kinds, list | tuple):
        return bool(has)
    return all(number in has for number in seen if number < len(kinds) and kinds[number] in WINDOWED)
