"""Limits of keys that the scheduler lends to this process: who lends, and what is to be said about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from frontend_svc.access.lent_limit import LentLimit, LimitReport, Refusal
from signalbox.errors import UnavailableError
from signalbox.protocol.enums import BudgetKind
from signalbox.runtime.token_bucket import TokenBucket

KEEP_TICKS = 20
"""Ticks between two looks at what is lent: what was wanted since neither of them goes back."""
Name = tuple[str, BudgetKind]
"""A limit's name: the key's id, and which."""


class Lender:
    """What is lent to this process. Without a link it goes on with what it has, which is nothing ahead of its first
    one (KB5); beside a scheduler that does not lend it counts alone."""

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float], answer_s: float) -> None:
        """wake: called when the link is to take reports, at once. answer_s: how long a call waits for a loan."""
        self.is_lent = True
        """Limits are lent; otherwise this process counts alone."""
        self._is_linked = False
        self._wake, self._clock, self._answer_s = wake, clock, answer_s
        self._limits: dict[Name, LentLimit] = {}
        self._changed: dict[Name, LentLimit] = {}
        """Limits that have something to report."""
        self._num_ticks = 0

    def add(self, key_id: str, kind: BudgetKind, limit: int, bucket: TokenBucket | None) -> LentLimit:
        """A limit that a key has from now on. bucket: what the key is thought to have left of it."""
        name = key_id, kind

        def changed(limit: LentLimit, *, soon: bool) -> None:
            if self._is_linked:
                self._changed[name] = limit
                if soon:
                    self._wake()

        self._limits[name] = LentLimit(kind, limit, bucket, changed, self._clock)
        return self._limits[name]

    def drop(self, key_id: str, kind: BudgetKind) -> None:
        """The key has no such limit any more. It is kept: a loan may be on its way, and goes back."""
        self._limits[key_id, kind].drop()

    async def reserve(self, lent: LentLimit, count: int) -> Refusal | None:
        """Takes a part of a limit into use; None: it was lent. Raises UnavailableError when there is none, and nobody
        to lend more."""
        try:
            async with asyncio.timeout(self._answer_s):
                return await lent.reserve(count)
        except TimeoutError:
            message = "the scheduler, which lends this key its limits, cannot be reached"
            raise UnavailableError(message) from None

    def release(self, lent: LentLimit, count: int) -> None:
        """Gives up what was in use. Places go back at once: another process may wait for them."""
        lent.release(count)
        if lent.is_place and self._is_linked:
            lent.give_back()

    def tick(self) -> None:
        """Says what was used, and gives back what was not wanted for long; every tenth of a second or so."""
        if not self._is_linked:
            return
        self._num_ticks += 1
        if self._num_ticks % KEEP_TICKS == 0:
            for lent in self._limits.values():
                if lent.is_idle:
                    lent.give_back()
                lent.is_idle = True
        if self._changed:
            self._wake()

    # ---- the link's side

    def begin(self, *, lends: bool) -> None:
        """A link has begun."""
        was_alone = not self.is_lent
        self.is_lent = self._is_linked = lends
        for lent in self._limits.values():
            if lends:
                lent.begin(was_alone=was_alone)
                if lent.is_place:
                    lent.give_back()
            else:
                lent.go_alone()

    def end(self) -> None:
        """The link has ended, or there was none."""
        self._is_linked = False
        self._changed.clear()

    def take_reports(self) -> list[tuple[Name, LimitReport]]:
        """What the next message says."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        reports = [(name, lent.report()) for name, lent in changed.items()]
        return [(name, report) for name, report in reports if report is not None]

    def take_loan(self, name: Name, lent: int, left: int, wait_s: float) -> None:
        """The scheduler has answered."""
        if name in self._limits:
            self._limits[name].take_loan(lent, left, wait_s)
