"""What frontends without a scheduler want for their clients, by attempt (docs/liveness.md, A6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from signalbox.protocol.enums import FinishReason
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.step import RequestRef


class ClientAction(IntEnum):
    """What is to be done with a request; numbers as in worker.proto."""

    CANCEL = 1
    FINISH = 2
    PAUSE = 3
    UNPAUSE = 4


_UNTOUCHED = (SlotStatus.FREE, SlotStatus.ENDED, SlotStatus.FROZEN, SlotStatus.IMPORTED)
"""Nothing changes of those, or of whom another worker may have by now (HO7)."""
_ENDS = {ClientAction.CANCEL: FinishReason.ABORT, ClientAction.FINISH: FinishReason.STOP}


@dataclass
class _Order:
    """What the client of one request wants."""

    ref: RequestRef
    end: FinishReason | None = None
    """How it is to end; None: it is to go on."""
    paused: bool | None = None
    """Whether it is to be paused; None: as it is."""


class ClientOrders:
    """Kept while there is a scheduler, used while there is none, forgotten when there is one again: it says it then."""

    def __init__(self, table: RequestTable) -> None:
        self._table = table
        self._orders: dict[int, _Order] = {}
        """The orders by slot; the slot may be another's by now."""

    def add(self, frontend_instance: str, attempt: int, action: ClientAction) -> None:
        """The newest counts; an end is final. Of an attempt that is not here nothing is kept."""
        slot = self._slot_of(frontend_instance, attempt)
        if slot is None:
            return
        ref = self._table.refs[slot]
        assert ref is not None
        order = self._orders.get(slot)
        if order is None or order.ref != ref:
            order = self._orders[slot] = _Order(ref)
        if action in _ENDS:
            order.end = order.end or _ENDS[action]
        else:
            order.paused = action == ClientAction.PAUSE

    def _slot_of(self, frontend_instance: str, attempt: int) -> int | None:
        table = self._table
        for slot in np.flatnonzero((table.attempts == attempt) & (table.status != SlotStatus.FREE)).tolist():
            ref = table.refs[slot]
            if ref is not None and ref.frontend_instance == frontend_instance:
                return int(slot)
        return None

    def forget(self) -> None:
        """Drops all orders: there is a scheduler, which says them."""
        self._orders.clear()

    def carry_out(self, most_rows: int) -> list[int]:
        """Does to the table what is wanted; no step is being applied. Returns the slots that end, of which nobody is
        told. `most_rows`: decode rows that a step can have; beyond them nobody is unpaused."""
        table, ended = self._table, []
        for slot, order in self._orders.items():
            if table.refs[slot] != order.ref or table.status[slot] in _UNTOUCHED:
                continue
            if order.end is not None:
                table.end(slot, order.end)
                ended.append(slot)
            elif order.paused:
                table.paused[slot] = True
            elif order.paused is False and np.count_nonzero(table.runs & ~table.paused) < most_rows:
                table.paused[slot] = False
        return ended
