"""Which workers are suspect, which are gone, and when their requests go elsewhere (docs/liveness.md, E1 to E12)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from scheduler_svc.core.cluster.frontends import Frontends
from scheduler_svc.core.cluster.identities import difference_to
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.liveness.rooms import Rooms
from scheduler_svc.core.liveness.slowness import NUM_STUCK_LOOKS, Record, judge_slow
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.evidence import MAX_PROCESSES, Evidence, Exit, Process
from scheduler_svc.core.state.slots.slot_state import OWNING, RUNNING
from scheduler_svc.core.state.steps.pace import Work
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import LossCause, WorkerExit, WorkerHealth, WorkerReach
from signalbox.protocol.model_identity import ModelIdentity

GUARDIAN_S = 0.8
"""How long the word of a worker's guardian is waited for when its link has ended, and the end of its link when the
guardian has spoken: the cause decides who is a suspect. (It took 0.54 s on a machine with ten times as much to do as it
has cores, and a crash that nobody counted cost a third worker.)"""

FRONTENDS_KNOW_S = 0.5
"""After so long a silence more, frontends that do not hear a worker either have said so."""
REDIAL_S = 0.5
"""How long a worker whose link has ended may take to say hello before what it may not have heard to go on there moves
(HO7)."""


@dataclass(frozen=True)
class Departure:
    """Why a worker does not come back."""

    reason: str
    has_crashed: bool = False
    """Whether the worker crashed by itself: whoever had a row in the step that ran may have caused it."""
    step_id: int = 0
    """The number of that step, by the word of its guardian; 0: not known."""


class Liveness:
    """Judges workers by what is heard of them. `now` is the scheduler's clock, which whoever calls has watched: nobody
    judges by a clock that stood still itself (H3)."""

    def __init__(
        self,
        config: SchedulerConfig,
        workers: Mapping[str, Worker],
        register: Register,
        frontends: Frontends,
    ) -> None:
        self.evidence = Evidence()
        self.closing: list[str] = []
        """Workers whose links are to be closed."""
        self.news: list[str] = []
        """What an operator should know, in words."""
        self._records: dict[Process, Record] = {}
        self._predecessors: dict[tuple[str, str, ModelIdentity, int], Work] = {}
        """What processes that are gone have done and in which time, by id, model, identity and number of ranks."""
        self._config, self._workers = config, workers
        self._register, self._frontends = register, frontends

    # -- what is heard --

    def said(self, frontend: str, process: Process, reach: WorkerReach, now: float) -> None:
        """A frontend says what it sees of a worker."""
        self.evidence.say(frontend, process, reach, now)
        worker = self._workers.get(process.worker_id)
        if worker is not None and worker.process == process:
            worker.vitals.unheard_by = self.evidence.unheard_by(process)

    def forget_frontend(self, frontend: str) -> None:
        """A frontend is gone, or starts over: it hears all workers until it says otherwise."""
        self.evidence.forget_frontend(frontend)
        for worker in self._workers.values():
            worker.vitals.unheard_by -= {frontend}

    def attached(self, worker: Worker, old: Worker | None) -> None:
        """A worker has said hello. `old`: what was known of its name before."""
        worker.vitals.unheard_by = self.evidence.unheard_by(worker.process)
        if told := difference_to(worker, self._workers.values()):
            self.news.append(told)
        if old is not None and old.process == worker.process:
            worker.loan.rate = old.loan.rate
        elif old is not None:
            self._forget(old)
        record = self._records.setdefault(worker.process, Record())
        record.start_link()
        worker.step_limit = record.limit
        record.limit.predecessor = self._predecessors.get(kind_of(worker))
        record.limit.least_s = self._config.step_hang_ms / 1e3
        record.limit.most_s = worker.info.step_timeout_s
        record.limit.look(record.pace.known, None, 0, 0.0)

    def ended(self, process: Process, exit_: Exit) -> None:
        """A guardian says how a worker's process has ended."""
        self.evidence.ended(process, exit_)

    def leaves(self, worker: Worker, reason: str, *, has_crashed: bool) -> None:
        """A worker has said its last word: its requests go elsewhere at once."""
        worker.vitals.has_left = True
        suspects = rows_of_step(worker) if has_crashed else frozenset()
        why = f"worker {worker.info.worker_id} {'has failed' if has_crashed else 'leaves'}"
        for request in worker.requests():
            cause = LossCause.WORKER_GONE if has_crashed else LossCause.MOVED
            cause = LossCause.CRASH if request.slot in suspects else cause
            self._register.take_back(request, f"{why}: {reason}" if reason else why, cause)

    # -- gone --

    def departure_of(self, worker: Worker, now: float) -> Departure | None:
        """Why a worker without a link does not come back; None: it may."""
        name, waited_s = f"worker {worker.info.worker_id}", now - worker.detached_at
        if worker.vitals.has_left:
            return Departure(f"{name} has left")
        told = self.departure_by_exit(worker)
        if told is not None:
            return told
        if waited_s >= GUARDIAN_S and self.evidence.is_refused(worker.process):
            return Departure(f"{name} is gone: nothing listens at {worker.info.address}")
        if waited_s >= self._config.worker_grace_s:
            return Departure(f"{name} is gone")
        return None

    def departure_by_exit(self, worker: Worker) -> Departure | None:
        """The departure of a worker by the word of its guardian alone."""
        exit_ = self.evidence.exit_of(worker.process)
        if exit_ is None:
            return None
        how = {
            WorkerExit.CRASHED: "crashed",
            WorkerExit.KILLED: "was killed",
            WorkerExit.STOPPED: "has stopped",
        }
        why = f"worker {worker.info.worker_id} {how[exit_.kind]}"
        reason = f"{why}: {exit_.reason}" if exit_.reason else why
        return Departure(reason, exit_.kind is WorkerExit.CRASHED, exit_.step_id)

    def lose_rest(self, old: Worker, new: Worker) -> None:
        """A worker has said hello, and what it does not have any more is lost."""
        kept = {id(request) for request in new.requests()}
        reason = f"worker {new.info.worker_id} does not have it any more"
        if old.process == new.process:
            self._lose(old, Departure(reason), LossCause.UNKNOWN, kept)
        else:
            self._lose(old, self.departure_by_exit(old) or Departure(reason), LossCause.WORKER_GONE, kept)

    def lose_all(self, worker: Worker, departure: Departure) -> None:
        """What a worker had that is gone, and is no worker any more, is lost."""
        self._lose(worker, departure, LossCause.WORKER_GONE, set())
        self._forget(worker)

    def _forget(self, worker: Worker) -> None:
        self.evidence.forget([worker.process])
        record = self._records.pop(worker.process, None)
        if record is not None and record.pace.known is not None:
            self._predecessors[kind_of(worker)] = record.pace.known
            if len(self._predecessors) > MAX_PROCESSES:
                del self._predecessors[next(iter(self._predecessors))]

    def _lose(self, worker: Worker, departure: Departure, cause: LossCause, kept: set[int]) -> None:
        """`kept`: the requests, by id(), that another worker has by now."""
        suspects = rows_of_step(worker, departure.step_id) if departure.has_crashed else frozenset()
        for request in worker.requests():
            is_its_own = request.worker_id == worker.info.worker_id  # unless it was handed over meanwhile
            if id(request) not in kept and is_its_own and self._register.requests.get(request.key) is request:
                why = LossCause.CRASH if request.slot in suspects else cause
                self._register.lose(request, departure.reason, why)

    # -- suspects --

    def judge(self, now: float) -> None:
        """Finds out who is suspect, and moves what is better off elsewhere."""
        for worker in [worker for worker in self._workers.values() if not worker.is_arriving]:
            exit_ = self.evidence.exit_of(worker.process)
            if worker.attached and exit_ is not None and now - exit_.at >= GUARDIAN_S:
                self.closing.append(worker.info.worker_id)  # its end was lost on the way
                continue
            if worker.attached:
                self._judge_link(worker, now)
            if worker.health in (WorkerHealth.HUNG, WorkerHealth.SLOW):
                self._relieve(worker)
            if self.is_unheard(worker, now) and self._is_unheard_by_frontends(worker, now):
                self._leave_silent(worker)
            elif worker.health in (WorkerHealth.AWAY, WorkerHealth.SILENT):
                self._leave_in_doubt(worker, now)

    def is_unheard(self, worker: Worker, now: float) -> bool:
        """The scheduler has not heard the worker for as long as counts as silence."""
        limit_s = self._config.worker_silence_ms / 1e3
        if worker.attached:
            return worker.vitals.lasts_s(now) >= limit_s
        return now - worker.detached_at >= limit_s

    def lives(self, worker: Worker, now: float) -> bool:
        """A worker whose link is open is there, for all that is known (H5)."""
        has_ended = worker.vitals.has_left or self.evidence.exit_of(worker.process) is not None
        return not has_ended and not self.is_unheard(worker, now)

    def _judge_link(self, worker: Worker, now: float) -> None:
        record = self._records[worker.process]
        record.look(worker, now)
        if self.is_unheard(worker, now):
            self._set(worker, WorkerHealth.SILENT, f"not heard for {worker.vitals.lasts_s(now):.1f} s")
        elif record.num_stuck_looks >= NUM_STUCK_LOOKS:
            limit_s = worker.records[0].limit_s
            took = f"its step takes {worker.vitals.oldest_step_s:.1f} s, of {limit_s:.1f} s at most"
            self._set(worker, WorkerHealth.HUNG, took)
        elif judge_slow(record, self._others_than(worker), now):
            self._set(
                worker,
                WorkerHealth.SLOW,
                "its steps take many times as long as they did, those of others do not",
            )
        else:
            self._set(worker, WorkerHealth.GOOD, "")

    def _others_than(self, worker: Worker) -> list[Record]:
        return [
            self._records[other.process]
            for other in self._workers.values()
            if other is not worker and other.attached and other.info.model == worker.info.model
        ]

    def _relieve(self, worker: Worker) -> None:
        """Moves what has room on workers that are as they should be. It is told with its next step. Who has a row in a
        step that hangs may have caused that (U9)."""
        name, is_hung = worker.info.worker_id, worker.health is WorkerHealth.HUNG
        what, suspects = "is slow", frozenset[int]()
        if is_hung:
            what, suspects = "hangs", rows_of_step(worker)
        moved = self._move(worker, f"worker {name} {what}", LossCause.MOVED, suspects)
        if moved:
            self.news.append(f"{moved} requests of worker {name} move: it {what}")

    def _set(self, worker: Worker, health: WorkerHealth, why: str) -> None:
        if worker.vitals.health is health:
            return
        worker.vitals.health = health
        name = worker.info.worker_id
        if health is WorkerHealth.GOOD:
            self.news.append(f"worker {name} is as it should be again")
        else:
            self.news.append(f"worker {name} is suspect ({health.name.lower()}): {why}; it gets nothing new")

    def hears_nothing_of(self, worker: Worker, now: float) -> bool:
        """One direction of its link is dead, as far as can be told: the scheduler does not hear it, and a frontend
        does (H4)."""
        if not worker.attached or worker.vitals.health is not WorkerHealth.SILENT:
            return False
        if worker.vitals.lasts_s(now) < self._config.worker_silence_ms / 1e3 + FRONTENDS_KNOW_S:
            return False
        return not worker.vitals.unheard_by.issuperset(self._present_holders(worker, now))

    def _is_unheard_by_frontends(self, worker: Worker, now: float) -> bool:
        """No frontend that has a link, and requests there, hears the worker either."""
        present = self._present_holders(worker, now)
        return bool(present) and worker.vitals.unheard_by.issuperset(present)

    def _present_holders(self, worker: Worker, now: float) -> list[str]:
        """Frontends with requests there. One that is silent itself is not asked."""
        holders = {request.key.frontend_instance for request in worker.requests()}
        silence_s = self._config.worker_silence_ms / 1e3
        return [name for name in holders if self._frontends.is_present(name, now, silence_s)]

    def _leave_silent(self, worker: Worker) -> None:
        """Moves what has room elsewhere now. A worker whose requests have moved says hello when it comes back."""
        name = worker.info.worker_id
        moved = self._move(worker, f"worker {name} is silent", LossCause.SILENT)
        if moved:
            self.news.append(f"{moved} requests of worker {name} move: nobody hears it")
            if worker.attached:
                self.closing.append(name)

    def _leave_in_doubt(self, worker: Worker, now: float) -> None:
        """Moves requests of a worker that is not heard, and may not have heard that they begin (E12) or go on there
        (HO7): it does not run them alone."""
        waits_s = math.inf if self.is_unheard(worker, now) else now - worker.detached_at
        if worker.attached and waits_s < math.inf:
            return
        oldest = worker.records[0].step_id if worker.records else worker.next_step_id
        slots = handoffs_of(worker).unheard(oldest) if waits_s >= REDIAL_S else set()
        if waits_s >= GUARDIAN_S:
            slots |= _not_begun(worker, oldest)
        name = worker.info.worker_id
        reason = f"worker {name} may not have heard that it has it"
        moved = self._move(worker, reason, LossCause.MOVED, only=slots) if slots else 0
        if moved:
            self.news.append(
                f"{moved} requests of worker {name} move: it may not have heard that it has them"
            )

    def _move(
        self,
        worker: Worker,
        reason: str,
        cause: LossCause,
        suspects: frozenset[int] = frozenset(),
        only: Collection[int] | None = None,
    ) -> int:
        """Takes requests back, the oldest first, as far as others have room for them; returns how many. What has output
        moves within its identity only (I9). `suspects`: slots of those that are lost as by a crash; who is suspected
        already needs no room any more. `only`: slots of those that may move; None: all."""
        others = [
            other
            for other in self._workers.values()
            if other is not worker and other.info.model == worker.info.model and other.takes_new
        ]
        rooms, table, moved = Rooms(others, self._config.watermark_blocks_per_seq), worker.table, 0
        for request in sorted(worker.requests(), key=lambda request: request.order):
            if only is not None and request.slot not in only:
                continue
            num_tokens = int(table.num_prompt[request.slot] + table.num_output[request.slot])
            origin = worker.info.identity if table.num_output[request.slot] else None
            is_suspect = request.slot in suspects
            if (is_suspect and request.num_crashes) or rooms.take(request, num_tokens, origin):
                self._register.take_back(request, reason, LossCause.CRASH if is_suspect else cause)
                moved += 1
        return moved


def _not_begun(worker: Worker, oldest: int) -> set[int]:
    """Slots of requests that no step which the worker has reported has begun. oldest: number of the first step that it
    has not reported."""
    table = worker.table
    is_new = OWNING[table.state] & (table.num_output == 0)
    waits = ~np.isin(table.state, RUNNING)
    return set(np.flatnonzero(is_new & (waits | (table.started_at >= oldest))).tolist())


def kind_of(worker: Worker) -> tuple[str, str, ModelIdentity, int]:
    """What a process has to have in common with another for the speed of that to say something of its own."""
    info = worker.info
    return info.worker_id, info.model, info.identity, info.num_ranks


def rows_of_step(worker: Worker, step_id: int = 0) -> frozenset[int]:
    """Slots with a row in the step that ran when the worker crashed, or hung (S1): the one that it named, or the oldest
    that has not reported. Where there are lanes, also in those that may have been on their way behind it."""
    records = list(worker.records)
    first = next((at for at, record in enumerate(records) if record.step_id == step_id), 0)
    running = records[first : first + len(worker.table.lanes)]
    return frozenset(
        slot
        for record in running
        for slot in (*record.decode_slots.tolist(), *(chunk.slot for chunk in record.chunks))
    )
