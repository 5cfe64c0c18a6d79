"""Parts: optional features of this worker. A step asks the parts that it has orders for, and no others (PT7, PT8)."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

from signalbox.protocol.parts.orders import Orders
from worker_svc.core.step import StepDelta


class Phase(Enum):
    """Phases of applying a step in which parts act, in order (K3)."""

    COPY = "copy"
    """After slots were finished and preempted, before grants."""
    ORDER = "order"
    """After all starts and pauses."""
    ASIDE = "aside"
    """Not in the table: all is begun beside the steps, once the copies of the step are made."""


class Part:
    """One optional feature. A part overrides the hooks that it needs."""

    kind: ClassVar[type[Orders]]
    """Type of the orders that it takes."""
    phase: ClassVar[Phase]
    """Phase in which `apply` is called."""

    def misfit(self, orders: Any, delta: StepDelta) -> str | None:
        """Why orders that could fit do not fit what the worker holds; None: they do (K10)."""
        return None

    def needs_commit(self, orders: Any) -> bool:
        """The steps in flight have to be committed before the orders can be applied."""
        return False

    def apply(self, orders: Any) -> None:
        """Carries the orders out, in their phase."""


class Parts:
    """The parts that a worker has, by the type of their orders."""

    def __init__(self) -> None:
        self._by_kind: dict[type[Orders], Part] = {}

    def add(self, part: Part) -> None:
        """The worker has `part` from now on, instead of one of the same kind."""
        self._by_kind[part.kind] = part

    def has(self, kind: type[Orders]) -> bool:
        """The worker has a part that takes such orders."""
        return kind in self._by_kind

    def lacking(self, delta: StepDelta) -> str | None:
        """Names a part that a step has orders for, and the worker has not; None: it has all (PT8)."""
        for kind in delta.orders:
            if kind not in self._by_kind:
                return f"it has orders for {kind.part}, which this worker does not have"
        return None

    def misfit(self, delta: StepDelta) -> str | None:
        """Why orders of a step do not fit what the worker holds; None: they do."""
        for kind, orders in delta.orders.items():
            reason = self._by_kind[kind].misfit(orders, delta)
            if reason is not None:
                return reason
        return None

    def need_commit(self, delta: StepDelta) -> bool:
        """A part needs the steps in flight committed before `delta` is applied."""
        return any(self._by_kind[kind].needs_commit(orders) for kind, orders in delta.orders.items())

    def apply(self, phase: Phase, delta: StepDelta) -> None:
        """Lets the parts act that have orders in that phase."""
        for kind, orders in delta.orders.items():
            part = self._by_kind[kind]
            if part.phase is phase:
                part.apply(orders)

    def begins_aside(self, delta: StepDelta) -> list[tuple[Part, Orders]]:
        """What the step begins beside the steps, once its copies are made."""
        return [
            (self._by_kind[kind], orders)
            for kind, orders in delta.orders.items()
            if self._by_kind[kind].phase is Phase.ASIDE
        ]
