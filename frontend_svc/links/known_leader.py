"""The newest scheduler that workers say to obey (docs/liveness.md, T6). No clock, no network."""

from __future__ import annotations

import asyncio

from signalbox.protocol.terms import MAX_TERM

MAX_INSTANCE_CHARS = 256
"""Length of the longest instance that is heard."""
FIRST_STAY_S, LONGEST_STAY_S = 1.0, 30.0


class KnownLeader:
    """Says which scheduler is to be left, and when."""

    def __init__(self) -> None:
        self.term = 0
        self.instance = ""
        """The process that has the term."""
        self._num_left = 0
        """Links that were left for it."""
        self._news = asyncio.Event()

    def hear(self, term: int, instance: str) -> None:
        """A worker obeys this scheduler."""
        if self.term < term <= MAX_TERM and 0 < len(instance) <= MAX_INSTANCE_CHARS:
            self.term, self.instance, self._num_left = term, instance, 0
            self._news.set()

    def is_newer_than(self, term: int, instance: str) -> bool:
        """Whether another scheduler is known to have a higher term. One that does not say who it is is not judged."""
        return self.term > term and instance not in ("", self.instance)

    async def until_newer_than(self, term: int, instance: str) -> None:
        """Returns once `is_newer_than`."""
        while not self.is_newer_than(term, instance):
            self._news.clear()
            await self._news.wait()

    def next_stay_s(self) -> float:
        """How long the scheduler is kept that is to be left, in seconds: 0 at first, and longer each time, as the newer
        one may be out of reach from here."""
        stay_s = (
            min(FIRST_STAY_S * 2.0 ** min(self._num_left - 1, 10), LONGEST_STAY_S) if self._num_left else 0.0
        )
        self._num_left += 1
        return stay_s
