"""How one worker is, as far as the scheduler knows."""

from __future__ import annotations

from dataclasses import dataclass

from signalbox.protocol.enums import WorkerHealth


@dataclass
class Vitals:
    """What is known of the life of one link of a worker."""

    heard_at: float | None = None
    """When the worker last said something, in seconds; None: nobody listens, so its silence means nothing."""
    health: WorkerHealth = WorkerHealth.GOOD
    """What it is suspected of while it has a link."""
    oldest_step_s: float = 0.0
    """Age of the step that it runs, by its own word; 0: it runs none."""
    oldest_step_id: int = 0
    """The number of that step; 0: it does not say it."""
    compiles: bool = False
    """Whether a kernel is compiled for that step, or a graph captured."""
    has_left: bool = False
    """Whether the worker has said its last word: it runs no further step, and does not come back."""
    unheard_by: frozenset[str] = frozenset()
    """Instances of the frontends that do not hear it: nothing of theirs is placed there."""

    def lasts_s(self, now: float) -> float:
        """How long it has been silent."""
        return 0.0 if self.heard_at is None else now - self.heard_at
