"""One output that follows a form, with tokens drawn at random from its masks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from signalbox.grammar.vetter import pick
from worker_svc.core.requests.automaton import GrammarError
from worker_svc.grammar.automaton import MatcherAutomaton

NO_DRAFTS = np.empty(0, np.int32)


class Followed(NamedTuple):
    """An output, and what it took."""

    tokens: list[int]
    error: str
    """Why it ended; empty: the form is fulfilled, or it had its length."""
    worst_s: float
    """CPU seconds of the dearest token, its mask and its being taken."""
    total_s: float
    """CPU seconds of all tokens."""


def follow(automaton: MatcherAutomaton, vocab_size: int, seed: int, num_tokens: int) -> Followed:
    """Takes tokens until the form is fulfilled, or no mask can be had, or there are `num_tokens`."""
    numbers, tokens, costs = random.Random(seed), list[int](), [0.0]
    error = ""
    while len(tokens) < num_tokens and not automaton.is_complete and not error:
        before = time.thread_time()
        error = _take(automaton, vocab_size, lambda mask: pick(mask, numbers), tokens)
        costs.append(time.thread_time() - before)
    return Followed(tokens, error, max(costs), sum(costs))


def _take(
    automaton: MatcherAutomaton, vocab_size: int, choose: Callable[[int], int], tokens: list[int]
) -> str:
    masks = np.zeros((1, -(-vocab_size // 32)), np.uint32)
    try:
        automaton.fill(NO_DRAFTS, masks)
        mask = int.from_bytes(masks.tobytes(), "little")
        if not mask:
            return "no token is allowed"
        token = choose(mask)
        automaton.advance(token)
    except GrammarError as error:
        return str(error)
    tokens.append(token)
    return ""
