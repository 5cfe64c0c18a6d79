"""What finds a request that hangs its workers, and what keeps others from being taken for one, taken out on purpose:
rings in which steps hang or take long (`ring/hangs.py`) have to miss each of them."""

from __future__ import annotations

from typing import Any

import pytest

from frontend_svc.requests.sessions.losses import Losses
from scheduler_svc.core.liveness import slowness
from scheduler_svc.core.state.steps.step_limit import StepLimit
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import LossCause, WorkerExit
from worker_svc.guardian import step_watch
from worker_svc.guardian.ending import Ending
from worker_svc.guardian.step_age import StepAge
from worker_svc.guardian.step_mark import StepMark
from worker_svc.guardian.step_watch import StepWatch

Patch = pytest.MonkeyPatch


def rows_of_a_hang_are_no_suspects(patch: Patch) -> None:
    """U9: a process that is ended for its step was killed from outside, for all that its guardian says."""
    patch.setattr(step_watch, "hung", lambda *given: Ending(WorkerExit.KILLED, "it was killed"))


def second_hang_is_not_counted(patch: Patch) -> None:
    """S4: a request may hang as many workers as there are."""
    add = Losses.add

    def add_one(losses: Losses, cause: LossCause) -> None:
        add(losses, cause)
        losses.num_crashes = min(losses.num_crashes, 1)

    patch.setattr(Losses, "add", add_one)


def limit_follows_the_longest_step(patch: Patch) -> None:
    """U6: a step may take twenty times as long as the longest of the last ones."""
    look = slowness.Record.look

    def look_at_longest(record: slowness.Record, worker: Worker, now: float) -> None:
        look(record, worker, now)
        record.limit.least_s = max(5.0, 20.0 * worker.pacer.longest_s)

    patch.setattr(slowness.Record, "look", look_at_longest)


def nobody_ends_what_hangs(patch: Patch) -> None:
    """U9: the guardian looks on."""
    patch.setattr(StepWatch, "look", lambda watch, now: None)


def stopped_processes_hang(patch: Patch) -> None:
    """U8: a process that was stopped is ended as if its step hung."""

    def begin(age: StepAge, *_: Any) -> None:
        age._is_stopped = lambda: False
        age._step_id, age._looked_at, age._seconds = 0, 0.0, 0.0

    patch.setattr(StepAge, "__init__", begin)


def compilers_are_not_waited_for(patch: Patch) -> None:
    """U7: nobody says that a step compiles."""
    patch.setattr(StepMark, "compiles", lambda mark: None)


def ended_steps_go_on(patch: Patch) -> None:
    """A worker that has nothing to do is taken for one whose last step never ends."""
    mark = StepMark.set

    def set_what_begins(self: StepMark, step_id: int, limit_ms: int) -> None:
        if limit_ms:
            mark(self, step_id, limit_ms)

    patch.setattr(StepMark, "set", set_what_begins)


def limits_are_not_told(patch: Patch) -> None:
    """U7: workers do not hear how long a step may take."""
    patch.setattr(StepLimit, "of", lambda limit, step: limit.most_s)
    look = StepLimit.look

    def look_and_forget(limit: StepLimit, *given: Any) -> None:
        look(limit, *given)
        limit.decode_s = limit.most_s

    patch.setattr(StepLimit, "look", look_and_forget)
