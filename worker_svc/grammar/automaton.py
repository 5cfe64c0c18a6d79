"""An automaton over llguidance's matcher."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from signalbox.grammar.compilation import reason_of
from worker_svc.core.requests.automaton import GrammarError

I32 = NDArray[np.int32]


class MatcherAutomaton:
    """An automaton (`worker_svc.core.requests.grammar.Automaton`) of llguidance. One thread at a time."""

    def __init__(
        self, matcher: LLMatcher, eos_token_ids: frozenset[int], on_failure: Callable[[], None]
    ) -> None:
        """matcher: at the start of its grammar; it is taken over. on_failure: told that it is of no use any more, in
        whatever thread that shows."""
        self._matcher = matcher
        self._eos = eos_token_ids
        self._on_failure = on_failure

    @property
    def is_complete(self) -> bool:
        """Nothing can follow but the end, or it has come."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def advance(self, token: int) -> None:
        """Takes the next output token."""
        if not self._matcher.consume_token(token):
            raise self._failure()

    def legal_drafts(self, drafts: I32) -> int:
        """How many of `drafts` the form allows, up to an end-of-sequence token."""
        tokens = drafts.tolist()
        end = next((i for i, token in enumerate(tokens) if token in self._eos), len(tokens))
        return self._matcher.validate_tokens(tokens[:end])

    def fill(self, drafts: I32, masks: NDArray[np.uint32]) -> None:
        """Fills `masks`, and is where it was afterwards."""
        assert masks.flags.c_contiguous
        address, size = masks.ctypes.data, masks.strides[0]
        taken = 0
        try:
            for draft in drafts.tolist():
                self._fill(address + taken * size, size)
                self.advance(draft)
                taken += 1
            self._fill(address + taken * size, size)
        finally:
            if taken and not self._matcher.rollback(taken):
                raise self._failure()

    def _fill(self, address: int, size: int) -> None:
        self._matcher.unsafe_compute_mask_ptr(address, size)
        if self._matcher.is_error():
            raise self._failure()

    def _failure(self) -> GrammarError:
        self._on_failure()
        return GrammarError(reason_of(self._matcher))
