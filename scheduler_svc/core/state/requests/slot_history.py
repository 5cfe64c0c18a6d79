"""What has happened to one request on the worker that has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_svc.core.state.blocks.copy_group import CopyGroup
from scheduler_svc.core.state.requests.prefix_wait import PrefixWait


@dataclass(slots=True)
class SlotHistory:
    """What a worker keeps of a request besides the columns, with what it waits for before it starts. All zero, False
    and None before it is placed."""

    num_cached_tokens: int = 0
    """Tokens that the prefix cache saved when it started first."""
    num_preemptions: int = 0
    preempted_at: int = 0
    """Step whose delta took its blocks."""
    num_displacements: int = 0
    was_refused: bool = False
    """The worker did not run one of its rows: nobody waits for what it computes."""
    has_yet_to_start: bool = False
    """It was handed over before it had started anywhere: what it computes has not been charged."""
    num_failed_handoffs: int = 0
    """In a row."""
    no_handoff_before: float = 0.0
    """When it may be handed over unasked again, in seconds."""
    no_move_before: float = 0.0
    """When a policy that is no drain's may move it again, in seconds."""
    was_moved_by_role: bool = False
    """Its hand-off was begun because another worker is there to decode (PD3)."""
    prefix_wait: PrefixWait | None = field(default=None, repr=False)
    """The block of its prefix that another request computes, and that it waits for; None: there is none."""
    loaded_on: str = ""
    """The worker's process that has loaded something for it from disk, since it last started: once there."""
    fence: CopyGroup | None = field(default=None, repr=False)
    """Copies beside the steps that it waits for, or has waited for, since it last started: it waits once only."""
