"""The workers on which calls are counted."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """What a worker says of itself in its hello."""

    PLAIN = "plain"
    """Nothing beyond decode rows and a pool of blocks."""
    FEATURES = "features"
    """Windows, checkpoints, host tier, disk tier, hand-off, pulls and two lanes, none of which has any work."""
    DRAFTS = "drafts"
    """Draft tokens by prompt lookup, all of which are right."""
