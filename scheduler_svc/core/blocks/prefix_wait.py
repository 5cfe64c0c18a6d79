"""A request that waits for what another one computes (`prefix_sharing.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scheduler_svc.core.request import Request


class PrefixWait(NamedTuple):
    """Which block it waits for."""

    leader: Request
    """Who computes the block."""
    end: int
    """Where the block ends, in tokens."""
