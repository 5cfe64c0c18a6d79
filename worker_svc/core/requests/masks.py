"""The work of masks, one job for each place of an output; which tokens the constrained samples of one batch may become;
and which rows sit the step out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.requests.automaton import Automaton, GrammarError, NoTokenError

I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]
ALL_ALLOWED = np.uint32(0xFFFFFFFF)


class MaskJob:
    """The masks of an output's next token and of those behind each of its drafts.

    From `MaskMaker.begin` to `is_done` the job and its automaton belong to whoever makes masks.
    """

    def __init__(
        self,
        slot: int,
        automaton: Automaton | None,
        drafts: I32,
        num_words: int,
        account: int = 0,
        *,
        is_ahead: bool = False,
    ) -> None:
        """automaton: None: it is not ready, and the row must not have been run."""
        self.slot, self.automaton, self.drafts = slot, automaton, drafts
        self.account = account
        """Jobs of the same number are one tenant's."""
        self.is_ahead = is_ahead
        """No step waits for it longer than its model runs."""
        self.is_late = False
        """A step has gone on without its row."""
        self.bits: U32 = np.zeros((1 + len(drafts), num_words), np.uint32)
        """[1 + D, W] bit t % 32 of word t // 32 says whether token t is allowed."""
        self.num_made = 0
        """How many of the masks could be made."""
        self.error: GrammarError | None = None
        """Why no more of them; None: all are there."""
        self.is_begun = self.is_done = self.is_dropped = False
        self._on_done: Callable[[], None] | None = None

    def fail(self, error: BaseException) -> None:
        """There is no mask: the row's request fails."""
        self.num_made, self.error = 0, GrammarError(str(error))
        self.bits[:] = ALL_ALLOWED

    def run(self) -> None:
        """Makes the masks. Whatever goes wrong is the row's error."""
        try:
            if self.automaton is None:
                raise RuntimeError("its grammar is not ready")
            self.automaton.fill(self.drafts, self.bits)
            self.num_made = len(self.bits)
        except GrammarError as error:
            self.num_made, self.error = error.num_masks, error
        except Exception as error:  # whatever it is: this request fails, and no other
            self.fail(error)
        if self.num_made == len(self.bits) == 1 and np.count_nonzero(self.bits):
            return  # the ordinary job, whose check is a large part of what this method costs
        has_token: NDArray[np.bool_] = np.asarray(self.bits[: self.num_made].any(axis=1))
        if not has_token.all():
            self.num_made, self.error = int(np.argmin(has_token)), NoTokenError()
        # A sampler need not cope with rows that have no token; nobody looks at what it makes of the rest.
        self.bits[self.num_made :] = ALL_ALLOWED

    def finish(self) -> None:
        """The masks have been made. Called by whoever made them and is through with the automaton."""
        self.is_done = True
        if self._on_done is not None:
            self._on_done()

    def when_done(self, tell: Callable[[], None]) -> None:
        """Has `tell` called once they have been made, perhaps twice and in another thread. It must not wait."""
        self._on_done = tell
        if self.is_done:  # whoever made them may have looked before
            tell()


class MaskMaker(Protocol):
    """Does the jobs of one worker. The step thread calls it."""

    def begin(self, jobs: Sequence[MaskJob]) -> None:
        """Takes jobs, which are done some time later, or at once. Jobs that are dropped need not be done."""

    def wait(self, jobs: Sequence[MaskJob]) -> None:
        """Waits for jobs that have begun, as long as a step may wait for masks (G6)."""

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        """Waits until one of these jobs is done, or an empty step has taken long enough (G14)."""


class InlineMaker:
    """Does each job when it is begun."""

    def begin(self, jobs: Sequence[MaskJob]) -> None:
        """Makes the masks of each job at once."""
        for job in jobs:
            job.is_begun = True
            job.run()
            job.finish()

    def wait(self, jobs: Sequence[MaskJob]) -> None:
        """Returns at once: jobs are done when they have begun."""

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        """Returns at once."""


INLINE = InlineMaker()


class MaskedRow(NamedTuple):
    """One row of a batch whose output follows a form."""

    row: int
    job: MaskJob
    first: int
    """Number of the row's first mask; one follows per draft."""
    num_masks: int = 1
    """How many of the masks of the job the row has; others are of drafts that it does not have any more."""


class Masks:
    """The masks of a batch, made beside the model's run. Automata of rows that are not late must not move until they
    have been made."""

    def __init__(
        self,
        rows: Sequence[MaskedRow],
        index: I32,
        num_masks: int,
        num_words: int,
        maker: MaskMaker = INLINE,
    ) -> None:
        self.index = index
        """[N] number of each sample's mask; -1: the sample is free."""
        self.failures: dict[int, GrammarError] = {}
        """Rows of the batch whose first mask cannot be made; complete after `bits`. Their samples are not to be
        used."""
        self.num_made: dict[int, int] = {}
        """Masks of rows that lack a later one; complete after `bits`. Only so many of their samples are to be used."""
        self.late: list[int] = []
        """Rows of the batch whose masks are still being made: they sit the step out (G6). Complete after `bits`."""
        self._rows, self._maker = rows, maker
        self._shape = num_masks, num_words
        self._bits: U32 | None = None

    def start(self) -> None:
        """Begins to make them. Best just before the model runs without the interpreter, which other threads need."""
        jobs = [row.job for row in self._rows if not row.job.is_begun]
        if jobs:
            self._maker.begin(jobs)

    def bits(self) -> U32:
        """[M, W] bit t % 32 of word t // 32 says whether token t is allowed; all are where a row is late. Waits for
        masks as long as a step may."""
        if self._bits is None:
            self.start()
            missing = [row.job for row in self._rows if not (row.job.is_done or row.job.is_ahead)]
            if missing:
                self._maker.wait(missing)
            self._bits = self._gather()
        return self._bits

    def _gather(self) -> U32:
        bits = np.zeros(self._shape, np.uint32)
        for row, job, first, num_masks in self._rows:
            if not job.is_done:
                job.is_late = True
                self.late.append(row)
                bits[first : first + num_masks] = ALL_ALLOWED
                continue
            bits[first : first + num_masks] = job.bits[:num_masks]
            if job.error is None or job.num_made >= num_masks:
                continue
            if job.num_made:
                self.num_made[row] = job.num_made
            else:
                self.failures[row] = job.error
        return bits
