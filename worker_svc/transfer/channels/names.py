"""The channels by their names in settings."""

from __future__ import annotations

from signalbox.runtime.removed import refusal

SHARED_MEMORY, TCP = "shared-memory", "tcp"
ALL = (SHARED_MEMORY, TCP)
"""All channels, the best first."""


def read_names(text: str) -> tuple[str, ...]:
    """The channels of a list with commas, in its order. ValueError if one is none, or is named twice."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in ALL:
            removed = refusal(f"SIGNALBOX_WORKER_TRANSFER_CHANNELS={name}", f"the channel {name}")
            raise ValueError(removed or f"{name!r} is no channel: {', '.join(ALL)} are")
    if len(set(names)) < len(names):
        raise ValueError(f"{text!r} names a channel twice")
    return names
