"""What a step changes for requests that go from one worker to another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.requests.handoff import AnyHandoff


class ImportStart(NamedTuple):
    """The block tables of a slot that is taken over."""

    slot: int
    blocks: Blocks
    num_found: int
    """Blocks at the head of its tables whose content is there."""
    windows: tuple[tuple[int, Blocks], ...]
    """Its table in each group but the spine: index of the first block, and the blocks."""


@dataclass
class HandoffOrders:
    """Orders of one step to one worker."""

    arriving: list[AnyHandoff] = field(default_factory=list)
    """Requests that this worker is to take over: they travel ahead of the step."""
    import_starts: list[ImportStart] = field(default_factory=list)
    committed: list[tuple[int, int]] = field(default_factory=list)
    """(slot, leg) of those that have been taken over."""
    exports: list[AnyHandoff] = field(default_factory=list)
    """Requests that others may read here."""
    kept_slots: list[int] = field(default_factory=list)
    """Slots that are read no more, and were not frozen."""
    frozen_slots: list[int] = field(default_factory=list)
    thawed: list[tuple[int, int]] = field(default_factory=list)
    """(slot, leg) of frozen ones that go on."""
