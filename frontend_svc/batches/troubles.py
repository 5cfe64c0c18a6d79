"""Schedules retries of batches whose files cannot be read or opened, and limits them. Times are seconds of any
monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

from frontend_svc.batches.batch import Batch

FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 30.0
PATIENCE_S = 600.0
"""How long the files of a batch may be out of reach, without any progress, before it fails."""


@dataclass
class _Trouble:
    """The failures of one batch since it last made progress."""

    progress: tuple[str, int]
    since_s: float
    num_failures: int = 0
    until_s: float = 0.0
    """When it is tried again."""


class Troubles:
    """The batches of a process that failed, and since when."""

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}

    def add(self, batch: Batch, now: float) -> bool:
        """It has failed once more, and rests for twice as long as before. False: it has lasted too long."""
        progress = batch.status.value, batch.completed + batch.failed
        trouble = self._troubles.get(batch.id)
        if trouble is None or trouble.progress != progress:
            trouble = self._troubles[batch.id] = _Trouble(progress, now)
        if now - trouble.since_s >= PATIENCE_S:
            return False
        trouble.until_s = now + min(FIRST_RETRY_S * 2**trouble.num_failures, LONGEST_RETRY_S)
        trouble.num_failures += 1
        return True

    def forget(self, batch_id: str) -> None:
        """It has ended."""
        self._troubles.pop(batch_id, None)

    def resting(self, now: float) -> set[str]:
        """Batches that are not to be tried yet."""
        return {batch_id for batch_id, trouble in self._troubles.items() if now < trouble.until_s}
