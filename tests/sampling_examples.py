"""One value for every sampling parameter: none a default, no two numbers of one range alike, the same in any float."""

from __future__ import annotations

from typing import Any

from signalbox.protocol.sampling import RANGES, TYPES

OTHERS: dict[str, Any] = {
    "stop": ["zzz"],
    "stop_token_ids": [3, 5],
    "ignore_eos": True,
    "logit_bias": {7: -100.0},
    "bad_words": ["the cat"],
    "allowed_token_ids": [3, 5, 9],
    "logprob_token_ids": [8, 7],
}


def examples() -> dict[str, Any]:
    """By field, as a message takes them."""
    return OTHERS | {name: number(index, name) for index, name in enumerate(RANGES)}


def number(index: int, name: str) -> float:
    """Of the parameter `name`, which is the `index`-th; whole ones fall, so that min_tokens, which is the second, is
    less than max_tokens."""
    low, high = RANGES[name].low, RANGES[name].high
    if TYPES[name] is float:
        return low + (high - low) * (index + 17) / 64
    return len(RANGES) - index
