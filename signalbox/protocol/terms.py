"""The bound of terms (docs/liveness.md, T1)."""

from __future__ import annotations

MAX_TERM = 1 << 62
"""No scheduler has a higher term: one led anew every nanosecond would need a century. What names a higher one is wrong,
and would leave no number for whoever comes behind it."""
