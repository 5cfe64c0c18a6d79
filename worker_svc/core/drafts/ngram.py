"""Drafts by prompt lookup (Saxena 2023): what followed the same tokens before, in the prompt or in the output."""

from __future__ import annotations

import numpy as np

from worker_svc.core.drafts.drafter import I32, Drafter
from worker_svc.core.drafts.ngram_index import NOWHERE, NgramIndex


class NgramDrafter(Drafter):
    """An index per request, made when drafts are first wanted for it."""

    def __init__(self, shortest: int, longest: int) -> None:
        """Runs of `shortest` to `longest` tokens are looked up, the longest first."""
        self._shortest, self._longest = shortest, longest
        self._indexes: dict[int, NgramIndex] = {}

    def propose(self, slot: int, tokens: I32, limit: int) -> I32:
        """What followed the latest occurrence of the longest known end; empty if no end has occurred before."""
        index = self._indexes.get(slot)
        if index is None:
            index = self._indexes[slot] = NgramIndex(self._shortest, self._longest)
        start = index.find(tokens)
        if start == NOWHERE:
            return np.empty(0, np.int32)
        # What repeats up to the end goes on repeating: beyond the end the drafts follow themselves.
        period = len(tokens) - start
        return tokens[start + np.arange(limit) % period]

    def forget(self, slot: int) -> None:
        """The slot's request is gone, and its index with it."""
        self._indexes.pop(slot, None)
