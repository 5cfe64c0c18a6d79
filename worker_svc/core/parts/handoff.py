"""The part of workers whose requests go from one to another (HO)."""

from __future__ import annotations

import numpy as np

from signalbox.protocol.parts.handoff import HandoffOrders
from signalbox.protocol.parts.import_start import ImportStart
from worker_svc.core.handoff.exports import Exports
from worker_svc.core.handoff.handoffs import Handoffs
from worker_svc.core.parts.part import Part, Phase
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.step import StepDelta

_ELSEWHERE = (SlotStatus.FREE, SlotStatus.IMPORTING, SlotStatus.IMPORTED)


class HandoffPart(Part):
    """Both ends of hand-offs, as steps change them."""

    kind = HandoffOrders
    phase = Phase.COPY

    def __init__(self, table: RequestTable, handoffs: Handoffs) -> None:
        self._table, self._handoffs = table, handoffs

    def needs_commit(self, orders: HandoffOrders) -> bool:
        """As `Part.needs_commit`: tokens of a slot that freezes are still being made."""
        table, frozen = self._table, np.array(orders.frozen_slots, np.int64)
        alive = frozen[table.status[frozen] != SlotStatus.ENDED]
        return bool((table.num_in_flight[alive] > 0).any())

    def apply(self, orders: HandoffOrders) -> None:
        """As `Part.apply`."""
        self._handoffs.apply(orders)

    def misfit(self, orders: HandoffOrders, delta: StepDelta) -> str | None:
        """As `Part.misfit`."""
        table, imports = self._table, self._handoffs.imports.by_slot
        freed = {*delta.finished_slots}
        for start in orders.import_starts:
            found = imports.get(start.slot)
            if found is None or found.is_started or start.slot in freed:
                return f"it gives slot {start.slot} the blocks of a request that is not taken over"
            misfit = _table_misfit(start, table)
            if misfit is not None:
                return misfit
        for slot in orders.committed_slots:
            if slot in freed or table.status[slot] not in (SlotStatus.IMPORTED, SlotStatus.ENDED):
                return f"it lets slot {slot} go on, of which not all is here"
        for slot in (*orders.frozen_slots, *(slot for slot, _ in orders.thawed), *orders.kept_slots):
            if slot in freed or table.status[slot] in _ELSEWHERE:
                return f"it speaks of slot {slot}, which hands nothing over"
        return _frozen_misfit(orders, table, self._handoffs.exports)


def _table_misfit(start: ImportStart, table: RequestTable) -> str | None:
    most = table.blocks.shape[1]
    ends = [len(start.blocks), *(first + len(blocks) for first, blocks in start.groups)]
    return f"it gives slot {start.slot} more than {most} blocks" if max(ends) > most else None


def _frozen_misfit(orders: HandoffOrders, table: RequestTable, exports: Exports) -> str | None:
    exported = {order.slot for order in orders.exports}
    for slot in orders.frozen_slots:
        is_open = slot in exports.by_slot and slot not in orders.kept_slots
        if not (is_open or slot in exported or table.status[slot] == SlotStatus.ENDED):
            return f"it freezes slot {slot}, which nobody reads"
    for slot, _ in orders.thawed:
        if table.status[slot] not in (SlotStatus.FROZEN, SlotStatus.ENDED):
            return f"it lets slot {slot} go on, which was not frozen"
    for order in orders.exports:
        status = table.status[order.slot]
        if status in (*_ELSEWHERE, SlotStatus.FROZEN) and order.slot not in orders.going_on:
            return f"it hands over slot {order.slot}, which holds nothing that goes on"
    return None
