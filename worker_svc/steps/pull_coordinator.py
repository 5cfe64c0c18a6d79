"""Cached blocks that go from one worker to another, as steps order it: what may be read and written when (PB). Belongs
to the step thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from signalbox.protocol.parts.pulls import ExportOrder, PullOrder, PullOrders
from signalbox.v1 import from_worker_pb2
from worker_svc.core.step import StepDelta
from worker_svc.links.pull_columns import build_pull_ended, build_pull_failed
from worker_svc.transfer.control.gate import Gate
from worker_svc.transfer.control.news import (
    CacheExportBegun,
    CacheExportOver,
    News,
    PullArrival,
    PullBegun,
    PullOver,
    PullRead,
)


@dataclass(eq=False)
class _Shown:
    """Blocks that another worker may read, or that are read from one, once the step is committed that says so."""

    order: ExportOrder | PullOrder
    step_id: int
    gate: Gate
    is_begun: bool = False


class PullCoordinator:
    """Both ends of pulls at one worker."""

    def __init__(
        self,
        num_groups: int,
        on_news: Callable[[News], None],
        on_event: Callable[[from_worker_pb2.WorkerEvent], None],
    ) -> None:
        self._num_groups = num_groups
        self._on_news, self._on_event = on_news, on_event
        self._exports: dict[int, _Shown] = {}
        """What others may read, by its number."""
        self._pulls: dict[int, _Shown] = {}
        """By the step that began them."""
        self._has_new = False

    def applied(self, changes: StepDelta) -> None:
        """A step's delta is in the core, and nothing of it has run: what is over is read no more behind this."""
        orders = changes.ordered(PullOrders)
        if orders is None:
            return
        for number in orders.ended_exports:
            self._end_export(number)
        for export in orders.exports:
            self._end_export(export.number)
            self._exports[export.number] = _Shown(export, changes.step_id, Gate(self._num_groups))
        if orders.pull is not None:
            self._pulls[changes.step_id] = _Shown(orders.pull, changes.step_id, Gate(self._num_groups))
        self._has_new = True

    def finished(self, step_id: int) -> None:
        """A step is committed, and so are all before it: what its copies were to bring is there, and what was taken
        away with it is nobody's."""
        if not self._has_new:
            return
        new = [each for each in (*self._exports.values(), *self._pulls.values()) if not each.is_begun]
        due = [each for each in new if each.step_id <= step_id]
        self._has_new = len(due) < len(new)
        for each in due:
            each.is_begun = True
            order = each.order
            if isinstance(order, ExportOrder):
                self._on_news(CacheExportBegun(order, each.gate, self._num_groups))
            else:
                self._on_news(PullBegun(order, each.gate, self._num_groups))

    def take(self, arrival: PullArrival) -> None:
        """Tells the scheduler what came of a pull, unless the link has ended since that ordered it."""
        step_id = arrival.order.step_id
        pull = self._pulls.get(step_id)
        if pull is None or pull.order is not arrival.order:
            return
        del self._pulls[step_id]
        pull.gate.close()
        if isinstance(arrival, PullRead):
            self._on_event(build_pull_ended(step_id, arrival.seconds, arrival.block_ns))
        else:
            self._on_event(build_pull_failed(step_id, arrival.message, arrival.fault))

    def rest(self) -> None:
        """The link has ended: nobody reads on here, and nothing that was ordered touches a block (PB5)."""
        for number in list(self._exports):
            self._end_export(number)
        for pull in self._pulls.values():
            pull.gate.close()
            if pull.is_begun and isinstance(pull.order, PullOrder):
                self._on_news(PullOver(pull.order))
        self._pulls.clear()
        self._has_new = False

    def _end_export(self, number: int) -> None:
        shown = self._exports.pop(number, None)
        if shown is None:
            return
        shown.gate.close()
        if shown.is_begun and isinstance(shown.order, ExportOrder):
            self._on_news(CacheExportOver(shown.order))
