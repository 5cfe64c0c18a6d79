"""What makes a scheduler the leader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Protocol


@dataclass(frozen=True)
class Holder:
    """A process that wants to lead."""

    instance: str
    """UUID of the holder's process."""
    address: str
    """host:port at which the others reach it."""


class Lease(Protocol):
    """Held by one process at a time as far as the store of it can tell. Nothing rests on that: of two that believe to
    hold it, each worker obeys one (T1 to T3)."""

    @property
    def holder_address(self) -> str:
        """host:port of who holds it, as it was last seen; empty: not known."""

    @property
    def is_held(self) -> bool:
        """This process holds it, and it cannot have run out."""

    @property
    def predecessor_address(self) -> str:
        """host:port of who held it before us, and may not know yet; empty: nobody, or it knows."""

    def depose(self, counter: int) -> None:
        """Another process says that it holds it, by `counter`."""

    async def acquire(self) -> int:
        """Waits until it is ours. Returns a counter that is higher with each acquisition, whoever's; 0: there are no
        others."""

    async def keep(self) -> NoReturn:
        """Renews it. Raises LeaseLostError when it is not ours any more."""

    async def release(self) -> None:
        """Lets it go, if it is held, so that the next one need not wait until it has run out."""
