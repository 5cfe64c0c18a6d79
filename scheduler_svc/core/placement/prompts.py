"""Which workers compute which prompts (PD2)."""

from __future__ import annotations

from signalbox.protocol.enums import WorkerRole


def leaves_prompt(role: WorkerRole, *, others_have_room: bool) -> bool:
    """A worker of that role leaves a prompt to others. `others_have_room`: one of another role than `decode` could
    start it now."""
    return role is WorkerRole.DECODE and others_have_room
