"""Copies that a worker makes beside its steps, as they are named on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class CopyGroup:
    """From the step whose delta carries the copies until the worker says that they have ended. A step carries one group
    at most, so the fence has the number of its step."""

    fence_id: int
    copies: list[tuple[int, int]] = field(default_factory=list)
    """(source, target) blocks, in order, behind the copies of the step itself; host blocks carry HOST_BIT."""
