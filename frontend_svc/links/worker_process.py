"""What the frontend knows of worker processes, for longer than it has links to them: where it reads, and which requests
they may have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from frontend_svc.models import Worker
from frontend_svc.requests.sessions.session import Session
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


@dataclass
class Holders:
    """Processes that may have requests."""

    workers: list[Worker] = field(default_factory=list)
    """Each process that may have one of them."""
    places: list[list[int]] = field(default_factory=list)
    """For each request: which of `workers` may have it."""


def find_holders(processes: Iterable[WorkerProcess], sessions: Iterable[Session]) -> Holders:
    """The processes that may have each session's attempt: those of the workers that have a leg of it (HO10), and where
    nobody is known to have the current one, all of its model that we have heard. None that refuses us: it is gone."""
    by_id, by_model = defaultdict[str, list[Worker]](list), defaultdict[str, list[Worker]](list)
    for process in processes:
        if process.reach is not WorkerReach.REFUSED:
            by_id[process.worker.worker_id].append(process.worker)
            if process.log_number:
                by_model[process.worker.model].append(process.worker)
    found, place_of = Holders(), dict[str, int]()
    for session in sessions:
        legs = session.legs
        named = [worker for worker_id in sorted(legs.workers) for worker in by_id.get(worker_id, ())]
        others = [] if legs.is_known else by_model.get(session.request.model, [])
        places = dict.fromkeys(
            place_of.setdefault(worker.instance, len(place_of)) for worker in (*named, *others)
        )
        found.places.append(list(places))
    known = {worker.instance: worker for workers in by_id.values() for worker in workers}
    found.workers = [known[instance] for instance in place_of]
    return found
