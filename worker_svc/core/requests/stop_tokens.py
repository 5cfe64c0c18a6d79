"""Which sampled tokens end a request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import I32


class StopTokens:
    """Stop tokens of all requests, counted: most sampled tokens are in nobody's set."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, params: SamplingParams) -> None:
        """Counts the stop tokens of a request that came."""
        for token in params.stop_token_ids:
            self._counts[token] = self._counts.get(token, 0) + 1

    def remove(self, params: SamplingParams) -> None:
        """Takes out the stop tokens of a request that went."""
        for token in params.stop_token_ids:
            self._counts[token] -= 1
            if not self._counts[token]:
                del self._counts[token]

    def mask(self, tokens: I32) -> NDArray[np.bool_]:
        """[N] which of `tokens` `[N]` end some request, if not necessarily their own."""
        return np.fromiter(map(self._counts.__contains__, tokens.tolist()), np.bool_, len(tokens))


def tokens_up_to_stop(params: SamplingParams, num_output: int, tokens: I32) -> int:
    """How many of the `tokens` behind `num_output` output tokens count, up to one that ends the request; 0: none
    does."""
    for position, token in enumerate(tokens.tolist(), start=1):
        if token in params.stop_token_ids and num_output + position > params.min_tokens:
            return position
    return 0
