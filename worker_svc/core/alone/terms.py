"""Whom a worker obeys (docs/liveness.md, T1 and T2)."""

from __future__ import annotations

from signalbox.protocol.terms import MAX_TERM

MAX_INSTANCE_CHARS = 256
"""A UUID, with room for other ways to name a process; hellos repeat it."""


class Terms:
    """The highest term that was obeyed, and whose it is."""

    def __init__(self) -> None:
        self.highest = 0
        """0: nobody was obeyed yet."""
        self.instance = ""
        """Process that has it; empty: it did not say."""

    def refusal_of(self, term: int, instance: str) -> str | None:
        """Why a scheduler is not obeyed, as a sentence; None: it is. Term 0: it does not say."""
        if term > MAX_TERM:
            return f"its term {term} is above {MAX_TERM}, which no scheduler can have"
        if term and term < self.highest:
            return f"its term {term} is below {self.highest}"
        is_other = bool(instance and self.instance) and instance != self.instance
        if term and term == self.highest and is_other:
            return f"its term {term} was another scheduler's ({self.instance})"
        if len(instance) > MAX_INSTANCE_CHARS or not instance.isprintable():
            return "its instance is no name"
        return None

    def obey(self, term: int, instance: str) -> None:
        """Remembers the term of the scheduler that has taken us."""
        self.highest, self.instance = max(term, self.highest), instance

    def rise(self, term: int) -> None:
        """The scheduler that we obey sends steps with this term by now. Raises ValueError where none can have it."""
        if term > MAX_TERM:
            raise ValueError(f"its term {term} is above {MAX_TERM}, which no scheduler can have")
        self.highest = max(term, self.highest)
