"""The automata of a worker by slot: drafts are cut by them, masks made of them, and new tokens move them on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.requests.automaton import Automaton, GrammarError
from worker_svc.core.requests.masks import MaskedRow, Masks

I32 = NDArray[np.int32]
NO_DRAFTS = np.empty(0, np.int32)


class Advance(NamedTuple):
    """What an automaton made of the new tokens of a row."""

    num_tokens: int
    """How many of the new tokens count."""
    is_complete: bool = False
    """Whether the last of them completes the form."""
    error: str = ""
    """With what the row's request fails; empty: it does not."""


class GrammarTable:
    """The automata of slots whose output follows a form."""

    def __init__(self, num_slots: int, vocab_size: int) -> None:
        self.constrained = np.zeros(num_slots, np.bool_)
        """The slot's output has to follow a form, whether its automaton is there or not."""
        self._automata: dict[int, Automaton] = {}
        self._num_words = -(-vocab_size // 32)

    def expect(self, slot: int) -> None:
        """The slot's request has a form, whose automaton is being prepared."""
        self.constrained[slot] = True

    def put(self, slot: int, automaton: Automaton) -> None:
        """Takes the slot's automaton, which is ready."""
        self._automata[slot] = automaton

    def is_ready(self, slot: int) -> bool:
        """The slot has its automaton."""
        return slot in self._automata

    def clear(self, slot: int) -> None:
        """The slot's request is gone."""
        self.constrained[slot] = False
        self._automata.pop(slot, None)

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

    def advance(self, slot: int, tokens: list[int]) -> Advance:
        """Moves the slot's automaton over `tokens`, up to the one that completes its form."""
        automaton = self._automata[slot]
        for position, token in enumerate(tokens, start=1):
            try:
                automaton.advance(token)
            except GrammarError as error:
                return Advance(0, error=str(error))
            if automaton.is_complete:
                return Advance(position, is_complete=True)
        return Advance(len(tokens))
