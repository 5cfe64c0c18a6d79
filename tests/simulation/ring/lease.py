"""A lease that the schedulers of a ring share: let go with the process that held it, or taken from one that has not
been heard for a while, which believes in it until it looks again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NoReturn

from scheduler_svc.lease.lease import Holder
from signalbox.errors import LeaseLostError
from tests.simulation.ring.clock import Process, current_process

POLL_S = 0.05
RENEW_S = 1.0
DURATION_S = 3.0


@dataclass
class LeaseStore:
    """Where the lease is kept."""

    runs_out: bool
    """It can be taken from a holder that has not renewed it for DURATION_S; else only from one that has ended."""
    counter: int = 0
    holder: SimLease | None = None
    renewed_at: float = 0.0
    is_lenient: bool = False
    """It tells holders that it is theirs when it is not any more: two believe in it."""

    def is_free(self, now: float) -> bool:
        """Somebody may take it."""
        holder = self.holder
        if holder is None or not holder.process.alive:
            return True
        return self.runs_out and now - self.renewed_at > DURATION_S


class SimLease:
    """See `scheduler_svc.lease.lease.Lease`."""

    def __init__(self, store: LeaseStore, us: Holder) -> None:
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
        while not store.is_free(self.process.loop.time()):
            await asyncio.sleep(POLL_S)
        store.counter += 1
        store.holder, store.renewed_at = self, self.process.loop.time()
        self.is_held = True
        return store.counter

    async def keep(self) -> NoReturn:
        """Renews it."""
        while True:
            await asyncio.sleep(RENEW_S)
            if self._store.holder is self:
                self._store.renewed_at = self.process.loop.time()
            elif not self._store.is_lenient:
                self.is_held = False
                raise LeaseLostError("the lease is lost: another holds it")

    async def release(self) -> None:
        """Lets it go."""
        self.is_held = False
        if self._store.holder is self:
            self._store.holder = None
