"""A pull before it is ordered."""

from __future__ import annotations

from typing import NamedTuple

from scheduler_svc.core.parts.fetch.longer_prefix import LongerPrefix


class PullPlan(NamedTuple):
    """A pull that would be worth while."""

    source_id: str
    longer: LongerPrefix
    num_tokens: int
    load_us: float
    """How long it takes, about, in microseconds."""
    most_us: int
    """How long it may take."""
