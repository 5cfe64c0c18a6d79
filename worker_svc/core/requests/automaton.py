"""Automata that hold outputs to their form: one per constrained slot, beside its tokens.

An automaton has taken exactly the output tokens of its slot, prior ones included. A preemption leaves it alone.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]


class GrammarError(Exception):
    """The automaton can go no further; its request fails. The message is a sentence's end."""

    def __init__(self, message: str, num_masks: int = 0) -> None:
        """num_masks: masks that were filled before, of those asked for; only with none of them the request fails."""
        super().__init__(message)
        self.num_masks = num_masks


class FormLimitError(GrammarError):
    """The form asks for more work than it may; the message goes on after the field's name."""


class NoTokenError(GrammarError):
    """A dead end: no token can come next. Nobody is to blame for it but the request."""

    def __init__(self, fields: tuple[str, ...] = (), num_masks: int = 0) -> None:
        """fields: those that forbid what the form allows; empty: the form allows nothing by itself."""
        super().__init__("no token can come next", num_masks)
        self.fields = fields


class FormEndError(GrammarError):
    """The form may end here, and other fields of the request leave no other token: the output is complete."""

    def __init__(self, num_masks: int = 0) -> None:
        super().__init__("nothing but the end can come next", num_masks)


class Automaton(Protocol):
    """One output, as far as it has come."""

    @property
    def is_complete(self) -> bool:
        """The form is fulfilled, and nothing can follow but the end."""

    @property
    def work_us(self) -> int:
        """Microseconds of CPU that masks, drafts and tokens have taken; only rises. Any thread may ask."""

    def advance(self, token: int) -> None:
        """Takes the next output token. Raises GrammarError when the form does not allow it."""

    def legal_drafts(self, drafts: I32) -> int:
        """How many of `drafts`, from the first on, the form allows; an end-of-sequence token is not counted."""

    def fill(self, drafts: I32, masks: NDArray[np.uint32]) -> None:
        """Fills `masks` `[1 + len(drafts), W]`: what may come next, and behind each of the legal `drafts`.

        Bit t % 32 of word t // 32 is token t. Raises GrammarError, which says how many masks there are all the same:
        what can follow a draft is of no matter until the draft has come true.
        """
