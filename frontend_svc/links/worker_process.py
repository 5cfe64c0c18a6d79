"""What the frontend knows of a worker process, for longer than it has a link to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from frontend_svc.models import Worker


class Reach(IntEnum):
    """How far a worker process can be reached from here; numbers as in scheduler.proto (docs/liveness.md, E)."""

    HEARD = 1
    """Its output stream is open and speaks, or nothing is known against it yet."""
    SILENT = 2
    """Its output stream is open, and has been silent for worker_silence_ms."""
    REFUSED = 3
    """It has no open stream, and nothing of it listens at its address."""
    UNREACHABLE = 4
    """It has had no open stream for unreachable_s, and nothing refuses."""


@dataclass
class WorkerProcess:
    """One process. Its log goes on where it was read, whatever link reads it."""

    worker: Worker
    log_number: int = 0
    """Of the log that was read last; 0: this process is new to us."""
    sequence: int = 0
    """Newest message of that log that was processed."""
    reach: Reach = Reach.HEARD
