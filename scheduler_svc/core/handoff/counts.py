"""What became of hand-offs, for operators."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

MAX_FROZEN_TIMES = 1024
"""Last times that are remembered."""


@dataclass
class HandoffCounts:
    """Since the scheduler's process began."""

    num_begun: int = 0
    num_committed: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """By reason: a few fixed words."""
    num_blocks: int = 0
    """Blocks of the spine that went with those that were committed, cached ones included."""
    frozen_s: float = 0.0
    """Sum of the seconds for which nobody ran those that were committed."""
    frozen_times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FROZEN_TIMES))
    """Those of the last ones, in seconds."""
