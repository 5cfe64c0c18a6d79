"""Drafts of which some are right and some are wrong."""

from __future__ import annotations

import numpy as np

from worker_svc.core.drafts.drafter import I32, Drafter

LUCK = 7
"""Of ten drafts so many are right."""


class KnownDrafter(Drafter):
    """Knows what comes, and says it but for some tokens."""

    def __init__(self, wholes: list[list[int]], vocab_size: int) -> None:
        """wholes: prompts with their outputs."""
        self._wholes, self._vocab_size = wholes, vocab_size

    def propose(self, slot: int, tokens: I32, limit: int) -> I32:
        """What follows `tokens` in a sequence that it knows; nothing of others."""
        known = tokens.tolist()
        for whole in self._wholes:
            if whole[: len(known)] == known:
                guesses = np.array(whole[len(known) : len(known) + limit], np.int32)
                positions = np.arange(len(known), len(known) + len(guesses))
                is_wrong = positions * 7 % 10 >= LUCK
                return np.where(is_wrong, (guesses + 1) % self._vocab_size, guesses).astype(np.int32)
        return np.empty(0, np.int32)
