"""The steps that have been applied and not been collected, oldest first: one, two where the runner can run ahead, or as
many as there are lanes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from worker_svc.core.batch import AheadRunner, Batch, Launched, ModelRunner, Sampled
from worker_svc.core.faults.isolation import run_step
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.run_ahead import is_run_in_turn, may_launch
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import SideCopies

logger = logging.getLogger(__name__)
MOST_IN_FLIGHT = 2
"""The device needs one step to run and one to go on with; more would only lengthen overruns."""


@dataclass
class _Flight:
    """A step, and its launch; None: it is run when its turn comes."""

    step: RunningStep
    launched: Launched | None


class StepsInFlight:
    """Runs steps in the order of their start. A step is launched at once if the runner can and the step allows it."""

    def __init__(
        self,
        table: RequestTable,
        runner: ModelRunner,
        copy_aside: Callable[[SideCopies], None],
    ) -> None:
        """copy_aside: begins with copies that run beside the steps."""
        self._table, self._runner, self._copy_aside = table, runner, copy_aside
        self._ahead = runner if isinstance(runner, AheadRunner) else None
        self._has_lanes = table.num_lanes > 1
        self._most = table.num_lanes if self._has_lanes else MOST_IN_FLIGHT
        self._flights: deque[_Flight] = deque()

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def has_rows(self) -> bool:
        """A step in flight runs something."""
        return any(len(flight.step.batch.slots) for flight in self._flights)

    @property
    def is_full(self) -> bool:
        """No step may be started before the oldest has been collected."""
        flights = self._flights
        return len(flights) >= self._most or bool(flights and flights[-1].launched is None)

    @property
    def is_done(self) -> bool:
        """The tokens of the oldest step are there, or never will be: nobody waits in `collect`."""
        launched = self._flights[0].launched
        try:
            return launched is not None and launched.is_done
        except Exception as error:  # `collect` meets it again, where it is dealt with
            logger.info("a launched step cannot be asked whether it is done: %s", error)
            return True

    def start(self, step: RunningStep) -> None:
        """Takes a step that was just applied."""
        self._flights.append(_Flight(step, self._launch(step)))

    def collect(self) -> tuple[RunningStep, Sampled, dict[int, str]]:
        """Waits for the oldest step. Returns it with its samples and with the rows that the model failed on, as
        `run_step` does. Every step before it has been committed. Raises RunnerBrokenError."""
        flight = self._flights.popleft()
        step, sampled = flight.step, self._collect_launched(flight)
        if sampled is not None:
            return step, sampled, {}
        fill_in(self._table, step.batch)
        begin = partial(self._begin_aside, step)
        return step, *run_step(self._runner, step.copies, step.batch, begin, step.state_copies)

    def _begin_aside(self, step: RunningStep) -> None:
        if step.side_copies is not None:
            self._copy_aside(step.side_copies)
        for part, orders in step.begins:
            part.apply(orders)

    def _launch(self, step: RunningStep) -> Launched | None:
        # Where there are lanes, no row of a step is in another: what is sampled need not be known ahead.
        is_fit = not is_run_in_turn(step) if self._has_lanes else may_launch(step)
        if self._ahead is None or not is_fit:
            return None
        try:
            return self._ahead.launch(step.batch, step.ahead)
        except Exception:  # whatever it is: it is run in its turn, where the culprit is found
            logger.exception("a step could not be launched ahead")
            return None

    def _collect_launched(self, flight: _Flight) -> Sampled | None:
        """None: it was not launched, or has to be run again."""
        # Held by nobody else: what it failed with may hold memory that the step needs to run again.
        launched, flight.launched = flight.launched, None
        if self._ahead is None or launched is None:
            return None
        try:
            return self._ahead.collect(launched)
        except Exception:
            logger.exception("a launched step failed")
        for later in self._flights:
            self._abandon(later)
        return None

    def _abandon(self, flight: _Flight) -> None:
        """A step that was launched on what a failed one left behind: it is run again in its turn, at the same
        positions."""
        assert self._ahead is not None
        if flight.launched is None:
            return
        try:
            self._ahead.collect(flight.launched)
        except Exception as error:
            logger.info("the step after it failed too: %s", error)
        flight.launched = None


def fill_in(table: RequestTable, batch: Batch) -> None:
    """Puts into a batch the tokens that were in flight when it was built."""
    first = batch.query_starts[: batch.num_decode_rows]
    batch.token_ids[first] = table.tokens[batch.slots[: batch.num_decode_rows], batch.positions[first]]
