"""What automata have worked, until the scheduler is told of it (docs/design.md, Q7, Q8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from worker_svc.core.requests.automaton import Automaton

REPORT_US = 1000
"""Microseconds that have to gather before a slot is named: the columns of most steps stay short."""


class MaskWork:
    """Microseconds per slot. The step thread owns it; automata may go on working in other threads."""

    def __init__(self) -> None:
        self.reported: dict[int, int] = {}
        """What an automaton had worked when its slot was named last, or when it came."""
        self.left: list[tuple[int, int]] = []
        """(slot, microseconds) of requests that have gone, to be named with the next report."""

    def begin(self, slot: int, automaton: Automaton) -> None:
        """An automaton has come: what it did for earlier output is not charged."""
        self.reported[slot] = automaton.work_us

    def leave(self, slot: int, automaton: Automaton) -> None:
        """The request of a slot goes with the step that is being applied."""
        left_us = automaton.work_us - self.reported.pop(slot, automaton.work_us)
        if left_us:
            self.left.append((slot, left_us))

    def forget(self, slot: int) -> None:
        """The slot is another request's now."""
        self.left = [each for each in self.left if each[0] != slot]

    def forget_left(self) -> None:
        """No report follows that may name requests that have gone."""
        self.left.clear()

    def take(self, automata: Mapping[int, Automaton], ended: Iterable[int]) -> list[tuple[int, int]]:
        """What a report names: (slot, microseconds). ended: slots whose requests end with it."""
        taken, self.left, last = self.left, [], set(ended)
        for slot, reported_us in self.reported.items():
            work_us = automata[slot].work_us
            new_us = work_us - reported_us
            if new_us >= REPORT_US or (new_us and slot in last):
                taken.append((slot, new_us))
                self.reported[slot] = work_us
        return taken
