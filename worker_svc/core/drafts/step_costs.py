"""What drafts cost, measured: steps with drafts against the steps without around them, of about as many requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

NUM_TO_KNOW = 2
"""Steps of each kind before anything is concluded from them."""
PLAIN_EVERY, PLAIN_EVERY_UNSURE = 32, 8
"""Steps with drafts after which one is made without, as costs change: with the length of the sequences, and with what
else runs."""
NEWEST_WEIGHT = 0.03
PLAIN_WEIGHT, MOST_PLAIN_WEIGHT = 0.05, 0.15
"""Weight of a step without drafts: the first for each step since the last one."""
MOST_TIMES_MEAN = 3.0
"""A step that takes longer than so many average ones was held up by something else."""
MOST_EXTRA = 8.0
"""Most that a step with drafts is taken to last longer, in steps without drafts."""


class DraftCosts(NamedTuple):
    """What drafts cost, in shares of a step without drafts."""

    per_depth: float
    """Each draft of the row that has most: a run of the draft model."""
    per_draft: float
    """One draft more for each row."""


UNKNOWN_COSTS = DraftCosts(0.0, 0.1)
DOUBT = 0.1
"""Weight of these, so that noise does not make drafts free, and steps that are all alike tell something."""


@dataclass
class _Mean:
    """A moving mean and how many values it has seen."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float, weight: float) -> None:
        self.count += 1
        self.value += (value - self.value) * max(1 / self.count, weight)


@dataclass
class _Steps:
    """Decode steps of about as many rows."""

    plain_s: _Mean = field(default_factory=_Mean)
    num_since_plain: int = 0
    num_drafted: int = 0
    squares: np.ndarray = field(default_factory=lambda: np.zeros((2, 2)))
    products: np.ndarray = field(default_factory=lambda: np.zeros(2))
    """Moving means for least squares: of (depth, drafts per row) with itself, and with what the step took more."""

    @property
    def knows_plain(self) -> bool:
        return self.plain_s.count >= NUM_TO_KNOW

    def add_extra(self, depth: int, drafts_per_row: float, extra: float) -> None:
        self.num_drafted += 1
        weight = max(1 / self.num_drafted, NEWEST_WEIGHT)
        shape = np.array([depth, drafts_per_row])
        self.squares += (np.outer(shape, shape) - self.squares) * weight
        self.products += (shape * extra - self.products) * weight

    @property
    def draft_costs(self) -> DraftCosts:
        if self.num_drafted < NUM_TO_KNOW:
            return UNKNOWN_COSTS
        (aa, ab), (_, bb) = self.squares + DOUBT * np.eye(2)
        ae, be = self.products + DOUBT * np.array(UNKNOWN_COSTS)
        per_depth, per_draft = (
            (ae * bb - be * ab) / (aa * bb - ab**2),
            (be * aa - ae * ab) / (aa * bb - ab**2),
        )
        if per_depth < 0:
            per_depth, per_draft = 0.0, be / bb
        elif per_draft < 0:
            per_depth, per_draft = ae / aa, 0.0
        return DraftCosts(max(float(per_depth), 0.0), max(float(per_draft), 0.0))


class StepCosts:
    """Means by size: steps are put together whose numbers of rows have the same binary logarithm."""

    def __init__(self) -> None:
        self._by_size: dict[int, _Steps] = {}

    def add_plain(self, num_rows: int, seconds: float) -> None:
        """A step of decode rows alone took so long, and nobody was asked for drafts."""
        steps = self._of(num_rows)
        if steps.knows_plain:
            seconds = min(seconds, MOST_TIMES_MEAN * steps.plain_s.value)
        weight = min(PLAIN_WEIGHT * (1 + steps.num_since_plain), MOST_PLAIN_WEIGHT)
        steps.plain_s.add(seconds, weight)
        steps.num_since_plain = 0

    def add_drafted(
        self, num_rows: int, depth: int, num_drafts: int, seconds: float, *, is_first: bool
    ) -> float | None:
        """A step of decode rows alone took so long, the making of its drafts included; `depth` are those of the row
        that has most. Returns how much longer than a step without, in shares of one; None: that is not known.

        is_first: it did what is done once per request, and does not tell what further drafts cost.
        """
        steps = self._of(num_rows)
        steps.num_since_plain += 1
        if not steps.knows_plain:
            return None
        extra = min(seconds / steps.plain_s.value - 1, MOST_EXTRA)
        if is_first or not num_drafts:
            return extra
        if steps.num_drafted >= NUM_TO_KNOW:
            costs = steps.draft_costs
            expected = costs.per_depth * depth + costs.per_draft * num_drafts / num_rows
            extra = min(extra, MOST_TIMES_MEAN * (1 + expected) - 1)
        steps.add_extra(depth, num_drafts / num_rows, extra)
        return extra

    def wants_plain(self, num_rows: int, is_sure: bool) -> bool:
        """The next step of so many rows should have no drafts, to be measured. Without any measurement: never.

        is_sure: drafts pay for certain.
        """
        steps = self._of(num_rows)
        if not (steps.plain_s.count or steps.num_since_plain):
            return False
        return not steps.knows_plain or steps.num_since_plain >= (
            PLAIN_EVERY if is_sure else PLAIN_EVERY_UNSURE
        )

    def draft_costs(self, num_rows: int) -> DraftCosts:
        """What drafts cost in steps of so many rows."""
        return self._of(num_rows).draft_costs

    def _of(self, num_rows: int) -> _Steps:
        return self._by_size.setdefault(num_rows.bit_length(), _Steps())
