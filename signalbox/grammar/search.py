"""Whether a form and the other fields of its request leave any output at all, as far as that can be told quickly."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from llguidance import LLMatcher

from signalbox.grammar.compilation import is_dead_end
from signalbox.grammar.token_rules import TokenRules

MOST_MASKS = 128
"""Places of outputs that are looked at."""
MOST_TOKENS = 24
"""Tokens of an output that are."""
MOST_BRANCHES = 32
"""Tokens that are tried at one place."""


def is_contradiction(matcher: LLMatcher, rules: TokenRules) -> bool:
    """Whether every output of the form, from its start, comes to a place where no token is allowed and none is needed
    to end. False where that takes more than a short search to see: such an output ends when it gets there."""
    allowed = bits_of(rules.allowed) if rules.allowed else -1
    paths: list[tuple[int, ...]] = [()]
    for _ in range(MOST_MASKS):
        if not paths:
            return True
        path = paths.pop()
        mask = _mask_after(matcher, path)
        if mask is None or len(path) == MOST_TOKENS:
            return False
        mask &= allowed & ~bits_of(rules.forbidden(path))
        if mask.bit_count() > MOST_BRANCHES:
            return False
        paths += [(*path, token) for token in tokens_of(mask)]
    return False


def _mask_after(matcher: LLMatcher, path: tuple[int, ...]) -> int | None:
    """What the form allows after `path`; None: it may end there, or has run into a limit."""
    there = matcher.deep_copy()
    there.consume_tokens(list(path))
    mask = 0
    if not there.is_error():
        if there.is_accepting():
            return None
        mask = int.from_bytes(there.compute_bitmask(), "little")
    return None if there.is_error() and not is_dead_end(there) else mask


def bits_of(tokens: Collection[int]) -> int:
    """A mask that has these bits."""
    bits = bytearray(max(tokens, default=0) // 8 + 1)
    for token in tokens:
        bits[token >> 3] |= 1 << (token & 7)
    return int.from_bytes(bits, "little")


def tokens_of(mask: int) -> Iterator[int]:
    """The tokens whose bits are set, of few."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
