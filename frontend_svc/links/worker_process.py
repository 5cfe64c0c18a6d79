"""What the frontend knows of a worker process, for longer than it has a link to it."""

from __future__ import annotations

from dataclasses import dataclass

from frontend_svc.models import Worker
from signalbox.protocol.enums import WorkerReach


@dataclass
class WorkerProcess:
    """One process. Its log goes on where it was read, whatever link reads it."""

    worker: Worker
    log_number: int = 0
    """Number of the outbound log that was read last; 0: this process is new to us."""
    sequence: int = 0
    """Newest message of that log that was processed."""
    reach: WorkerReach = WorkerReach.HEARD
