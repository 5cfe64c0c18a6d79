"""How many random scenarios are tried."""

from __future__ import annotations

import os

FULL_COUNTS = bool(os.environ.get("SIGNALBOX_SIMULATION"))
"""As many as `make soak` tries; else a few, each time the same ones."""
FINDERS = frozenset(
    {
        *("any", "calm", "alone", "nan", "pressed", "reach", "refused", "twins"),
        *("windows", "windows nan", "handoff calm", "handoff nan"),
        *("pulls", "pulls calm", "pulls nan", "pulls that are struck"),
    }
)
"""Profiles whose rings find most of the planted bugs per processor second (docs/reliability.md, "Simulation")."""
FULL_RINGS, FINDERS_RINGS, OTHERS_RINGS = 50, 4, 1


def num_rings(profile: str) -> int:
    """Of a test of random rings."""
    if FULL_COUNTS:
        return FULL_RINGS
    return FINDERS_RINGS if profile in FINDERS else OTHERS_RINGS
