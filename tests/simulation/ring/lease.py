"""Leases that the schedulers of a ring share: one that is let go with the process that held it, as a locked file, and
a store behind a network, over which the real `PolledLease` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from scheduler_svc.lease.lease import Holder
from scheduler_svc.lease.polled_lease import RENEWALS
from scheduler_svc.lease.rest import RestError
from signalbox.errors import LeaseLostError
from tests.simulation.ring.clock import Process, World, current_process

POLL_S = 0.05
RENEW_S = 1.0
T = TypeVar("T")


@dataclass
class SharedLease:
    """Who has it."""

    world: World
    counter: int = 0
    holder: SimLease | SimStore | None = None
    renewed_at: float = 0.0
    is_lenient: bool = False
    """It tells holders that it is theirs when it is not any more: two believe in it."""
    failures: float = 0.0
    """Share of calls to the store that fail."""
    slow_s: float = 0.0
    """Longest time that the store takes to answer, beside a usual one."""
    ahead_s: float = 0.0
    """By how much the store's clock has jumped."""

    @property
    def now(self) -> float:
        """By the store's clock."""
        return self.world.now + self.ahead_s

    def give(self, to: SimLease | SimStore) -> int:
        """It is theirs from now on."""
        self.counter += 1
        self.holder, self.renewed_at = to, self.now
        return self.counter


class SimLease:
    """See `scheduler_svc.lease.lease.Lease`: free when the process of its holder has ended."""

    def __init__(self, store: SharedLease, us: Holder) -> None:
        self._store, self.us = store, us
        self.process: Process = current_process()
        self.is_held = False
        self.predecessor_address = ""
        """Nobody is told: the store is always there."""

    def depose(self, counter: int) -> None:
        """Another process has it by `counter`."""

    @property
    def holder_address(self) -> str:
        """Of whoever holds it."""
        holder = self._store.holder
        return holder.us.address if holder is not None else ""

    async def acquire(self) -> int:
        """Waits until it is ours."""
        store = self._store
        while store.holder is not None and store.holder.process.alive:
            await asyncio.sleep(POLL_S)
        self.is_held = True
        return store.give(self)

    async def keep(self) -> NoReturn:
        """Renews it."""
        while True:
            await asyncio.sleep(RENEW_S)
            if self._store.holder is not self and not self._store.is_lenient:
                self.is_held = False
                raise LeaseLostError("the lease is lost: another holds it")

    async def release(self) -> None:
        """Lets it go."""
        self.is_held = False
        if self._store.holder is self:
            self._store.holder = None


class SimStore:
    """See `scheduler_svc.lease.polled_lease.LeaseStore`: a store behind a network, as one scheduler sees it."""

    def __init__(self, store: SharedLease, us: Holder, duration_s: float) -> None:
        self._store, self.us, self._duration_s = store, us, duration_s
        self.process: Process = current_process()
        self.holder_address = ""

    async def take(self, *, is_holder_gone: bool = False) -> int | None:
        """As `LeaseStore.take`."""
        return await self._call(lambda: self._take(is_holder_gone))

    async def renew(self) -> bool:
        """As `LeaseStore.renew`."""
        return await self._call(self._renew)

    async def give_up(self) -> None:
        """As `LeaseStore.give_up`."""
        await self._call(self._give_up)

    async def _call(self, act: Callable[[], T]) -> T:
        """Lost calls may have been done; answers that take too long are none."""
        store, rng = self._store, self._store.world.rng
        fails, is_done = rng.random() < store.failures, rng.random() < 0.5
        wait = rng.uniform(0.0, 0.005) + (rng.uniform(0.0, store.slow_s) if store.slow_s else 0.0)
        timeout_s = self._duration_s / RENEWALS
        await asyncio.sleep(min(wait / 2, timeout_s))
        if fails and not is_done:
            raise RestError("the store does not answer")
        answer = act()
        await asyncio.sleep(min(wait / 2, timeout_s - min(wait / 2, timeout_s)))
        if fails or wait >= timeout_s:
            raise RestError("the store does not answer")
        return answer

    def _take(self, is_holder_gone: bool) -> int | None:
        store = self._store
        holder = store.holder
        self.holder_address = holder.us.address if holder is not None else ""
        if holder is self:  # a write of ours whose answer was lost
            return store.counter
        is_free = holder is None or store.now - store.renewed_at >= self._duration_s
        if not is_free and not is_holder_gone:
            return None
        self.holder_address = self.us.address
        return store.give(self)

    def _renew(self) -> bool:
        store = self._store
        if store.holder is None and not store.is_lenient:
            store.give(self)
        if store.holder is self:
            store.renewed_at = store.now
        self.holder_address = store.holder.us.address if store.holder is not None else ""
        return store.holder is self or store.is_lenient

    def _give_up(self) -> None:
        if self._store.holder is self:
            self._store.holder = None
