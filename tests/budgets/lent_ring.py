"""Frontends that share keys through a scheduler, over links that take time and break: their own code on both sides and
its messages between, on a clock that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from frontend_svc.access.keys import Key
from frontend_svc.access.lender import Lender
from frontend_svc.access.quota import KeyQuota, QuotaLease
from frontend_svc.links.budgets import make_report, take_loan
from scheduler_svc.links.budget_desk import BudgetDesk
from scheduler_svc.links.directory import FrontendLink
from signalbox.api_keys import make_key
from signalbox.errors import ResourceExhaustedError, UnavailableError
from signalbox.v1 import from_frontend_pb2, to_frontend_pb2

KEY_ID = "0badcafe"
HOLD_S = 10.0
TICK_S = 0.1
ANSWER_S = 2.0
"""Of the test's own clock: a ring's runs ahead of it."""
LONGEST_WAY_S = 0.03
"""What a message takes at most."""
HASH = make_key().hash


class LentRing:
    """The clock, what is to happen, and whoever leads."""

    def __init__(self, seed: int, num_frontends: int, **limits: int) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        self.key = Key(hash=HASH, tenant="t", **limits)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.num_takeovers = 0
        self.desk = self._make_desk()
        self.frontends = [LentFrontend(self, f"f{number}") for number in range(num_frontends)]

    def _make_desk(self) -> BudgetDesk:
        return BudgetDesk(lambda: self.now, HOLD_S)

    def take_over(self) -> None:
        """Another scheduler leads, which knows nothing; all links have ended."""
        self.num_takeovers += 1
        for frontend in self.frontends:
            frontend.cut()
        self.desk = self._make_desk()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Has something happen."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), action))

    async def run(self, seconds: float) -> None:
        """Lets so much time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
            await settle()
        self.now = end


async def settle() -> None:
    """Tasks run until each of them waits for a message."""
    for _ in range(6):
        await asyncio.sleep(0)


class LentFrontend:
    """A frontend process: its key's quota, what is lent to it, and its link."""

    def __init__(self, ring: LentRing, instance: str) -> None:
        self.ring = ring
        self.num_open = 0
        """Requests of this process that run."""
        self.cut_at = ring.now
        """When its last link ended."""
        self.link: FrontendLink | None = None
        self.on_linked: Callable[[], None] = lambda: None
        """Called when a link has begun: what is told from now on reaches the scheduler, unless the link ends."""
        self.tasks: set[asyncio.Task[None]] = set()
        self._start(instance)

    def _start(self, instance: str) -> None:
        self.instance = instance
        self.lender = Lender(self._write, lambda: self.ring.now, ANSWER_S)
        self.quota = KeyQuota(self.ring.key, lambda: self.ring.now, key_id=KEY_ID, lender=self.lender)
        self._tick(self.lender)

    def _tick(self, lender: Lender) -> None:
        if lender is self.lender:
            lender.tick()
            self.ring.after(TICK_S, lambda: self._tick(lender))

    # ---- the link

    @property
    def is_linked(self) -> bool:
        """Whether a link has begun."""
        return self.lender._is_linked

    def attach(self) -> None:
        """Says hello to whoever leads."""
        if self.link is not None:
            return
        link = self.link = FrontendLink(self.instance)
        desk = self.ring.desk
        desk.begin(link)
        self._deliver_down(link, is_first=True)

    def cut(self) -> None:
        """The link ends; what is under way on it is lost."""
        link, self.link = self.link, None
        if link is not None:
            self.cut_at = self.ring.now
            self.ring.desk.end(link)
            self.lender.end()

    def restart(self) -> int:
        """The process ends, and another one takes its place. The requests that it leaves behind: the scheduler ends
        them when the grace time after its link has passed."""
        self.cut()
        for task in self.tasks:
            task.cancel()
        self._start(f"{self.instance}'")
        num_open, self.num_open = self.num_open, 0
        return num_open

    def _write(self) -> None:
        link = self.link
        if link is not None and not hasattr(link, "pending"):
            link.pending = True  # type: ignore[attr-defined]
            self.ring.after(0.0, lambda: self._send(link))

    def _send(self, link: FrontendLink) -> None:
        if link is not self.link:
            return
        del link.pending  # type: ignore[attr-defined]
        message = from_frontend_pb2.AttachFrontendRequest(
            budgets=[make_report(name, report) for name, report in self.lender.take_reports()]
        )
        wire, desk = message.SerializeToString(), self.ring.desk
        self.ring.after(self._delay(link, "up"), lambda: self._arrive(link, desk, wire))

    def _arrive(self, link: FrontendLink, desk: BudgetDesk, wire: bytes) -> None:
        """A message that was sent reaches the scheduler, even if the frontend has gone meanwhile."""
        if desk is self.ring.desk:
            desk.take(link, from_frontend_pb2.AttachFrontendRequest.FromString(wire).budgets)
            desk.ledger.check_integrity()
            self._deliver_down(link)

    def _deliver_down(self, link: FrontendLink, *, is_first: bool = False) -> None:
        if not len(link.outbox):
            return
        items = link.outbox._items
        wires = [item.SerializeToString() for item in items]
        items.clear()
        self.ring.after(self._delay(link, "down"), lambda: self._hear(link, wires, is_first))

    def _hear(self, link: FrontendLink, wires: list[bytes], is_first: bool) -> None:
        if link is not self.link:
            return
        for wire in wires:
            message: Any = to_frontend_pb2.AttachFrontendResponse.FromString(wire)
            if is_first:
                self.lender.begin(lends=message.lends_budgets)
                self.on_linked()
            for loan in message.loans:
                take_loan(self.lender, loan)

    def _delay(self, link: FrontendLink, way: str) -> float:
        """Seconds until a message is there; it overtakes none."""
        name = f"{way}_at"
        at = max(self.ring.now + self.ring.random.uniform(0.0005, LONGEST_WAY_S), getattr(link, name, 0.0))
        setattr(link, name, at)
        return at - self.ring.now

    # ---- calls

    async def call(self, count: int, prompt: int) -> QuotaLease | None:
        """Makes a call of `count` requests with a prompt of so many tokens; None: it is refused."""
        try:
            lease = await self.quota.admit(count)
        except (ResourceExhaustedError, UnavailableError):
            return None
        try:
            if prompt:
                await lease.take_prompt(prompt)
        except (ResourceExhaustedError, UnavailableError):
            lease.close()
            return None
        return lease
