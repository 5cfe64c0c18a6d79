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
        self._reach: dict[str, dict[Process, WorkerReach]] = {}
        """How workers are reached, by frontend; only what is not HEARD."""
        self._exits: dict[Process, Exit] = {}

    # -- frontends --

    def say(self, frontend: str, process: Process, reach: WorkerReach) -> None:
        """A frontend says what it sees of a worker."""
        seen = self._reach.setdefault(frontend, {})
        seen.pop(process, None)
        if reach is not WorkerReach.HEARD:
            seen[process] = reach
        if len(seen) > MAX_PROCESSES:
            del seen[next(iter(seen))]

    def reach_of(self, frontend: str, process: Process) -> WorkerReach:
        """What a frontend has last said of a worker."""
        return self._reach.get(frontend, {}).get(process, WorkerReach.HEARD)

    def may_hear(self, frontend: str, worker_id: str) -> bool:
        """A frontend has said nothing against any process of that name since it said hello."""
        return all(process.worker_id != worker_id for process in self._reach.get(frontend, {}))

    def unheard_by(self, process: Process) -> frozenset[str]:
        """The frontends that do not hear a worker."""
        return frozenset(frontend for frontend, seen in self._reach.items() if process in seen)

    def is_refused(self, process: Process) -> bool:
        """A frontend has found nothing at the worker's address."""
        return any(seen.get(process) is WorkerReach.REFUSED for seen in self._reach.values())

    def forget_frontend(self, frontend: str) -> None:
        """The frontend is gone, or starts over."""
        self._reach.pop(frontend, None)

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
            for seen in self._reach.values():
                seen.pop(process, None)
