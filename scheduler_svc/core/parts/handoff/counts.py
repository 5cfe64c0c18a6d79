"""What became of hand-offs, for operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class HandoffCounts:
    """Since the scheduler's process began."""

    num_begun: int = 0
    num_committed: int = 0
    num_by_role: int = 0
    """Begun because another worker is there to decode (PD3)."""
    failed: Counter[str] = field(default_factory=Counter)
    """By reason: a few fixed words."""
    num_blocks: int = 0
    """Blocks of the spine that went with those that were committed, cached ones included."""
    frozen_s: float = 0.0
    """Sum of the seconds for which nobody ran those that were committed."""
