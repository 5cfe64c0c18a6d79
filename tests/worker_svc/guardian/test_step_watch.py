"""When a step is over its limit (docs/design.md, U7 to U9)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from signalbox.protocol.enums import WorkerExit
from signalbox.protocol.step_limits import COMPILE_S
from worker_svc.guardian.ending import Ending
from worker_svc.guardian.step_age import LOOK_S, StepAge
from worker_svc.guardian.step_mark import StepMark, Turn
from worker_svc.guardian.step_watch import StepWatch
from worker_svc.guardian.watching import is_stopped


class Watched:
    """A worker whose step somebody watches."""

    def __init__(self) -> None:
        self.mark, self.now, self.is_stopped, self.num_kills = StepMark(), 100.0, False, 0
        self._watch = StepWatch(self.mark, self._kill, lambda: self.is_stopped)

    def _kill(self) -> None:
        self.num_kills += 1

    def look(self, seconds: float, every_s: float = LOOK_S) -> Ending | None:
        """Looks for so long; the end, when there is one."""
        until = self.now + seconds
        while self.now < until:
            self.now += every_s
            if (ending := self._watch.look(self.now)) is not None:
                return ending
        return None


def test_a_step_over_its_limit_ends_its_process() -> None:
    watched = Watched()
    watched.mark.set(7, 5000)
    assert watched.look(5.0) is None and not watched.num_kills
    ending = watched.look(1.0)
    assert watched.num_kills == 1 and watched.now <= 105.5
    assert ending is not None and ending.exit is WorkerExit.CRASHED
    assert "step 7" in ending.reason and "5.0 s" in ending.reason


def test_a_limit_that_was_read_with_the_step_before_kills_nobody() -> None:
    """The mark is three numbers, which another process reads one by one."""

    class Torn(StepMark):
        """Is read as the next step begins."""

        turns = [Turn(1, 120_000, True)] * 40 + [Turn(1, 5000, False), Turn(2, 5000, False)]

        @property
        def turn(self) -> Turn:
            return self.turns.pop(0)

    kills: list[int] = []
    watch = StepWatch(Torn(), lambda: kills.append(1), lambda: False)
    assert not any(watch.look(100 + number * LOOK_S) for number in range(41))
    assert not kills and not Torn.turns, "it was looked at again"


def test_steps_that_end_are_no_hang() -> None:
    watched = Watched()
    for step_id in range(1, 30):
        watched.mark.set(step_id, 1000)
        assert watched.look(0.75) is None


def test_who_has_nothing_to_do_does_not_hang() -> None:
    watched = Watched()
    watched.mark.set(1, 1000)
    assert watched.look(0.5) is None
    watched.mark.set(1, 0)
    assert watched.look(60.0) is None and watched.mark.turn.step_id == 0
    assert watched.mark.read() == 1, "of a crash between two steps it is the last that is known"


def test_a_process_that_is_stopped_does_not_hang() -> None:
    """U8: and what it ran before counts on."""
    watched = Watched()
    watched.mark.set(1, 2000)
    watched.look(1.0)
    watched.is_stopped = True
    assert watched.look(60.0) is None
    watched.is_stopped = False
    assert watched.look(0.75) is None
    assert watched.look(1.0) is not None


def test_a_watch_that_stood_still_counts_no_time() -> None:
    """U8, H3: a machine that sleeps."""
    watched = Watched()
    watched.mark.set(1, 2000)
    assert watched.look(3.0, every_s=1.0) is None, (
        "three looks, each of which counts for half a second at most"
    )
    assert watched.look(900.0, every_s=900.0) is None


def test_a_step_that_compiles_has_its_time() -> None:
    """U7: until the next step."""
    mark = StepMark()
    mark.compiles()
    assert mark.turn == Turn(0, 0, compiles=False), "no step runs"
    mark.set(3, 5000)
    mark.compiles()
    assert mark.turn == Turn(3, int(COMPILE_S * 1e3), compiles=True)
    mark.set(4, 5000)
    assert mark.turn == Turn(4, 5000, compiles=False)
    mark.set(4, 500_000)
    mark.compiles()
    assert mark.turn.limit_ms == 500_000


def test_an_age_is_that_of_one_step() -> None:
    age = StepAge()
    assert [age.look(step_id, now / 4) for now, step_id in enumerate((1, 1, 1, 2, 2, 0, 0, 2))] == (
        pytest.approx([0.0, 0.25, 0.5, 0.0, 0.25, 0.0, 0.0, 0.0])
    )


def test_a_stopped_process_is_told_from_one_that_runs() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        give_up = time.monotonic() + 30
        while not is_stopped(child.pid):
            assert time.monotonic() < give_up
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    assert not is_stopped(child.pid), "it is gone"
