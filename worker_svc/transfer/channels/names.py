"""The channels by their names in settings."""

from __future__ import annotations

NIXL, SHARED_MEMORY, TCP = "nixl", "shared-memory", "tcp"
ALL = (NIXL, SHARED_MEMORY, TCP)
DEFAULT = (SHARED_MEMORY, TCP)


def read_names(text: str) -> tuple[str, ...]:
    """The channels of a list with commas, in its order. ValueError if one is none, or is named twice."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in ALL:
            raise ValueError(f"{name!r} is no channel: {', '.join(ALL)} are")
    if len(set(names)) < len(names):
        raise ValueError(f"{text!r} names a channel twice")
    return names
