"""What a draft token costs, measured: steps with drafts against steps without, of about as many requests."""

from __future__ import annotations

from dataclasses import dataclass, field

NUM_TO_KNOW = 2
"""Steps of each kind before anything is concluded from them."""
PLAIN_EVERY = 32
"""Among steps with drafts one without, as its costs change with the length of the sequences."""
UNKNOWN_RATIO = 0.1
NEWEST_WEIGHT = 0.1
MOST_TIMES_MEAN = 3.0
"""A step that takes longer than so many average ones was held up by something else."""


@dataclass
class _Mean:
    """Moving mean over about 1 / NEWEST_WEIGHT values."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        if self.count >= NUM_TO_KNOW:
            value = min(value, MOST_TIMES_MEAN * self.value)
        self.count += 1
        self.value += (value - self.value) * max(1 / self.count, NEWEST_WEIGHT)


@dataclass
class _Steps:
    """Decode steps of about as many rows."""

    plain_s: _Mean = field(default_factory=_Mean)
    drafted_s: _Mean = field(default_factory=_Mean)
    num_drafts: _Mean = field(default_factory=_Mean)
    num_since_plain: int = 0

    @property
    def is_known(self) -> bool:
        return min(self.plain_s.count, self.drafted_s.count) >= NUM_TO_KNOW


class StepCosts:
    """Means by size: steps are put together whose numbers of rows have the same binary logarithm."""

    def __init__(self) -> None:
        self._by_size: dict[int, _Steps] = {}

    def add(self, num_rows: int, num_drafts: int, seconds: float) -> None:
        """A step of decode rows alone took so long, the making of its drafts included."""
        steps = self._of(num_rows)
        if num_drafts:
            steps.num_since_plain += 1
            steps.drafted_s.add(seconds)
            steps.num_drafts.add(num_drafts)
        else:
            steps.num_since_plain = 0
            steps.plain_s.add(seconds)

    def wants_plain(self, num_rows: int) -> bool:
        """The next step of so many rows should have no drafts, to be measured. Without any measurement: never."""
        steps = self._of(num_rows)
        if not (steps.plain_s.count or steps.drafted_s.count):
            return False
        return steps.plain_s.count < NUM_TO_KNOW or steps.num_since_plain >= PLAIN_EVERY

    def draft_ratio(self, num_rows: int) -> float:
        """What one more draft token costs, in shares that one row has of a step without drafts."""
        steps = self._of(num_rows)
        if not steps.is_known:
            return UNKNOWN_RATIO
        extra_s = max(steps.drafted_s.value - steps.plain_s.value, 0.0) / steps.num_drafts.value
        return extra_s * num_rows / steps.plain_s.value

    def _of(self, num_rows: int) -> _Steps:
        return self._by_size.setdefault(num_rows.bit_length(), _Steps())
