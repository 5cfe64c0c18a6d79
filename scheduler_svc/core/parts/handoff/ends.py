"""The ends of hand-offs at one worker, and what it has not been told of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler_svc.core.state.requests.handoff import AnyHandoff


@dataclass
class HandoffEnds:
    """Hand-offs under way, by slot, and orders for the next step that is no suspect's."""

    exports: dict[int, AnyHandoff] = field(default_factory=dict)
    """Requests that run here, and that others are to have."""
    imports: dict[int, AnyHandoff] = field(default_factory=dict)
    """Requests that this worker is to have."""
    arriving: list[AnyHandoff] = field(default_factory=list)
    begun: list[AnyHandoff] = field(default_factory=list)
    freezing: list[AnyHandoff] = field(default_factory=list)
    """Whose target is ready. They are frozen as soon as it has the blocks to go on with."""
    kept: list[int] = field(default_factory=list)
    thawed: dict[int, int] = field(default_factory=dict)
    """Leg by slot."""
    committed: dict[int, int] = field(default_factory=dict)
    """Leg by slot."""
    said: dict[int, int] = field(default_factory=dict)
    """By slot: the number of the step that has said last that its request goes on here (committed, thawed)."""
    broken: list[tuple[AnyHandoff, str]] = field(default_factory=list)
    """A step has been made with which these cannot go on, and why: whoever made it ends them."""

    @property
    def has_orders(self) -> bool:
        """The next step says something of a hand-off."""
        return bool(
            self.arriving or self.begun or self.freezing or self.kept or self.thawed or self.committed
        )

    @property
    def is_busy(self) -> bool:
        """A hand-off is under way here, or the worker has not heard how one has ended."""
        return bool(self.exports or self.imports or self.has_orders)

    def note(self, slots: Iterable[int], step_id: int) -> None:
        """A step says that the requests of these slots go on here."""
        for slot in slots:
            self.said[slot] = step_id

    def unheard(self, oldest: int) -> set[int]:
        """Slots whose requests go on here, and of which the worker may not have heard that. oldest: number of the
        first step that it has not reported."""
        return {*self.committed, *self.thawed, *(slot for slot, step in self.said.items() if step >= oldest)}

    def break_export(self, slot: int, reason: str) -> None:
        """The slot loses its blocks, or gets some, with the step that is being made."""
        handoff = self.exports.get(slot)
        if handoff is not None:
            self.broken.append((handoff, reason))

    def forget(self, slot: int) -> None:
        """The slot has ended: the worker is told that, and nothing else of it."""
        self.thawed.pop(slot, None)
        self.committed.pop(slot, None)
        self.said.pop(slot, None)
        if slot in self.kept:
            self.kept.remove(slot)

    def leave(self, handoff: AnyHandoff) -> None:
        """The hand-off is over: what was to be said of it is not said."""
        for by_slot in (self.exports, self.imports):
            for slot in [slot for slot, each in by_slot.items() if each is handoff]:
                del by_slot[slot]
        for waiting in (self.arriving, self.begun, self.freezing):
            if handoff in waiting:
                waiting.remove(handoff)
