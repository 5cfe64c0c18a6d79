"""What no scheduler of ours says of requests that go from one worker to another (docs/design.md, K10)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.handoff.exports import Exports
from worker_svc.core.handoff.handoffs import Handoffs
from worker_svc.core.handoff.orders import HandoffOrders, ImportStart
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.step import StepDelta


def misfit_of_handoffs(orders: HandoffOrders, num_blocks: int, groups: tuple[int, ...]) -> str | None:
    """Why what a step says of hand-offs can fit no worker of so many blocks, in the spine and in its other groups."""
    for start in orders.import_starts:
        if len(start.groups) != len(groups):
            return f"it gives a slot tables in {len(start.groups)} groups, and there are {len(groups)}"
        if start.num_found > len(start.blocks):
            return f"it found {start.num_found} of {len(start.blocks)} blocks"
        for group, size in enumerate((num_blocks, *groups)):
            blocks = start.blocks_of(group)
            if blocks.min(initial=0) < 0 or blocks.max(initial=0) >= size:
                return f"it names a block of group {group} that is none of {size}"
            if len(np.unique(blocks)) != len(blocks):
                return f"slot {start.slot} is taken over with a block twice"
    starts = [start.slot for start in orders.import_starts]
    exports = [order.slot for order in orders.exports]
    if len(set(starts)) != len(starts) or len(set(exports)) != len(exports):
        return "it hands a slot over twice"
    return None


def misfit_with_handoffs(delta: StepDelta, table: RequestTable, handoffs: Handoffs) -> str | None:
    """Why what a step says of hand-offs does not fit what the worker holds; None: it does."""
    orders, imports = delta.handoffs, handoffs.imports.by_slot
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
    return _frozen_misfit(orders, table, handoffs.exports) or _still_misfit(delta, table)


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
        if status in (*_ELSEWHERE, SlotStatus.FROZEN) and not _goes_on(order.slot, orders):
            return f"it hands over slot {order.slot}, which holds nothing that goes on"
    return None


def _still_misfit(delta: StepDelta, table: RequestTable) -> str | None:
    """Nobody runs, or loses blocks, on its way from one worker to another."""
    going_on = {*delta.handoffs.committed_slots, *(slot for slot, _ in delta.handoffs.thawed)}
    for slot in (*delta.preempted_slots, *(start.slot for start in (*delta.resumed, *delta.started))):
        if table.status[slot] in _STILL and slot not in going_on:
            return f"it moves slot {slot}, which is on its way to another worker, or from one"
    return None


def _goes_on(slot: int, orders: HandoffOrders) -> bool:
    """With this step: it may be handed over again at once."""
    return slot in orders.committed_slots or any(slot == thawed for thawed, _ in orders.thawed)


def _table_misfit(start: ImportStart, table: RequestTable) -> str | None:
    most = table.blocks.shape[1]
    ends = [len(start.blocks), *(first + len(blocks) for first, blocks in start.groups)]
    return f"it gives slot {start.slot} more than {most} blocks" if max(ends) > most else None


def written_by_imports(orders: HandoffOrders, group: int) -> list[NDArray[np.int32]]:
    """Blocks of a group that requests on their way here are written into."""
    return [start.written_of(group) for start in orders.import_starts]


_STILL = (SlotStatus.IMPORTING, SlotStatus.IMPORTED, SlotStatus.FROZEN)
_ELSEWHERE = (SlotStatus.FREE, SlotStatus.IMPORTING, SlotStatus.IMPORTED)
