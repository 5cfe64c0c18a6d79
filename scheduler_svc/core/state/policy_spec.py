"""Which policies are in force, and how they are put together."""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("fcfs", "priority", "fair", "deadline")


@dataclass(frozen=True)
class PolicySpec:
    """Three layers, each of its own choice: classes outside, tenants inside a class, requests inside a tenant."""

    has_classes: bool = False
    """Requests of a lower priority number go first, and may displace others; else there is one class."""
    is_fair: bool = False
    """Tenants of a class share by what they have had; else whose request goes first goes first."""
    has_deadlines: bool = False
    """Whether the earliest deadline of a tenant's requests goes first; else whoever came first."""


def parse_policy(text: str) -> PolicySpec:
    """`fcfs`, or parts joined by `+`: `priority+fair`.

    Raises ValueError with a sentence for a part that is unknown or named twice, or `fcfs` beside another.
    """
    parts = text.split("+")
    for part in parts:
        if part not in PARTS:
            raise ValueError(f"policy: {part!r} is none of {', '.join(PARTS)}")
    if len(set(parts)) < len(parts):
        raise ValueError(f"policy: {text!r} names a part twice")
    if "fcfs" in parts and len(parts) > 1:
        raise ValueError("policy: fcfs is what holds without other parts; name it alone or not at all")
    return PolicySpec("priority" in parts, "fair" in parts, "deadline" in parts)
