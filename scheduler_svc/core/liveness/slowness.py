"""Workers that hang or are slow, by their own history and that of the others (docs/liveness.md, E7, E8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler_svc.core.liveness.pace import ODD_RATIO, Pace, Work
from scheduler_svc.core.slots.state import SlotState
from scheduler_svc.core.slots.worker import Worker

SLOW_RATIO = 8.0
"""So many times as long as in the long run: slow. Below ODD_RATIO it is not any more."""
HANG_RATIO = 20.0
"""So many times as long as the longest of the last steps, and as what it has to do should take: hung."""
NUM_STUCK_LOOKS = 3
"""Looks in a row at which the same step is too old: a process that was stopped and goes on says so once."""
PROBATION_S = 30.0
"""Seconds without any step after which a slow worker is tried again; each time in a row twice as long."""
MAX_PROBATION_S = 600.0


@dataclass
class Record:
    """What is known of the speed of one worker process, over all of its links."""

    pace: Pace = field(default_factory=Pace)
    num_reported: int = 0
    """Steps that the worker's link had reported when it was last looked at; the counts below likewise."""
    num_prefill_tokens: int = 0
    num_output_tokens: int = 0
    step_us: int = 0
    num_stuck_looks: int = 0
    is_slow: bool = False
    idle_since: float = 0.0
    probation_s: float = PROBATION_S

    def look(self, worker: Worker, hang_s: float, now: float) -> None:
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
        is_stuck = steps == 0 and self.is_too_old(worker, hang_s)
        self.num_stuck_looks = self.num_stuck_looks + 1 if is_stuck else 0

    def start_link(self) -> None:
        """The worker has said hello: its counters begin anew."""
        self.num_reported = self.num_prefill_tokens = self.num_output_tokens = self.step_us = 0
        self.num_stuck_looks = 0

    def is_too_old(self, worker: Worker, hang_s: float) -> bool:
        """The step that runs takes longer than `hang_s`, and far too long for what it has to do."""
        if not worker.records or not worker.pacer.is_full:
            return False
        record = worker.records[0]
        num_tokens = record.num_decode_rows + record.num_prefill_tokens
        read = positions_read(worker, 1, record.num_prefill_tokens)
        expected = self.pace.predict(Work(1, num_tokens, read, 0.0))
        longest_s = max(worker.pacer.longest_s, expected)
        return worker.vitals.oldest_step_s > max(HANG_RATIO * longest_s, hang_s)


def positions_read(worker: Worker, num_steps: int, num_prefill_tokens: int) -> float:
    """About how many positions steps read: each row all of its own, and each prompt token what is before it."""
    table = worker.table
    rows = table.state == SlotState.DECODE
    of_rows = int((table.num_prompt[rows] + table.num_output[rows]).sum())
    before = int(table.num_sent[table.state == SlotState.PREFILL].max(initial=0))
    return float(num_steps * of_rows + num_prefill_tokens * before)


def judge_slow(record: Record, others: Iterable[Record], now: float) -> bool:
    """Whether a worker is slow while others, which have something to do, are not."""
    ratio = record.pace.ratio(now)
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
