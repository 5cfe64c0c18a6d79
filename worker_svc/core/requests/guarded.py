"""An automaton of an output whose reasoning is bounded, and which may follow a form besides."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.requests.automaton import Automaton, GrammarError
from worker_svc.core.requests.reasoning import ReasoningGuard

I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]


class GuardedAutomaton:
    """Both have to allow a token. Where a form allows none that closes the reasoning, within a character for example,
    it goes on as the form wants until it does."""

    def __init__(self, guard: ReasoningGuard, form: Automaton | None) -> None:
        """form: has taken the prior output; None: there is no form."""
        self._guard, self._form = guard, form

    @property
    def is_complete(self) -> bool:
        """The form is fulfilled, and nothing can follow but the end."""
        return self._form is not None and self._form.is_complete

    @property
    def work_us(self) -> int:
        """What the form's automaton has worked, in microseconds; bounded reasoning costs next to nothing."""
        return 0 if self._form is None else self._form.work_us

    def advance(self, token: int) -> None:
        """Takes the next output token. Raises GrammarError when the form does not allow it."""
        if self._form is not None:
            self._form.advance(token)
        self._guard.advance(token)

    def legal_drafts(self, drafts: I32) -> int:
        """How many of `drafts`, from the first on, may come."""
        guard = self._guard.copy()
        for count, token in enumerate(drafts.tolist()):
            allowed = guard.allowed
            if allowed is not None and token not in allowed:
                drafts = drafts[:count]
                break
            guard.advance(token)
        return len(drafts) if self._form is None else self._form.legal_drafts(drafts)

    def fill(self, drafts: I32, masks: U32) -> None:
        """Fills `masks`: what may come next, and behind each of `drafts`. Raises GrammarError."""
        if self._form is None:
            masks[:] = 0xFFFFFFFF
        else:
            try:
                self._form.fill(drafts, masks)
            except GrammarError as error:
                self._narrow(drafts, masks[: error.num_masks])
                raise
        self._narrow(drafts, masks)

    def _narrow(self, drafts: I32, masks: U32) -> None:
        """Leaves of the form's masks, of as many as there are, what the guard allows."""
        guard = self._guard.copy()
        for row, token in zip(masks, [*drafts.tolist(), None], strict=False):
            if guard.allowed is not None:
                narrow(row, guard.allowed)
            if token is not None:
                guard.advance(token)


def narrow(mask: U32, allowed: frozenset[int]) -> None:
    """Leaves of `mask` what is allowed, unless nothing would be left."""
    both = np.zeros_like(mask)
    for token in allowed:
        both[token // 32] |= mask[token // 32] & np.uint32(1 << token % 32)
    if both.any():
        mask[:] = both
