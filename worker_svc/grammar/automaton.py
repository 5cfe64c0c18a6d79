"""An automaton over llguidance's matcher, whose work is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from signalbox.grammar.compilation import is_dead_end, is_heavy, limit_of, reason_of
from signalbox.grammar.limits import FormLimits
from worker_svc.core.requests.automaton import FormLimitError, GrammarError, NoTokenError

I32 = NDArray[np.int32]
P = ParamSpec("P")
T = TypeVar("T")


def _measured(
    method: Callable[Concatenate[MatcherAutomaton, P], T],
) -> Callable[Concatenate[MatcherAutomaton, P], T]:
    """Counts the CPU time of a method as work. The library works in the thread that calls it."""

    @wraps(method)
    def measured(automaton: MatcherAutomaton, /, *args: P.args, **kwargs: P.kwargs) -> T:
        began_ns = time.thread_time_ns()
        try:
            return method(automaton, *args, **kwargs)
        finally:
            automaton.work_ns += time.thread_time_ns() - began_ns

    return measured


class CompiledForm(NamedTuple):
    """A form at its start, twice. Never moved: automata take copies."""

    full: LLMatcher
    """Fails where a limit is reached."""
    light: LLMatcher
    """Fails at the first mask that is not light."""


class MatcherAutomaton:
    """An automaton (`worker_svc.core.requests.automaton.Automaton`) of llguidance. One thread at a time.

    It follows its output with the light matcher, and from the first mask on that is not light with the full one.
    Where that is depends on nothing but the output: not on drafts that came to nothing, nor on who followed the output
    up to here.
    """

    def __init__(
        self,
        compiled: CompiledForm,
        limits: FormLimits,
        eos_token_ids: frozenset[int],
        on_failure: Callable[[], None],
    ) -> None:
        """on_failure: called, on the thread that detects it, when the compiled form cannot be used any more."""
        self._compiled, self._limits = compiled, limits
        self._eos = eos_token_ids
        self._on_failure = on_failure
        self._matcher = compiled.light.deep_copy()
        self._output: list[int] = []
        """The tokens taken."""
        self._heavy_from: int | None = None
        """Number of output tokens ahead of the first mask that is not light; None: there was none so far. More than
        there are: it is so if `_drafts` come true."""
        self._num_masks = 0
        """Masks that have been made of this place and of those that `_drafts` lead to."""
        self._drafts: list[int] = []
        """The next tokens, if drafts come true."""
        self.work_ns = 0
        """CPU time of masks, drafts and tokens so far."""

    @property
    def is_complete(self) -> bool:
        """Nothing can follow but the end, or it has come."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def work_us(self) -> int:
        """CPU time of masks, drafts and tokens so far, in microseconds."""
        return self.work_ns // 1000

    @_measured
    def advance(self, token: int) -> None:
        """Takes the next output token. Raises GrammarError."""
        if not self._num_masks:
            self._count_mask()
        if not self._matcher.consume_token(token):
            if self._heavy_from is not None or not is_heavy(self._matcher):
                raise self._failure()
            self._go_heavy(1)
            if not self._matcher.consume_token(token):
                raise self._failure()
        is_draft = self._drafts[:1] == [token]
        self._output.append(token)
        self._drafts = self._drafts[1:] if is_draft else []
        self._num_masks = max(self._num_masks - 1, 0) if is_draft else 0
        if not is_draft:
            self._drop_drafts()

    def _count_mask(self) -> None:
        """Finds out whether the mask of this place is light: of output that an earlier attempt has made, where it
        counted as well."""
        if self._heavy_from is None and not self._matcher.is_stopped():
            self._matcher.compute_bitmask()
            if is_heavy(self._matcher):
                self._go_heavy(0)

    def _drop_drafts(self) -> None:
        """The drafts have not come true: nor is what their masks showed."""
        if self._heavy_from is not None and self._heavy_from > len(self._output):
            self._heavy_from = None
            self._restart(self._compiled.light)

    @_measured
    def legal_drafts(self, drafts: I32) -> int:
        """How many of `drafts` the form allows, up to an end-of-sequence token."""
        tokens = drafts.tolist()
        end = next((i for i, token in enumerate(tokens) if token in self._eos), len(tokens))
        num_legal = self._matcher.validate_tokens(tokens[:end])
        if not self._matcher.is_error():
            return num_legal
        self._restart(self._compiled.light if self._heavy_from is None else self._compiled.full)
        return 0

    @_measured
    def fill(self, drafts: I32, masks: NDArray[np.uint32]) -> None:
        """Fills `masks`, and is where it was afterwards. Raises GrammarError."""
        assert masks.flags.c_contiguous
        self._drop_drafts()
        path, num_made = drafts.tolist(), 0
        self._drafts, self._num_masks = path, len(masks)
        if self._heavy_from is None:
            num_made = self._fill(path, masks)
            if num_made == len(masks):
                return
            if is_heavy(self._matcher):
                self._go_heavy(num_made)
        if self._heavy_from is not None:
            num_made = self._fill(path, masks)
        if num_made == len(masks):
            return
        self._drafts, self._num_masks = path[:num_made], num_made
        failure = self._failure(num_made)
        if num_made:
            self._restart(self._compiled.light if self._heavy_from is None else self._compiled.full)
        raise failure

    def _fill(self, path: list[int], masks: NDArray[np.uint32]) -> int:
        """How many masks have been made; fewer than asked for: the matcher has failed, or may not make the next."""
        address, size = masks.ctypes.data, masks.strides[0]
        num_taken = 0
        for number in range(len(masks)):
            if self._is_spent(number):
                break
            self._matcher.unsafe_compute_mask_ptr(address + number * size, size)
            if self._matcher.is_error():
                return number
            if number < len(path):
                if not self._matcher.consume_token(path[number]):
                    return number + 1
                num_taken += 1
        else:
            number = len(masks)
        if num_taken and not self._matcher.rollback(num_taken):
            return 0
        return number

    def _is_spent(self, num_ahead: int) -> bool:
        """No mask may be made so many tokens on from here."""
        if self._heavy_from is None:
            return False
        return len(self._output) + num_ahead - self._heavy_from >= self._limits.max_heavy_masks

    def _go_heavy(self, num_ahead: int) -> None:
        """The mask so many tokens on from here is not light."""
        self._heavy_from = len(self._output) + num_ahead
        self._restart(self._compiled.full)

    def _restart(self, matcher: LLMatcher) -> None:
        """Takes another matcher, and takes it to this place."""
        self._matcher = matcher.deep_copy()
        self._matcher.consume_tokens(self._output)

    def _failure(self, num_masks: int = 0) -> GrammarError:
        """The error of the place that is `num_masks` tokens on from here."""
        place = len(self._output) + num_masks + 1
        if self._is_spent(num_masks):
            limit = f"form_max_heavy_masks = {self._limits.max_heavy_masks} tokens"
            return FormLimitError(
                f"has asked for much work for more than {limit} at output token {place}", num_masks
            )
        if not is_heavy(self._matcher):
            self._on_failure()
        limit = limit_of(self._matcher, self._limits)
        if limit:
            return FormLimitError(
                f"asks for too much work at output token {place}: more than {limit}", num_masks
            )
        if is_dead_end(self._matcher):
            return NoTokenError(num_masks=num_masks)
        return GrammarError(reason_of(self._matcher), num_masks)
