"""How long steps wait for masks, so that no judgement of a worker's pace counts it (docs/liveness.md, E7, E8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker_svc.core.requests.masks import MaskJob, MaskMaker


class MaskWaits:
    """A `MaskMaker` that has another one make the masks, and measures the waits of the step thread."""

    def __init__(self, maker: MaskMaker, clock: Callable[[], float]) -> None:
        self._maker, self._clock = maker, clock
        self.waited_s = 0.0
        """Seconds that steps have waited so far."""

    def begin(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.begin`."""
        self._maker.begin(jobs)

    def wait(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.wait`."""
        began = self._clock()
        self._maker.wait(jobs)
        self.waited_s += self._clock() - began

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.wait_for_one`."""
        began = self._clock()
        self._maker.wait_for_one(jobs)
        self.waited_s += self._clock() - began
