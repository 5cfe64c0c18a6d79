"""The part of workers with several lanes (LA5)."""

from __future__ import annotations

from signalbox.protocol.parts.lanes import LaneOrders
from worker_svc.core.parts.part import Part, Phase
from worker_svc.core.requests.request_state import RequestTable


class LanesPart(Part):
    """Moves decode rows to other lanes. Which rows need the host then is asked where lanes take turns
    (`needs_commit_of_lane`)."""

    kind = LaneOrders
    phase = Phase.ORDER

    def __init__(self, table: RequestTable) -> None:
        self._table = table

    def apply(self, orders: LaneOrders) -> None:
        """As `Part.apply`."""
        for slot, lane in orders.changes:
            self._table.lane[slot] = lane
