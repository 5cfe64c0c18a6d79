"""The part of workers with a disk tier (DT)."""

from __future__ import annotations

from collections.abc import Callable

from signalbox.protocol.parts.disk import DiskOrders
from worker_svc.core.parts.part import Part, Phase


class DiskPart(Part):
    """Begins loads, stores and deletions beside the steps."""

    kind = DiskOrders
    phase = Phase.ASIDE

    def __init__(self, begin: Callable[[DiskOrders], None]) -> None:
        """begin: carries orders out, after everything that the runner has been given so far."""
        self._begin = begin

    def needs_commit(self, orders: DiskOrders) -> bool:
        """As `Part.needs_commit`: what the steps in flight write may be stored."""
        return True

    def apply(self, orders: DiskOrders) -> None:
        """As `Part.apply`."""
        self._begin(orders)
