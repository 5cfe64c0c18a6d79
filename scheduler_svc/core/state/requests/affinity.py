"""For whom a waiting request is kept: the worker that has its prefix cached, or fewer requests."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SKIPS = 16
"""Steps of other workers that may leave a request to its worker: a bound where many short steps pass in the time."""


@dataclass(slots=True)
class Affinity:
    """What placement keeps of one request that waits."""

    worker_id: str | None = None
    """Worker that has most of the prompt cached; None: no worker's cache is worth waiting for."""
    until: float | None = None
    """Until when it may be waited for, in seconds of the scheduler's clock; None: not looked for yet."""
    balanced_until: float | None = None
    """Until when workers that have fewer requests may be waited for; None: none was yet."""
    num_times_left: int = 0
    """Steps of other workers that left the request to it."""

    def holds(self, now: float) -> bool:
        """The worker may still be waited for: it has been looked for, and neither its time nor `MAX_SKIPS` are over."""
        return (
            self.worker_id is not None
            and self.until is not None
            and now < self.until
            and self.num_times_left < MAX_SKIPS
        )
