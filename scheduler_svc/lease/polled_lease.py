"""A lease in a store behind a network: taken when it is free, renewed again and again, lost when it is not."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn, Protocol

from scheduler_svc.lease.rest import RestError
from signalbox.errors import LeaseLostError

logger = logging.getLogger(__name__)
POLL_S = 0.25
"""Between two looks of who waits for it, and between two tries to renew it when the store does not answer."""
RENEWALS = 3
"""Within the time that it holds."""


class LeaseStore(Protocol):
    """One lease in a store. Every call raises RestError when the store does not answer, or refuses."""

    @property
    def holder_address(self) -> str:
        """host:port of who holds it, as it was last seen; empty: nobody, or not known."""

    async def take(self) -> int | None:
        """Takes it if it is free, and returns the counter; None: another holds it."""

    async def renew(self) -> bool:
        """False: it is not ours any more."""

    async def give_up(self) -> None:
        """Makes it free, if it is ours."""


class PolledLease:
    """A lease that runs out `duration_s` after it was renewed last."""

    def __init__(self, store: LeaseStore, duration_s: float) -> None:
        self._store, self._duration_s = store, duration_s
        self._renewed_at: float | None = None
        """When the renewal that succeeded last was asked for; None: it is not ours."""
        self._failing = False

    @property
    def holder_address(self) -> str:
        """See Lease."""
        return self._store.holder_address

    @property
    def is_held(self) -> bool:
        """See Lease. After a stop of this process it says no until the lease is renewed."""
        return self._renewed_at is not None and _now() - self._renewed_at < self._duration_s

    async def acquire(self) -> int:
        """See Lease. A store that does not answer is asked again for ever: it may be what starts last."""
        while True:
            asked_at = _now()
            try:
                counter = await self._store.take()
                self._answered()
            except RestError as error:
                self._warn(error)
                counter = None
            if counter is not None:
                self._renewed_at = asked_at
                return counter
            await asyncio.sleep(POLL_S)

    async def keep(self) -> NoReturn:
        """See Lease. What has run out may be ours still, when nobody else wanted it: the store knows."""
        while True:
            await asyncio.sleep(POLL_S if self._failing else self._duration_s / RENEWALS)
            asked_at = _now()
            try:
                is_ours = await self._store.renew()
                self._answered()
            except RestError as error:
                self._warn(error)
                if not self.is_held:
                    raise self._lost(f"it could not be renewed for {self._duration_s:g} s: {error}") from None
                continue
            if not is_ours:
                raise self._lost(f"it is held by {self._store.holder_address or 'nobody'} now")
            self._renewed_at = asked_at

    async def release(self) -> None:
        """See Lease."""
        if self._renewed_at is not None:
            self._renewed_at = None
            try:
                await self._store.give_up()
            except RestError as error:
                logger.warning("the lease was not given up and has to run out: %s", error)

    def _lost(self, why: str) -> LeaseLostError:
        self._renewed_at = None
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
