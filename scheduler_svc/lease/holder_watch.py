"""Whether the process that holds a lease is gone, long before the lease has run out."""

from __future__ import annotations

from signalbox.errors import UnavailableError
from signalbox.links.addresses import read_addresses
from signalbox.links.leader import leader_search
from signalbox.links.reach import refuses

NUM_REFUSALS = 2
REACH_S = 0.5


class HolderWatch:
    """It was reached, and now its address refuses, again and again: nothing listens there any more.

    What was never reached proves nothing by refusing, as a firewall does so, too (E9). Were it wrong all the same, the
    lease would change hands once: the compare-and-swap of the store decides, and workers obey one (B2).
    """

    def __init__(self) -> None:
        self._address = ""
        self._was_reached = False
        self._num_refusals = 0

    async def is_gone(self, address: str) -> bool:
        """Looks once. `address`: host:port of who holds the lease now; empty: nobody is known."""
        if address != self._address:
            self._address, self._was_reached, self._num_refusals = address, False, 0
        if not _is_address(address):
            return False
        if await refuses(address):
            self._num_refusals += 1
        else:
            self._num_refusals = 0
            self._was_reached = self._was_reached or await _reaches(address)
        return self._was_reached and self._num_refusals >= NUM_REFUSALS


def _is_address(text: str) -> bool:
    """Anybody may write into the store."""
    try:
        return len(read_addresses(text)) == 1
    except ValueError:
        return False


async def _reaches(address: str) -> bool:
    """A scheduler that leads answers there."""
    async with leader_search(address) as search:
        try:
            return (await search.find(REACH_S)).address == address
        except UnavailableError:
            return False
