"""A bound on what a model writes for itself: its tokens are counted, and the end is forced when they are spent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MARGIN = 64
"""Tokens before the end of a budget from which on the host looks at each token before the next one is made: more than
steps in flight and drafts can make."""


@dataclass(frozen=True)
class ReasoningBudget:
    """How long one output may reason, and by which tokens that is seen."""

    max_tokens: int
    """Most tokens between the tags, all of it together."""
    is_open: bool
    """The prompt ends within reasoning."""
    begin: tuple[int, ...]
    """Tokens that begin it, one behind the other."""
    end: tuple[int, ...]
    """Tokens that are forced; the first of them ends reasoning in any case."""
    then: frozenset[int] = frozenset()
    """What may follow a forced end; empty: anything."""


class ReasoningGuard:
    """One output, as far as it has come."""

    def __init__(self, budget: ReasoningBudget) -> None:
        self._budget = budget
        self.num_left = budget.max_tokens
        """Tokens that may still be spent."""
        self._is_open = budget.is_open
        self._num_begun = 0
        """How many tokens of the beginning the output ends with."""
        self._num_forced = 0
        """How many tokens of a forced end have come."""
        self._is_choosing = False
        """A forced end has come, and what may follow it is bounded."""

    @classmethod
    def after(cls, budget: ReasoningBudget, output: Iterable[int]) -> ReasoningGuard:
        """A guard of an output that goes on from these tokens."""
        guard = cls(budget)
        for token in output:
            guard.advance(token)
        return guard

    def copy(self) -> ReasoningGuard:
        """Another guard at the same place."""
        twin = ReasoningGuard(self._budget)
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def allowed(self) -> frozenset[int] | None:
        """What may come next; None: anything."""
        if self._is_choosing:
            return self._budget.then
        if self._num_forced or (self._is_open and self.num_left <= 0):
            return frozenset(self._budget.end[self._num_forced : self._num_forced + 1])
        return None

    @property
    def wants_mask(self) -> bool:
        """Whether the host has to see each token before the next one is made."""
        return self.num_left <= MARGIN or self._is_choosing or bool(self._num_forced)

    def advance(self, token: int) -> None:
        """Takes the next output token."""
        end, is_spent = self._budget.end, self.num_left <= 0
        self._is_choosing = False
        if self._num_forced:
            # What is not as it was to be, since a form has its own mind, is no forced end any more.
            self._num_forced = self._num_forced + 1 if token == end[self._num_forced] else 0
            if self._num_forced == len(end):
                self._num_forced, self._is_choosing = 0, bool(self._budget.then)
            self._note(token)
        elif not self._is_open:
            self._note(token)
        elif token == end[0]:
            self._is_open = False
            self._num_forced = 1 if is_spent and len(end) > 1 else 0
            self._is_choosing = is_spent and len(end) == 1 and bool(self._budget.then)
        else:
            self.num_left -= 1

    def _note(self, token: int) -> None:
        """Looks for the beginning of reasoning."""
        begin = self._budget.begin
        self._num_begun = self._num_begun + 1 if token == begin[self._num_begun] else int(token == begin[0])
        if self._num_begun == len(begin):
            self._num_begun, self._is_open = 0, True
