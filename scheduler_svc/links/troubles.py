"""Workers whose links fail again and again: each is kept away for a growing time, so that nothing loops hot."""

from __future__ import annotations

from dataclasses import dataclass

from signalbox.errors import UnavailableError

NUM_FREE = 2
"""Failures one behind the other that cost nothing."""
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
FORGOTTEN_AFTER_S = 60.0
"""Seconds without another failure after which a process' failures are forgotten."""


@dataclass
class _Trouble:
    count: int = 0
    last_at: float = 0.0
    reason: str = ""

    @property
    def delay_s(self) -> float:
        """How long the worker is kept away, from the last failure on."""
        if self.count <= NUM_FREE:
            return 0.0
        return min(FIRST_DELAY_S * 2.0 ** min(self.count - NUM_FREE - 1, 16), LONGEST_DELAY_S)


class LinkTroubles:
    """How often the links of each worker process failed. A link that its other end just closes did not fail; one with
    a hello that is refused, a report of another step or one that cannot be read, or a step that cannot be built
    did."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], _Trouble] = {}
        self.counts: dict[str, int] = {}
        """All failures so far, by worker id."""

    def note(self, worker_id: str, instance: str, reason: str, now: float) -> None:
        """A link of the worker failed; `reason` is a sentence."""
        self._forget_old(now)
        trouble = self._of.setdefault((worker_id, instance), _Trouble())
        trouble.count, trouble.last_at, trouble.reason = trouble.count + 1, now, reason
        self.counts[worker_id] = self.counts.get(worker_id, 0) + 1

    def check(self, worker_id: str, instance: str, now: float) -> None:
        """Raises UnavailableError while the worker is kept away."""
        trouble = self._of.get((worker_id, instance))
        if trouble is None:
            return
        rest_s = trouble.last_at + trouble.delay_s - now
        if rest_s > 0:
            raise UnavailableError(
                f"the link of worker {worker_id!r} failed {trouble.count} times, at last because {trouble.reason}; "
                f"try again in {rest_s:.1f} s"
            )

    def _forget_old(self, now: float) -> None:
        for name, trouble in list(self._of.items()):
            if now - trouble.last_at - trouble.delay_s > FORGOTTEN_AFTER_S:
                del self._of[name]
