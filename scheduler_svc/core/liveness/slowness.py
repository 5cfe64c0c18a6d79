"""Workers that hang or are slow, by their own history and that of the others (docs/liveness.md, E7, E8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.steps.pace import ODD_RATIO, Pace, Work
from scheduler_svc.core.state.steps.step_limit import StepLimit
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.step_limits import COMPILE_S

SLOW_RATIO = 8.0
"""So many times as long as in the long run: slow. Below ODD_RATIO it is not any more."""
NUM_STUCK_LOOKS = 3
"""Looks in a row at which the same step is too old: a process that was stopped and goes on says so once."""
PROBATION_S = 30.0
"""Seconds without any step after which a slow worker is tried again; each time in a row twice as long."""
MAX_PROBATION_S = 600.0


@dataclass
class Record:
    """What is known of the speed of one worker process, over all of its links."""

    limit: StepLimit = field(default_factory=StepLimit)
    pace: Pace = field(default_factory=Pace)
    num_reported: int = 0
    """Steps that the worker's link had reported when it was last looked at; the counts below likewise."""
    num_prefill_tokens: int = 0
    num_output_tokens: int = 0
    step_us: int = 0
    num_stuck_looks: int = 0
    ratio: float | None = None
    """How many times as long recent steps took as in the long run, at the last look; None: it cannot be said."""
    is_slow: bool = False
    idle_since: float = 0.0
    probation_s: float = PROBATION_S

    def look(self, worker: Worker, now: float) -> None:
        """Counts what was reported since the last look."""
        stats = worker.stats
        steps = stats.num_reported - self.num_reported
        prefill = stats.num_prefill_tokens - self.num_prefill_tokens
        tokens = stats.num_output_tokens - self.num_output_tokens + prefill
        busy_s = (stats.step_us - self.step_us) / 1e6
        self.num_reported, self.step_us = stats.num_reported, stats.step_us
        self.num_prefill_tokens, self.num_output_tokens = stats.num_prefill_tokens, stats.num_output_tokens
        if steps:
            self.idle_since = now
        self.pace.look(Work(steps, tokens, positions_read(worker, steps, prefill), busy_s), now)
        is_stuck = steps == 0 and is_over_its_limit(worker)
        self.num_stuck_looks = self.num_stuck_looks + 1 if is_stuck else 0
        num_rows = int((worker.table.state == SlotState.DECODE).sum())
        self.ratio = self.pace.ratio(now)
        self.limit.look(self.pace.known, self.ratio, num_rows, positions_read(worker, 1, 0))

    def start_link(self) -> None:
        """The worker has said hello: its counters begin anew."""
        self.num_reported = self.num_prefill_tokens = self.num_output_tokens = self.step_us = 0
        self.num_stuck_looks = 0


def is_over_its_limit(worker: Worker) -> bool:
    """The oldest step that has not reported has run for longer than it may (U6, U7), by the worker's own word."""
    vitals = worker.vitals
    if not worker.records or vitals.oldest_step_id not in (0, worker.records[0].step_id):
        return False
    limit_s = worker.records[0].limit_s
    return vitals.oldest_step_s > (max(limit_s, COMPILE_S) if vitals.compiles else limit_s)


def positions_read(worker: Worker, num_steps: int, num_prefill_tokens: int) -> float:
    """About how many positions steps read: each row all of its own, and each prompt token what is before it."""
    table = worker.table
    rows = table.state == SlotState.DECODE
    of_rows = int((table.num_prompt[rows] + table.num_output[rows]).sum())
    before = int(table.num_sent[table.state == SlotState.PREFILL].max(initial=0))
    return float(num_steps * of_rows + num_prefill_tokens * before)


def judge_slow(record: Record, others: Iterable[Record], now: float) -> bool:
    """Whether a worker is slow while others, which have something to do, are not."""
    ratio = record.ratio
    if record.is_slow:
        if ratio is not None and ratio < ODD_RATIO:
            record.is_slow, record.probation_s = False, PROBATION_S
        elif now - record.idle_since >= record.probation_s:
            record.is_slow = False
            record.probation_s = min(2 * record.probation_s, MAX_PROBATION_S)
            record.pace.forget_recent()
        return record.is_slow
    if ratio is None or ratio < SLOW_RATIO:
        return False
    ratios = [theirs for other in others if (theirs := other.pace.ratio(now)) is not None]
    record.is_slow = bool(ratios) and max(ratios) < ODD_RATIO
    return record.is_slow
