"""Lanes: decode rows that move to another lane (LA5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from signalbox.protocol import columns
from signalbox.protocol.parts.blocks import PartBounds
from signalbox.protocol.parts.orders import Orders

if TYPE_CHECKING:
    from signalbox.v1 import to_worker_pb2


@dataclass(frozen=True)
class LaneOrders(Orders):
    """Orders of one step."""

    part: ClassVar[str] = "lanes"
    changes: list[tuple[int, int]] = field(default_factory=list)
    """(slot, lane) of decode rows that are in another lane from this step on."""

    @property
    def slots(self) -> list[int]:
        """As `Orders.slots`."""
        return [slot for slot, _ in self.changes]


def write(message: to_worker_pb2.SchedulerOutput, orders: LaneOrders) -> None:
    """Adds the orders to the message of their step."""
    if orders.changes:
        columns.LANES.write(message, orders.changes)


def read(message: to_worker_pb2.SchedulerOutput) -> LaneOrders | None:
    """The orders of a step; None: there are none. ValueError when columns do not fit each other."""
    if not (message.lane_slots or message.lanes):
        return None
    return LaneOrders([(slot, lane) for slot, lane in columns.LANES.read(message)])


def validate(orders: LaneOrders, bounds: PartBounds) -> str | None:
    """Why the orders can fit no worker of these bounds; None: they can (K10)."""
    slot, lane = max(orders.slots, default=0), max((lane for _, lane in orders.changes), default=0)
    if slot >= bounds.num_slots:
        return f"it names slot {slot}, and there are {bounds.num_slots}"
    if lane >= bounds.num_lanes:
        return f"it names lane {lane}, and there are {bounds.num_lanes}"
    return None
