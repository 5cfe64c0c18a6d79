"""Which tokens the constrained samples of one batch may become."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.requests.automaton import Automaton, GrammarError

I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]


class MaskedRow(NamedTuple):
    """One row of a batch whose output follows a form."""

    row: int
    automaton: Automaton | None
    """None: it is not ready, and the row must not have been run."""
    drafts: I32
    first: int
    """Number of the row's first mask; one follows per draft."""


class Masks:
    """The masks of a batch, filled beside the model's run. Automata must not move until they have been filled."""

    def __init__(self, rows: list[MaskedRow], index: I32, num_masks: int, num_words: int) -> None:
        self.index = index
        """[N] number of each sample's mask; -1: the sample is free."""
        self.failures: dict[int, GrammarError] = {}
        """Rows of the batch whose first mask cannot be made; complete after `bits`. Their samples are not to be
        used."""
        self.num_made: dict[int, int] = {}
        """Masks of rows that lack a later one; complete after `bits`. Only so many of their samples are to be used."""
        self._rows = rows
        self._bits = np.zeros((num_masks, num_words), np.uint32)
        self._executor: Executor | None = None
        self._filling: Future[None] | None = None
        self._is_filled = False

    def fill_with(self, executor: Executor) -> None:
        """Has the masks filled by this other thread."""
        self._executor = executor

    def start(self) -> None:
        """Begins to fill them, in the other thread if there is one. Best just before the model runs without the
        interpreter, which the other thread needs."""
        if self._executor is not None and self._filling is None and not self._is_filled:
            self._filling = self._executor.submit(self._fill)

    def bits(self) -> U32:
        """[M, W] bit t % 32 of word t // 32 says whether token t is allowed. Waits until they are filled."""
        self.start()
        if self._filling is not None:
            self._filling.result()
        elif not self._is_filled:
            self._fill()
        self._is_filled = True
        return self._bits

    def _fill(self) -> None:
        for row in self._rows:
            try:
                if row.automaton is None:
                    raise RuntimeError("its grammar is not ready")
                row.automaton.fill(row.drafts, self._of(row))
            except GrammarError as error:
                self._lack(row, error.num_masks, error)
            except Exception as error:  # whatever it is: this request fails, and no other
                self._lack(row, 0, GrammarError(str(error)))
        has_token: NDArray[np.bool_] = np.asarray(self._bits.any(axis=1))
        if has_token.all():
            return
        for row in self._rows:
            have = has_token[row.first : row.first + 1 + len(row.drafts)]
            if not have.all():
                self._lack(row, int(np.argmin(have)), GrammarError("no token is allowed"))

    def _lack(self, row: MaskedRow, num_made: int, error: GrammarError) -> None:
        """The row has so many masks. A sampler need not cope with rows that have no token; nobody looks at what it
        makes of the rest."""
        self._of(row)[num_made:] = 0xFFFFFFFF
        if num_made:
            self.num_made[row.row] = num_made
        else:
            self.failures[row.row] = error

    def _of(self, row: MaskedRow) -> U32:
        return self._bits[row.first : row.first + 1 + len(row.drafts)]
