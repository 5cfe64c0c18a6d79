"""One limit of one key, as far as the scheduler has lent it to this process (docs/design.md, KB)."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from signalbox.protocol.enums import BudgetKind
from signalbox.runtime.token_bucket import TokenBucket


class Changed(Protocol):
    """Hears that a limit has something to report; soon: somebody waits for it."""

    def __call__(self, limit: LentLimit, *, soon: bool) -> None:
        """Must not raise."""


@dataclass(frozen=True)
class LimitReport:
    """Use of one limit, as it is reported to a scheduler: BudgetReport of from_frontend.proto."""

    limit: int
    before: tuple[int, int] | None = None
    """What was held ahead of this report, and the most that the key had left in all; None: it was said before."""
    used: int = 0
    charged: int = 0
    returned: int = 0
    wanted: int = 0
    least: int = 0


@dataclass(frozen=True)
class Refusal:
    """Nothing was lent."""

    left: int
    """What the key has left in all."""
    wait_s: float
    """When to ask again, in seconds; 0: nobody knows."""


class _Waiter:
    """A call that needs a part of the limit."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()


class LentLimit:
    """What is lent is `held` until a call has it `in_use`, and is used for good or given back behind that."""

    def __init__(
        self,
        kind: BudgetKind,
        limit: int,
        bucket: TokenBucket | None,
        changed: Changed,
        clock: Callable[[], float],
    ) -> None:
        """bucket: what the key is thought to have left in all; None: of places nobody keeps that."""
        self.kind = kind
        self.limit = limit
        self.held = 0
        self.in_use = 0
        self.is_new = True
        """The scheduler has not heard yet how it stands from before."""
        self.is_idle = False
        """Nothing was wanted since somebody last looked."""
        self._bucket, self._changed, self._clock = bucket, changed, clock
        self._used = self._charged = self._returned = 0
        """Since the last report."""
        self._waiters: deque[_Waiter] = deque()
        self._requested = 0
        """Count of the waiter whose part is asked for; 0: none is."""

    @property
    def is_place(self) -> bool:
        """What is lent is given back at the end, not used up."""
        return self.kind is BudgetKind.REQUESTS_AT_ONCE

    @property
    def is_untouched(self) -> bool:
        """A scheduler that knows nothing of it knows all."""
        return not self.held and not self.in_use and self._left() >= self.limit

    # ---- what calls do

    async def reserve(self, count: int) -> Refusal | None:
        """Takes `count` into use; None: it was there, or was lent. The caller bounds the time."""
        self.is_idle = False
        if not self._waiters and self.held >= count:
            self._put_in_use(count)
            return None
        waiter = _Waiter(count)
        self._waiters.append(waiter)
        self._changed(self, soon=True)
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            if waiter.answer.done() and not waiter.answer.cancelled() and waiter.answer.result() is None:
                self.release(count)
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def occupy(self, count: int) -> None:
        """Takes `count` into use that nobody has lent: this process counts alone."""
        self.in_use += count

    def release(self, count: int) -> None:
        """Gives up what was in use, not used up."""
        self.in_use -= count
        self.held += count
        self._serve()

    def use(self, count: int) -> None:
        """What was in use is used up."""
        self.in_use -= count
        self._used += count
        self._changed(self, soon=False)

    def charge(self, count: int) -> None:
        """Uses what was never lent."""
        self._charged += count
        self._changed(self, soon=False)

    def give_back(self) -> None:
        """Returns what is held and nobody waits for."""
        if self.held and not self._waiters:
            self._returned, self.held = self._returned + self.held, 0
            self._changed(self, soon=True)

    def drop(self) -> None:
        """The key has no such limit any more: nobody has to wait, and all goes back."""
        held = self.held + self.in_use
        self.go_alone()
        self._returned += held
        self.in_use = 0
        self._changed(self, soon=True)

    # ---- what the link does

    def begin(self, *, was_alone: bool) -> None:
        """A link to a scheduler that lends has begun: nothing was said on it. was_alone: nothing was lent until now."""
        self.is_new, self._requested = True, 0
        self._used = self._returned = 0
        if was_alone:
            self.held = self._charged = 0
        if not self.is_untouched or self._waiters:
            self._changed(self, soon=True)

    def go_alone(self) -> None:
        """Nobody lends any more: nobody has to wait."""
        while self._waiters:
            self.held = max(self.held, self._waiters[0].count)
            self._serve()
        self.held = 0

    def report(self) -> LimitReport | None:
        """What is to be told now, as if it was sent at once; None: nothing."""
        before = None
        if self.is_new:
            gone = self._used + self._returned
            before = self.held + self.in_use + gone, self._left() + self._used + self._charged
        wanted = least = 0
        if self._waiters and not self._requested:
            self._requested = self._waiters[0].count
            least = self._requested - self.held
            wanted = sum(waiter.count for waiter in self._waiters) - self.held
        report = LimitReport(self.limit, before, self._used, self._charged, self._returned, wanted, least)
        if report == LimitReport(self.limit):
            return None
        self.is_new, self._used, self._charged, self._returned = False, 0, 0, 0
        return report

    def take_loan(self, lent: int, left: int, wait_s: float) -> None:
        """The scheduler's answer to the last report that wanted something."""
        least, self._requested = self._requested, 0
        self.held += lent
        if self._bucket is not None:
            self._bucket.refill(self._clock())
            self._bucket.level = left - self._used - self._charged
        if not lent:
            self._refuse(Refusal(left, wait_s), at_least=least)
        self._serve()
        if self._waiters:
            self._changed(self, soon=True)
        elif not lent:
            self.give_back()  # it is scarce, and too little for those who were here

    def _left(self) -> int:
        """What the key is thought to have left in all."""
        if self._bucket is None:
            return self.limit - self.in_use
        self._bucket.refill(self._clock())
        return math.ceil(self._bucket.level)

    def _serve(self) -> None:
        while self._waiters and self._waiters[0].count <= self.held:
            waiter = self._waiters.popleft()
            if not waiter.answer.done():
                self._put_in_use(waiter.count)
                waiter.answer.set_result(None)

    def _refuse(self, refusal: Refusal, at_least: int) -> None:
        """What one could not have, those who want more cannot either."""
        for waiter in [waiter for waiter in self._waiters if waiter.count >= at_least]:
            self._waiters.remove(waiter)
            if not waiter.answer.done():
                waiter.answer.set_result(refusal)

    def _put_in_use(self, count: int) -> None:
        self.held -= count
        self.in_use += count
