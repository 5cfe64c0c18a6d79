"""What others say of workers: frontends, whether they hear them; guardians, how their processes ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from signalbox.protocol.enums import WorkerExit, WorkerReach

MAX_PROCESSES = 1024
"""Most processes that one frontend may say something of, and that may have ended: they need not be known here yet."""


class Process(NamedTuple):
    """One process of a worker."""

    worker_id: str
    instance: str


class Seen(NamedTuple):
    """What a frontend has last said of a process."""

    reach: WorkerReach
    since: float
    """When it was told, in seconds."""


@dataclass(frozen=True)
class Exit:
    """The end of a process, by its guardian's word."""

    kind: WorkerExit
    reason: str
    at: float
    """When it was told, in seconds."""
    step_id: int = 0
    """The oldest step that had not ended; 0: not known."""


class Evidence:
    """What frontends and guardians say of worker processes. Until it says otherwise, a frontend hears every worker."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Process, Seen]] = {}
        """How workers are reached, by frontend; only what is not HEARD."""
        self._exits: dict[Process, Exit] = {}

    # -- frontends --

    def say(self, frontend: str, process: Process, reach: WorkerReach, now: float) -> None:
        """A frontend says what it sees of a worker."""
        seen = self._seen.setdefault(frontend, {})
        before = seen.pop(process, None)
        if reach is not WorkerReach.HEARD:
            seen[process] = before if before is not None and before.reach is reach else Seen(reach, now)
        if len(seen) > MAX_PROCESSES:
            del seen[next(iter(seen))]

    def reach_of(self, frontend: str, process: Process) -> WorkerReach:
        """What a frontend has last said of a worker."""
        seen = self._seen.get(frontend, {}).get(process)
        return seen.reach if seen is not None else WorkerReach.HEARD

    def refused_at(self, frontend: str, process: Process) -> float | None:
        """When a frontend said that it finds nothing at the worker's address; None: it does not say so."""
        seen = self._seen.get(frontend, {}).get(process)
        return seen.since if seen is not None and seen.reach is WorkerReach.REFUSED else None

    def unheard_by(self, process: Process) -> frozenset[str]:
        """The frontends that do not hear a worker."""
        return frozenset(frontend for frontend, seen in self._seen.items() if process in seen)

    def is_refused(self, process: Process) -> bool:
        """A frontend has found nothing at the worker's address."""
        return any(self.refused_at(frontend, process) is not None for frontend in self._seen)

    def forget_frontend(self, frontend: str) -> None:
        """The frontend is gone, or starts over."""
        self._seen.pop(frontend, None)

    # -- guardians --

    def ended(self, process: Process, exit_: Exit) -> None:
        """A guardian says how a process has ended; it says so once."""
        self._exits.setdefault(process, exit_)
        if len(self._exits) > MAX_PROCESSES:
            del self._exits[next(iter(self._exits))]

    def exit_of(self, process: Process) -> Exit | None:
        """How a process has ended; None: it runs, for all that is known."""
        return self._exits.get(process)

    def forget(self, processes: Iterable[Process]) -> None:
        """The processes are of no interest any more."""
        for process in processes:
            self._exits.pop(process, None)
            for seen in self._seen.values():
                seen.pop(process, None)
