"""A request that waits for what another one computes (`prefix_sharing.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scheduler_svc.core.request import Request


class PrefixWait(NamedTuple):
    """The block that a request waits for, and who computes it."""

    leader: Request
    """The request that computes the block."""
    end: int
    """Where the block ends, in tokens."""
