"""An automaton of an output in which allowed tokens, bad words and min_tokens leave some tokens out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.requests.automaton import Automaton, FormEndError, GrammarError, NoTokenError
from worker_svc.core.requests.sampling import SamplingParams

I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]


class Restriction:
    """Which tokens the fields of one request leave to one output, as far as it has come."""

    def __init__(self, params: SamplingParams) -> None:
        self.fields = params.rules.fields + ("min_tokens",) * (params.min_tokens > 0)
        self._params = params
        self._allowed: U32 | None = None
        """[w] as masks, up to the last allowed token."""
        if params.allowed_token_ids:
            bits = np.zeros((params.allowed_token_ids[-1] // 32 + 1) * 32, np.uint8)
            bits[params.allowed] = 1
            self._allowed = np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)
        self._tail: list[int] = []
        """The last tokens, as many as decide what is bad."""
        self._num_tokens = 0

    @classmethod
    def after(cls, params: SamplingParams, output: Iterable[int]) -> Restriction:
        """The restriction of an output that goes on from these tokens."""
        restriction = cls(params)
        for token in output:
            restriction.advance(token)
        return restriction

    def advance(self, token: int) -> None:
        """Takes the next output token."""
        self._num_tokens += 1
        if longest := self._params.rules.longest:
            self._tail = [*self._tail, token][-longest:]

    def narrow(self, mask: U32, drafts: list[int]) -> None:
        """Leaves of `mask` `[W]`, that of the place after `drafts`, what may come there."""
        if self._allowed is not None:
            width = min(len(mask), len(self._allowed))
            mask[:width] &= self._allowed[:width]
            mask[width:] = 0
        for token in self._params.forbidden([*self._tail, *drafts], self._num_tokens + len(drafts)):
            if token < 32 * len(mask):
                mask[token // 32] &= ~np.uint32(1 << token % 32)


class RestrictedAutomaton:
    """Both have to allow a token. Where the form may end and the fields leave no other token, the output ends."""

    def __init__(self, restriction: Restriction, form: Automaton | None, ends: Iterable[int]) -> None:
        """form: has taken the prior output; None: there is no form. ends: tokens that a form allows where it may
        end."""
        self._restriction, self._form, self._ends = restriction, form, tuple(ends)

    @property
    def is_complete(self) -> bool:
        """The form is fulfilled, and nothing can follow but the end."""
        return self._form is not None and self._form.is_complete

    @property
    def work_us(self) -> int:
        """What the form's automaton has worked, in microseconds; leaving tokens out costs next to nothing."""
        return 0 if self._form is None else self._form.work_us

    def advance(self, token: int) -> None:
        """Takes the next output token. Raises GrammarError when the form does not allow it."""
        if self._form is not None:
            self._form.advance(token)
        self._restriction.advance(token)

    def legal_drafts(self, drafts: I32) -> int:
        """How many of `drafts`, from the first on, the form allows; the sampler chooses none that the fields forbid."""
        return len(drafts) if self._form is None else self._form.legal_drafts(drafts)

    def fill(self, drafts: I32, masks: U32) -> None:
        """Fills `masks`: what may come next, and after each of `drafts`. Raises GrammarError."""
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
        path = drafts.tolist()
        for number, mask in enumerate(masks):
            may_end = any(mask[token // 32] >> np.uint32(token % 32) & 1 for token in self._ends)
            had_token = bool(mask.any())
            self._restriction.narrow(mask, path[:number])
            if had_token and not mask.any():
                raise FormEndError(number) if may_end else NoTokenError(self._restriction.fields, number)
