"""The lease of a scheduler that has no standby."""

from __future__ import annotations

import asyncio
from typing import NoReturn


class NoLease:
    """The lease of a scheduler that has no other beside it: it leads at once and for good."""

    holder_address = ""
    predecessor_address = ""
    is_held = True

    def depose(self, counter: int) -> None:
        """Does nothing: there is nobody else."""

    async def acquire(self) -> int:
        """Returns at once."""
        return 0

    async def keep(self) -> NoReturn:
        """Waits until cancelled."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def release(self) -> None:
        """There is nothing to let go."""
