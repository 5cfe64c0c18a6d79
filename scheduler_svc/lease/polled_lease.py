"""A lease in a store behind a network: taken when it is free, renewed again and again, lost when another has it."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn, Protocol

from scheduler_svc.lease.holder_watch import HolderWatch
from scheduler_svc.lease.rest import RestError
from signalbox.errors import LeaseLostError

logger = logging.getLogger(__name__)
POLL_S = 0.25
"""Seconds between two looks of who waits for it, and between two tries to renew it when the store does not answer."""
RENEWALS = 3
"""Within the time that it holds."""


class LeaseStore(Protocol):
    """One lease in a store. Every call raises RestError when the store does not answer, or refuses."""

    @property
    def holder_address(self) -> str:
        """host:port of who holds it, as it was last seen; empty: nobody, or not known."""

    async def take(self, *, is_holder_gone: bool = False) -> int | None:
        """Takes it if it is free, or if its holder is gone; returns the counter. None: another holds it."""

    async def renew(self) -> bool:
        """False: it is not ours any more."""

    async def give_up(self) -> None:
        """Makes it free, if it is ours."""


class PolledLease:
    """A lease that others may have `duration_s` after it was renewed last.

    A store that does not answer takes it from nobody: the leader goes on, as most likely nobody else reaches the store
    either, and two leaders are safe. If another has followed it meanwhile, the store says so, or that one.
    """

    def __init__(self, store: LeaseStore, duration_s: float) -> None:
        self._store, self._duration_s = store, duration_s
        self._watch = HolderWatch()
        self._counter = 0
        """0: it is not ours."""
        self._looked_at = 0.0
        """When we asked the store last, in seconds."""
        self._deposed = asyncio.Event()
        self._failing = False
        self.predecessor_address = ""

    @property
    def holder_address(self) -> str:
        """host:port of the scheduler that has the lease, as last seen; empty: nobody is known to."""
        return self._store.holder_address

    @property
    def is_held(self) -> bool:
        """Whether this process has the lease. After a stop of this process it says no until the store was asked."""
        is_ours = self._counter > 0 and not self._deposed.is_set()
        return is_ours and _now() - self._looked_at < self._duration_s

    def depose(self, counter: int) -> None:
        """Takes the word of another process that holds the lease by `counter`, if that is newer than ours."""
        if 0 < self._counter < counter:
            self._deposed.set()

    async def acquire(self) -> int:
        """Waits until the lease is ours. A store that does not answer is asked again for ever: it may be what starts
        last."""
        while not self._counter:
            await self._try_to_take()
            if not self._counter:
                await asyncio.sleep(POLL_S)
        return self._counter

    async def keep(self) -> NoReturn:
        """Renews the lease. Raises LeaseLostError when it is lost. What has run out may be ours still, when nobody
        else wanted it: the store knows."""
        while True:
            await self._wait(POLL_S if self._failing else self._duration_s / RENEWALS)
            if self._deposed.is_set():
                raise self._lost("another scheduler says that it holds it")
            asked_at = _now()
            try:
                is_ours = await self._store.renew()
                self._answered()
            except RestError as error:
                self._warn(error)
                is_ours = True
            if not is_ours:
                raise self._lost(f"it is held by {self._store.holder_address or 'nobody'} now")
            self._looked_at = asked_at

    async def release(self) -> None:
        """Gives the lease back, if it is ours."""
        if self._counter:
            self._counter = 0
            try:
                await self._store.give_up()
            except RestError as error:
                logger.warning("the lease was not given up and has to run out: %s", error)

    async def _try_to_take(self) -> None:
        holder = self._store.holder_address
        is_holder_gone = await self._watch.is_gone(holder)
        asked_at = _now()
        try:
            counter = await self._store.take(is_holder_gone=is_holder_gone)
            self._answered()
        except RestError as error:
            self._warn(error)
            return
        if counter is not None:
            self._counter, self._looked_at, self.predecessor_address = counter, asked_at, holder

    async def _wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._deposed.wait()
        except TimeoutError:
            pass

    def _lost(self, why: str) -> LeaseLostError:
        self._counter = 0
        return LeaseLostError(f"the lease is lost: {why}")

    def _warn(self, error: RestError) -> None:
        if not self._failing:
            logger.warning("the store of the lease: %s", error)
        self._failing = True

    def _answered(self) -> None:
        if self._failing:
            logger.info("the store of the lease answers again")
        self._failing = False


def _now() -> float:
    return asyncio.get_running_loop().time()
