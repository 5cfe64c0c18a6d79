"""A request that waits for what another one computes (`prefix_sharing.py`)."""

from __future__ import annotations

from typing import NamedTuple


class PrefixWait(NamedTuple):
    """Which block it waits for."""

    leader: object
    """The request that computes the block; to be compared, by identity."""
    slot: int
    """The leader's, as long as it leads."""
    leader_id: str
    """Its request id."""
    end: int
    """Where the block ends, in tokens."""
    is_state: bool = False
    """It waits for the state there: the blocks alone are of no use to it."""
