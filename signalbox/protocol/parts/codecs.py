"""All parts that a step can have orders for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from signalbox.protocol.parts import disk, handoff, lanes, pulls
from signalbox.protocol.parts.blocks import PartBounds
from signalbox.protocol.parts.orders import Orders

if TYPE_CHECKING:
    from signalbox.v1 import to_worker_pb2

AnyOrders = dict[type[Orders], Orders]
"""Orders of one step, by their type."""


class Codec(NamedTuple):
    """How orders of one part are written, read and validated."""

    kind: type[Orders]
    write: Callable[[to_worker_pb2.SchedulerOutput, Any], None]
    read: Callable[[to_worker_pb2.SchedulerOutput], Orders | None]
    validate: Callable[[Any, PartBounds], str | None]


CODECS = (
    Codec(handoff.HandoffOrders, handoff.write, handoff.read, handoff.validate),
    Codec(lanes.LaneOrders, lanes.write, lanes.read, lanes.validate),
    Codec(disk.DiskOrders, disk.write, disk.read, disk.validate),
    Codec(pulls.PullOrders, pulls.write, pulls.read, pulls.validate),
)
_BY_KIND = {codec.kind: codec for codec in CODECS}


def read_orders(message: to_worker_pb2.SchedulerOutput) -> AnyOrders:
    """All orders of a step's message. ValueError when columns do not fit each other."""
    found: AnyOrders = {}
    for codec in CODECS:
        orders = codec.read(message)
        if orders is not None:
            found[codec.kind] = orders
    return found


def write_orders(message: to_worker_pb2.SchedulerOutput, orders: Orders) -> None:
    """Adds orders of one part to the message of their step."""
    _BY_KIND[type(orders)].write(message, orders)


def validate_orders(orders: Mapping[type[Orders], Orders], bounds: PartBounds) -> str | None:
    """Why the orders of a step can fit no worker of these bounds; None: they can (K10, PT9)."""
    for kind, each in orders.items():
        reason = _BY_KIND[kind].validate(each, bounds)
        if reason is not None:
            return reason
    if len(orders) < 2:
        return None
    for each in orders.values():
        written = set(each.written)
        for other in orders.values() if written else ():
            if other is not each and not written.isdisjoint(other.touched):
                return f"its {each.part} write a block that its {other.part} read or write"
    return None
