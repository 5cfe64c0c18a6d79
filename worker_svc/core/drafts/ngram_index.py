"""Where short runs of tokens have occurred in one sequence, kept up to date token by token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
TOKEN_BYTES = 4
NOWHERE = -1
MOST_CANDIDATES = 16
"""Earlier occurrences that one search looks at, the latest first: a token that repeats for pages has thousands."""


class NgramIndex:
    """Occurrences of all runs of `shortest` tokens, in a chain from the latest to the first for each run."""

    def __init__(self, shortest: int, longest: int) -> None:
        self._shortest, self._longest = shortest, longest
        self._latest: dict[bytes, int] = {}
        """Position behind the latest occurrence of each run."""
        self._earlier: list[int] = [NOWHERE] * shortest
        """The position behind the occurrence before, of the same run, for each position that has been indexed."""

    def find(self, tokens: I32) -> int:
        """Position behind the longest run, of `shortest` to `longest` tokens, that ends `tokens` and has occurred
        before; among equals behind the latest. NOWHERE if there is none.

        `tokens` is the sequence of the calls before, or a continuation of it.
        """
        self._extend(tokens)
        size = len(tokens)
        if size <= self._shortest:
            return NOWHERE
        position = self._latest.get(tokens[size - self._shortest :].tobytes(), NOWHERE)
        best, best_length = NOWHERE, 0
        for _ in range(MOST_CANDIDATES):
            if position == NOWHERE:
                break
            length = self._common_length(tokens, position)
            if length > best_length:
                best, best_length = position, length
                if length == self._longest:
                    break
            position = self._earlier[position]
        return best

    def _extend(self, tokens: I32) -> None:
        """Indexes what has come, up to the run that something is known to follow."""
        first, width = len(self._earlier), self._shortest * TOKEN_BYTES
        raw = tokens[first - self._shortest :].tobytes()
        for position in range(first, len(tokens)):
            start = (position - first) * TOKEN_BYTES
            run = raw[start : start + width]
            self._earlier.append(self._latest.get(run, NOWHERE))
            self._latest[run] = position

    def _common_length(self, tokens: I32, position: int) -> int:
        """How many tokens before `position` equal those at the end, up to `longest`."""
        most = min(self._longest, position)
        same = tokens[position - most : position] == tokens[len(tokens) - most :]
        differing = np.flatnonzero(~same)
        return most if not len(differing) else most - 1 - int(differing[-1])
