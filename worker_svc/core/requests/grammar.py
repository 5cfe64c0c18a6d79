"""The automata of a worker by slot: drafts are cut by them, masks made of them, and new tokens move them on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.requests.automaton import Automaton, GrammarError
from worker_svc.core.requests.guarded import GuardedAutomaton
from worker_svc.core.requests.mask_work import MaskWork
from worker_svc.core.requests.masks import INLINE, MaskedRow, MaskJob, MaskMaker, Masks
from worker_svc.core.requests.reasoning import ReasoningGuard
from worker_svc.core.requests.restricted import RestrictedAutomaton, Restriction

I32 = NDArray[np.int32]
NO_DRAFTS = np.empty(0, np.int32)
TOKENS_AHEAD = 256
"""Tokens of a row, from its last late mask on, whose masks no step waits for behind its model (G11)."""


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

    def __init__(self, num_slots: int, vocab_size: int, ends: Iterable[int] = ()) -> None:
        """ends: tokens that forms allow where they may end."""
        self._ends = tuple(ends)
        self.constrained = np.zeros(num_slots, np.bool_)
        """The next token of the slot has a mask: its output follows a form, whether the automaton is there or not, or
        its reasoning is about to be closed."""
        self.followed = np.zeros(num_slots, np.bool_)
        """The slot has an automaton that takes its tokens, whether it says anything about the next one or not."""
        self._automata: dict[int, Automaton] = {}
        self._restrictions: dict[int, Restriction] = {}
        self._guards: dict[int, ReasoningGuard] = {}
        self._expected: set[int] = set()
        """Slots with a form."""
        self.work = MaskWork()
        self._num_words = -(-vocab_size // 32)
        self.maker: MaskMaker = INLINE
        """Makes the masks."""
        self.jobs: dict[int, MaskJob] = {}
        """The masks of each slot's next token, once they have begun and until the output moves on (G10)."""
        self.ahead: dict[int, int] = {}
        """By slot: for how many more tokens no step waits for the mask after its forward pass (G11)."""
        self._accounts: dict[int, int] = {}

    def expect(self, slot: int, account: int = 0) -> None:
        """The slot's request has a form, whose automaton is being prepared. account: see `MaskJob`."""
        self.constrained[slot] = self.followed[slot] = True
        self._expected.add(slot)
        self._accounts[slot] = account

    def put(self, slot: int, automaton: Automaton) -> None:
        """Takes the slot's automaton, which is ready, and has its first mask made."""
        guard, restricted = self._guards.get(slot), self._restricted(slot, automaton)
        assert restricted is not None
        self._automata[slot] = restricted if guard is None else GuardedAutomaton(guard, restricted)
        self.work.begin(slot, automaton)
        self.make([slot])

    def restrict(self, slot: int, restriction: Restriction) -> None:
        """Other fields of the slot's request forbid tokens, whether there is a form or not. Ahead of `guard`."""
        self._restrictions[slot] = restriction

    def _restricted(self, slot: int, automaton: Automaton | None) -> Automaton | None:
        restriction = self._restrictions.get(slot)
        return automaton if restriction is None else RestrictedAutomaton(restriction, automaton, self._ends)

    def guard(self, slot: int, guard: ReasoningGuard) -> None:
        """The slot's reasoning is bounded, beside a form if one is expected."""
        self._guards[slot] = guard
        if slot not in self._expected:
            self._automata[slot] = GuardedAutomaton(guard, self._restricted(slot, None))
            self.followed[slot], self.constrained[slot] = True, guard.wants_mask

    def is_ready(self, slot: int) -> bool:
        """The slot has the automaton of its form."""
        return slot in self._expected and slot in self._automata

    def has_first_mask(self, slot: int, tell: Callable[[], None]) -> bool:
        """Whether the mask of a slot that has its automaton and has not run is made. If not, `tell` is called when it
        is; see `MaskJob.when_done`."""
        job = self.jobs.get(slot)
        if job is None or job.is_done:
            return True
        job.when_done(tell)
        return False

    def clear(self, slot: int) -> None:
        """The slot's request is gone."""
        self.constrained[slot] = self.followed[slot] = False
        automaton = self._automata.pop(slot, None)
        if automaton is not None:
            self.work.leave(slot, automaton)
        self._accounts.pop(slot, None)
        self._guards.pop(slot, None)
        self._restrictions.pop(slot, None)
        self._expected.discard(slot)
        self.ahead.pop(slot, None)
        self.drop_masks(slot)

    # -- masks of the next tokens --

    def make(self, slots: Sequence[int]) -> None:
        """Begins with the masks of these slots' next tokens, of those that have an automaton of a form and no masks."""
        jobs = [self._job(slot, NO_DRAFTS) for slot in slots if self.is_ready(slot) and slot not in self.jobs]
        if jobs:
            self.maker.begin(jobs)

    def make_ahead(self, slots: Sequence[int]) -> None:
        """As `make`, of those whose masks no step waits for behind its model."""
        self.make([slot for slot in slots if slot in self.ahead])

    def late_among(self, slots: NDArray[np.int64]) -> list[int]:
        """Slots among `slots` that have sat out a step for their next masks, which are still being made."""
        jobs = self.jobs
        return [
            slot for slot in slots.tolist() if slot in jobs and jobs[slot].is_late and not jobs[slot].is_done
        ]

    def is_made(self, slot: int) -> bool:
        """Whether a slot that is to have a token has its mask. Waits for it as long as a step may."""
        if slot not in self._expected:
            return True
        self.make([slot])
        job = self.jobs.get(slot)
        if job is None or job.is_done:
            return True
        if not job.is_ahead:
            self.maker.wait([job])
        return job.is_done

    def sit_out(self, slots: Sequence[int]) -> None:
        """The masks of these slots are late: from now on they are made ahead."""
        for slot in slots:
            self.ahead[slot] = TOKENS_AHEAD

    def wait_for_one(self) -> None:
        """Waits until one of the masks is done that are being made, but not for long (G14)."""
        jobs = [job for job in self.jobs.values() if job.is_begun and not job.is_done]
        if jobs:
            self.maker.wait_for_one(jobs)

    def drop_masks(self, slot: int) -> None:
        """The slot's output moves on, or is gone: its masks are those of the token before."""
        job = self.jobs.pop(slot, None)
        if job is not None:
            job.is_dropped = True

    def _job(self, slot: int, drafts: I32) -> MaskJob:
        job = self.jobs.get(slot)
        if job is None:
            automaton, account = self._automata.get(slot), self._accounts.get(slot, 0)
            is_ahead = slot in self.ahead
            job = MaskJob(slot, automaton, drafts, self._num_words, account, is_ahead=is_ahead)
            self.jobs[slot] = job
            if automaton is None or slot not in self._expected:  # an error, or a bound on reasoning: no work
                INLINE.begin([job])
        return job

    # -- steps --

    def cut_drafts(self, slots: NDArray[np.int64], drafts: list[I32] | None) -> list[I32] | None:
        """`drafts` of `slots`, each up to the first that its form forbids."""
        if drafts is None or not self.constrained[slots].any():
            return drafts
        return [self._legal(slot, draft) for slot, draft in zip(slots.tolist(), drafts, strict=True)]

    def _legal(self, slot: int, draft: I32) -> I32:
        if not self.constrained[slot] or not len(draft):
            return draft
        if slot in self.jobs or slot in self.ahead:  # there are masks already, without any behind a draft
            return draft[:0]
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
        masked_rows = []
        for row, slot, number in columns:
            draft = drafts[row] if drafts is not None and row < len(drafts) else NO_DRAFTS
            masked_rows.append(MaskedRow(row, self._job(slot, draft), number, 1 + len(draft)))
        return Masks(masked_rows, index, len(masked), self._num_words, self.maker)

    def take_work(self, ended: list[int]) -> list[tuple[int, int]]:
        """What a report names of the automata's work; ended: slots whose requests end with it."""
        return self.work.take(self._automata, ended)

    def advance(self, slot: int, tokens: list[int]) -> Advance:
        """Moves the slot's automaton over `tokens`, up to the one that completes its form."""
        self.drop_masks(slot)
        self._count(slot, len(tokens))
        advance = self._advance(self._automata[slot], tokens)
        if slot in self._guards and slot not in self._expected:
            self.constrained[slot] = self._guards[slot].wants_mask
        return advance

    def _count(self, slot: int, num_tokens: int) -> None:
        if slot in self.ahead:
            self.ahead[slot] -= num_tokens
            if self.ahead[slot] <= 0:
                del self.ahead[slot]

    def _advance(self, automaton: Automaton, tokens: list[int]) -> Advance:
        for position, token in enumerate(tokens, start=1):
            try:
                automaton.advance(token)
            except GrammarError as error:
                return Advance(position - 1, error=error)
            if automaton.is_complete:
                return Advance(position, is_complete=True)
        return Advance(len(tokens))
