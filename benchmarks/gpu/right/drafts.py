"""Drafts of which some are right and some are wrong."""

from __future__ import annotations

import numpy as np

from worker_svc.core.drafts.drafter import I32, Drafter

LUCK = 7
"""Right drafts of ten."""


class KnownDrafter(Drafter):
    """Drafts the tokens of sequences that it was given, and a wrong one at some positions."""

    def __init__(self, wholes: list[list[int]], vocab_size: int, luck: int = LUCK) -> None:
        """wholes: prompts with their outputs. luck: right drafts of ten."""
        self._wholes, self._vocab_size, self._luck = wholes, vocab_size, luck

    def propose(self, slot: int, tokens: I32, limit: int) -> I32:
        """Drafts what follows `tokens` in a sequence that it was given; empty for any other."""
        known = tokens.tolist()
        for whole in self._wholes:
            if whole[: len(known)] == known:
                guesses = np.array(whole[len(known) : len(known) + limit], np.int32)
                positions = np.arange(len(known), len(known) + len(guesses))
                is_wrong = positions * 7 % 10 >= self._luck
                return np.where(is_wrong, (guesses + 1) % self._vocab_size, guesses).astype(np.int32)
        return np.empty(0, np.int32)
