"""Who goes next where one works for all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairLock:
    """One at a time; tenants take turns, each with what it has waited for longest."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by tenant, the next one first."""

    @asynccontextmanager
    async def hold(self, tenant: str) -> AsyncIterator[None]:
        """Around what one at a time may do."""
        if self._is_taken:
            await self._wait(tenant)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on(tenant)

    async def _wait(self, tenant: str) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self._pass_on(tenant)  # the turn had come
            raise

    def _pass_on(self, tenant: str) -> None:
        """The turn of `tenant` is over: it goes behind all others."""
        if tenant in self._waiting:
            self._waiting[tenant] = self._waiting.pop(tenant)
        while self._waiting:
            name, queue = next(iter(self._waiting.items()))
            following = queue.popleft()
            if not queue:
                del self._waiting[name]
            if not following.done():
                following.set_result(None)
                return
        self._is_taken = False
