"""The automata of a worker by slot: drafts are cut by them, masks made of them, and new tokens move them on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.requests.automaton import Automaton, GrammarError
from worker_svc.core.requests.guarded import GuardedAutomaton
from worker_svc.core.requests.mask_work import MaskWork
from worker_svc.core.requests.masks import MaskedRow, Masks
from worker_svc.core.requests.reasoning import ReasoningGuard

I32 = NDArray[np.int32]
NO_DRAFTS = np.empty(0, np.int32)


class Advance(NamedTuple):
    """What an automaton made of the new tokens of a row."""

    num_tokens: int
    """How many of the new tokens count."""
    is_complete: bool = False
    """Whether the last of them completes the form."""
    error: GrammarError | None = None
    """With what the row's request fails; None: it does not."""


class GrammarTable:
    """The automata of slots whose output follows a form."""

    def __init__(self, num_slots: int, vocab_size: int) -> None:
        self.constrained = np.zeros(num_slots, np.bool_)
        """The next token of the slot has a mask: its output follows a form, whether the automaton is there or not, or
        its reasoning is about to be closed."""
        self.followed = np.zeros(num_slots, np.bool_)
        """The slot has an automaton that takes its tokens, whether it says anything about the next one or not."""
        self._automata: dict[int, Automaton] = {}
        self._guards: dict[int, ReasoningGuard] = {}
        self._expected: set[int] = set()
        """Slots with a form."""
        self.work = MaskWork()
        self._num_words = -(-vocab_size // 32)

    def expect(self, slot: int) -> None:
        """The slot's request has a form, whose automaton is being prepared."""
        self.constrained[slot] = self.followed[slot] = True
        self._expected.add(slot)

    def put(self, slot: int, automaton: Automaton) -> None:
        """Takes the slot's automaton, which is ready."""
        guard = self._guards.get(slot)
        self._automata[slot] = automaton if guard is None else GuardedAutomaton(guard, automaton)
        self.work.begin(slot, automaton)

    def guard(self, slot: int, guard: ReasoningGuard) -> None:
        """The slot's reasoning is bounded, beside a form if one is expected."""
        self._guards[slot] = guard
        if slot not in self._expected:
            self._automata[slot] = GuardedAutomaton(guard, None)
            self.followed[slot], self.constrained[slot] = True, guard.wants_mask

    def is_ready(self, slot: int) -> bool:
        """The slot has the automaton of its form."""
        return slot in self._expected and slot in self._automata

    def clear(self, slot: int) -> None:
        """The slot's request is gone."""
        self.constrained[slot] = self.followed[slot] = False
        automaton = self._automata.pop(slot, None)
        if automaton is not None:
            self.work.leave(slot, automaton)
        self._guards.pop(slot, None)
        self._expected.discard(slot)

    def cut_drafts(self, slots: NDArray[np.int64], drafts: list[I32] | None) -> list[I32] | None:
        """`drafts` of `slots`, each up to the first that its form forbids."""
        if drafts is None or not self.constrained[slots].any():
            return drafts
        return [self._legal(slot, draft) for slot, draft in zip(slots.tolist(), drafts, strict=True)]

    def _legal(self, slot: int, draft: I32) -> I32:
        if not self.constrained[slot] or not len(draft):
            return draft
        automaton = self._automata.get(slot)
        return draft[: automaton.legal_drafts(draft)] if automaton is not None else draft[:0]

    def masks(self, slots: I32, sample_rows: I32, drafts: list[I32] | None) -> Masks | None:
        """Masks of a batch with one row per slot, `[N]` samples, and `drafts` for its first rows; None: nothing to
        mask."""
        masked = np.flatnonzero(self.constrained[slots[sample_rows]])
        if not len(masked):
            return None
        index = np.full(len(sample_rows), -1, np.int32)
        index[masked] = np.arange(len(masked))
        rows, first = np.unique(sample_rows[masked], return_index=True)
        columns = zip(rows.tolist(), slots[rows].tolist(), first.tolist(), strict=True)
        by_row = drafts or []
        masked_rows = [
            MaskedRow(row, self._automata.get(slot), by_row[row] if row < len(by_row) else NO_DRAFTS, number)
            for row, slot, number in columns
        ]
        return Masks(masked_rows, index, len(masked), self._num_words)

    def take_work(self, ended: list[int]) -> list[tuple[int, int]]:
        """What a report names of the automata's work; ended: slots whose requests end with it."""
        return self.work.take(self._automata, ended)

    def advance(self, slot: int, tokens: list[int]) -> Advance:
        """Moves the slot's automaton over `tokens`, up to the one that completes its form."""
        advance = self._advance(self._automata[slot], tokens)
        if slot in self._guards and slot not in self._expected:
            self.constrained[slot] = self._guards[slot].wants_mask
        return advance

    def _advance(self, automaton: Automaton, tokens: list[int]) -> Advance:
        for position, token in enumerate(tokens, start=1):
            try:
                automaton.advance(token)
            except GrammarError as error:
                return Advance(position - 1, error=error)
            if automaton.is_complete:
                return Advance(position, is_complete=True)
        return Advance(len(tokens))
