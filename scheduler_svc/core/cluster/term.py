"""Which scheduler process this is, and its term (docs/liveness.md, T1)."""

from __future__ import annotations

from signalbox.protocol.terms import MAX_TERM


class TermError(ValueError):
    """A term is named that no scheduler can have had, or that leaves none for us."""


class Term:
    """A number that no other process uses on the same worker: it rises above whatever others are heard to have had, and
    never falls."""

    def __init__(self, instance: str, first: int) -> None:
        """`instance`: UUID of the process; empty: it is not named, and every term that is met is another's."""
        self.instance = instance
        self.number = first

    def is_own(self, instance: str) -> bool:
        """Whether that process is this one."""
        return bool(instance) and instance == self.instance

    def check(self, number: int, instance: str = "") -> None:
        """Raises TermError for a term that cannot be met (T4)."""
        highest = MAX_TERM if self.is_own(instance) else MAX_TERM - 1
        if number > highest:
            raise TermError(f"its term {number} is above {highest}, which no scheduler can have had")

    def meet(self, number: int, instance: str = "") -> bool:
        """A hello names the term of a process; empty: it does not say whose. True: ours has risen above it. Raises as
        `check`."""
        self.check(number, instance)
        if number < self.number or self.is_own(instance):
            return False
        self.number = number + 1
        return True
