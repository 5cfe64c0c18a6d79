"""When a process that requests wait for need not be waited for any more (docs/design.md, J13)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.liveness.judgement import GUARDIAN_S
from scheduler_svc.core.state.requests.evidence import Evidence, Process
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import WorkerReach


class Settlement:
    """Judges processes that this scheduler has never met by the same evidence as workers whose links have ended. One
    that it has met is a worker until `Liveness` says that it is gone."""

    def __init__(
        self, workers: Mapping[str, Worker], evidence: Evidence, grace_s: float, heard_grace_s: float
    ) -> None:
        """`grace_s`: how long a process may take to say hello, from when it was named; `heard_grace_s`: the same for
        one that the frontend hears, if that is longer."""
        self._workers, self._evidence = workers, evidence
        self._grace_s, self._heard_grace_s = grace_s, max(grace_s, heard_grace_s)

    def has_gone(self, frontend: str, process: Process, now: float) -> bool:
        """By its guardian's word, or because this frontend has found nothing at its address for GUARDIAN_S, the process
        runs no more. What another frontend does not reach may run."""
        if self._evidence.exit_of(process) is not None:
            return True
        refused_at = self._evidence.refused_at(frontend, process)
        return refused_at is not None and now - refused_at >= GUARDIAN_S

    def is_settled(self, frontend: str, process: Process, named_at: float, now: float) -> bool:
        """The process has told what it has, or is not waited for: the frontend named it at `named_at`."""
        worker = self._workers.get(process.worker_id)
        if worker is not None and (worker.process == process or worker.attached):
            return worker.attached
        is_heard = self._evidence.reach_of(frontend, process) is WorkerReach.HEARD
        grace_s = self._heard_grace_s if is_heard else self._grace_s
        return now - named_at >= grace_s or self.has_gone(frontend, process, now)
