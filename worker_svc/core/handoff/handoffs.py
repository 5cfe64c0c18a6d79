"""Both ends of hand-offs at one worker, as its steps change them."""

from __future__ import annotations

from itertools import zip_longest

from signalbox.protocol.parts.handoff import HandoffOrders
from worker_svc.core.handoff.exports import Exports
from worker_svc.core.handoff.imports import Import, Imports
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.requests.state_versions import StateVersions


class Handoffs:
    """What is read here, and what comes here."""

    def __init__(self, table: RequestTable, states: StateVersions) -> None:
        self.exports, self.imports = Exports(table, states), Imports(table, states)
        self._committed: list[Import] = []

    def apply(self, orders: HandoffOrders) -> None:
        """Takes what a step says: what ends or has come to count, then what begins; that may be of the same slot. All
        that a frozen slot made is committed."""
        exports, imports = self.exports, self.imports
        for slot in orders.kept_slots:
            if exports.frozen(slot) is None:
                exports.drop(slot)
        for slot, leg in orders.thawed:
            exports.thaw(slot, leg)
        for slot, leg in zip_longest(orders.committed_slots, orders.committed_legs):
            committed = imports.commit(slot, leg)
            if committed is not None:
                self._committed.append(committed)
        for order in orders.exports:
            exports.begin(order)
        for slot in orders.frozen_slots:
            exports.freeze(slot)
        for start in orders.import_starts:
            imports.start(start)

    def take_committed(self) -> list[Import]:
        """Imports that have come to count since the last call: their outputs are to be said."""
        committed, self._committed = self._committed, []
        return committed

    def preempt(self, slot: int) -> None:
        """The slot's blocks are taken away."""
        if self.exports.frozen(slot) is None:
            self.exports.drop(slot)

    def forget(self, slot: int) -> None:
        """The slot's request is gone."""
        self.exports.drop(slot)
        self.imports.drop(slot)

    def rest(self) -> list[int]:
        """The link has ended. Returns the slots that are free with it: nobody knows of what was on its way there."""
        self.exports.rest()
        return self.imports.open_slots()
