"""Forms of the simulated ring: which tokens may come depends on how many have come, so that an automaton that is out of
step shows in the tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from signalbox.grammar.form import Form, FormError
from worker_svc.core.requests.automaton import FormLimitError, GrammarError

I32 = NDArray[np.int32]
MASK_US, TOKEN_US = 700, 90
"""What they take: a report names a slot every second step or so."""


@dataclass(frozen=True)
class Rule:
    """Output position i holds a token that is i modulo `modulus`, and `length` tokens are the end."""

    modulus: int
    length: int
    most_masks: int = 0
    """The output fails at the token whose mask is one more; 0: there is no limit."""

    @property
    def text(self) -> str:
        """As it travels, in place of a regular expression."""
        return f"{self.modulus}:{self.length}:{self.most_masks}"


def read_rule(form: Form) -> Rule:
    """Raises FormError for what is none."""
    numbers = form.text.split(":")
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        raise FormError("is no rule")
    return Rule(*map(int, numbers))


def first_allowed(rule: Rule, position: int, token: int, vocab_size: int) -> int:
    """`token`, or the first one behind it that may stand at an output position."""
    while token % rule.modulus != position % rule.modulus:
        token = (token + 1) % vocab_size
    return token


class RuleAutomaton:
    """See `worker_svc.core.requests.grammar.Automaton`."""

    def __init__(self, rule: Rule, vocab_size: int) -> None:
        self._rule, self._vocab_size, self._position = rule, vocab_size, 0
        self.work_us = 0
        """As if a mask took MASK_US, and a token TOKEN_US."""
        self.replay_us: int | None = None
        """What it had worked when its first mask was asked for: of output of earlier attempts. None: none was."""
        self.num_counted = 0
        """Masks of the places behind."""
        self.is_taken = False
        """A job has it that is not done: nobody else may touch it (G10)."""

    @property
    def is_complete(self) -> bool:
        """The output has its length."""
        return self._position >= self._rule.length

    def advance(self, token: int) -> None:
        """Takes the next output token."""
        assert not self.is_taken, "a token is taken while a mask is being made"
        if self.is_complete or token % self._rule.modulus != self._position % self._rule.modulus:
            raise GrammarError(f"token {token} at position {self._position} breaks {self._rule}")
        self._position += 1
        self.work_us += TOKEN_US
        self.num_counted += 1

    def legal_drafts(self, drafts: I32) -> int:
        """How many of `drafts` may come."""
        assert not self.is_taken, "drafts are looked at while a mask is being made"
        count = 0
        for token in drafts.tolist():
            position = self._position + count
            if position >= self._rule.length or token % self._rule.modulus != position % self._rule.modulus:
                break
            count += 1
        return count

    def fill(self, drafts: I32, masks: NDArray[np.uint32]) -> None:
        """Fills `masks` for the next positions."""
        if self.replay_us is None:
            self.replay_us = self.work_us
        assert not self.is_taken, "two masks are being made"
        for number in range(1 + len(drafts)):
            if self._rule.most_masks and self.num_counted + number >= self._rule.most_masks:
                raise FormLimitError("asks for too much work", number)
            position = self._position + number
            tokens = np.arange(self._vocab_size)
            if position < self._rule.length:
                tokens = tokens[tokens % self._rule.modulus == position % self._rule.modulus]
            bits = np.zeros(masks.shape[1] * 32, np.uint8)
            bits[tokens] = 1
            self.work_us += MASK_US
            masks[number] = np.packbits(bits, bitorder="little").view(np.uint32)
