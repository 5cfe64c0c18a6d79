"""Two workers of one scheduler that do what they are told, and hand requests over to each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler_svc.core.parts.handoff.commit import Arrived
from scheduler_svc.core.parts.handoff.orders import HandoffOrders
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request, RequestKey, RequestStatus
from scheduler_svc.core.state.steps.step import StepDecision, StepReport
from scheduler_svc.core.state.worker import Worker
from tests.scheduler_svc.harness import make_info, make_request

A, B = "a", "b"


class Pair:
    """Requests begin at A, as B takes nothing new until the first one is there."""

    def __init__(self, epoch: int = 1, *, attach: bool = True, **settings: Any) -> None:
        """`attach`: both workers say hello, without a snapshot."""
        self.core = Scheduler(SchedulerConfig(**settings), epoch, 0.0, instance=f"s{epoch}")
        self.fields: dict[str, Any] = {}
        if attach:
            self.attach(A)
            self.attach(B)

    def attach(self, name: str, **fields: Any) -> Worker:
        """The worker says hello with nothing."""
        return self.core.attach_worker(self.info(name, **fields), None, 0.0)

    def info(self, name: str, **fields: Any) -> Any:
        """What the worker says of itself."""
        values = {"worker_id": name, "instance": f"i{name}", "address": f"{name}:1", "kv_layout": "k"}
        return make_info(**(values | self.fields | fields))

    @property
    def a(self) -> Worker:
        return self.core.workers[A]

    @property
    def b(self) -> Worker:
        return self.core.workers[B]

    def submit(self, name: str, num_prompt: int, at: str = A, **fields: Any) -> Request:
        """A request that is placed at one of the workers."""
        request = make_request(name, num_prompt, **fields)
        others = [worker for worker in self.core.workers.values() if worker.info.worker_id != at]
        for worker in others:
            worker.draining = True
        self.core.submit(request, 0.0)
        self.step(at)
        for worker in others:
            worker.draining = False
        assert request.worker_id == at
        return request

    def step(self, name: str, now: float = 0.0) -> StepDecision | None:
        """Makes one step and reports that all went well."""
        step = self.core.schedule(name, now)
        if step is not None:
            self.report(name, now)
        self.core.check_integrity()
        return step

    def report(self, name: str, now: float = 0.0, **fields: Any) -> None:
        """Reports the oldest step in flight."""
        record = self.core.workers[name].records[0]
        values: dict[str, Any] = {"checkpoint_positions": [order.position for order in record.checkpoints]}
        self.core.update(
            name,
            StepReport(
                record.step_id, record.num_decode_rows, record.num_prefill_tokens, **(values | fields)
            ),
            now,
        )

    def orders(self, name: str) -> HandoffOrders:
        """What the next step of the worker says of hand-offs."""
        step = self.step(name)
        orders = step.ordered(HandoffOrders) if step is not None else None
        assert orders is not None
        return orders

    def begin(self, request: Request, to: str = B) -> Handoff:
        """Both ends are told of the hand-off."""
        handoff = self.core.hand_over(request.key, to, 0.0)
        self.core.check_integrity()
        self.step(to)
        self.step(handoff.source.info.worker_id)
        assert handoff.is_source_told and handoff.is_target_told
        return handoff

    def freeze(self, handoff: Handoff) -> None:
        """The target is ready, and a step of the source freezes the slot."""
        target, source = handoff.target.info.worker_id, handoff.source.info.worker_id
        self.core.handoffs.ready(target, handoff.target_slot, handoff.transfer, 1.0)
        for _ in range(3):
            step = self.step(source)
            orders = step.ordered(HandoffOrders) if step is not None else None
            if orders is not None and orders.frozen_slots:
                return
            self.step(target)
        raise AssertionError("it was not frozen")

    def end(self, handoff: Handoff, **fields: int) -> None:
        """The target has all of it."""
        self.core.handoffs.ended(
            handoff.target.info.worker_id,
            handoff.target_slot,
            handoff.transfer,
            self.tail(handoff, **fields),
            3.0,
        )
        self.core.check_integrity()

    def tail(self, handoff: Handoff, **fields: int) -> Arrived:
        """What the source's slot is by its reports."""
        table, slot = handoff.source.table, handoff.source_slot
        values = {
            "num_computed": int(table.confirmed(np.array([slot]))[0]) if handoff.has_blocks else 0,
            "num_output": int(table.num_output[slot]),
        } | fields
        return Arrived(values["num_computed"], values["num_output"], b"")


def key_of(name: str) -> RequestKey:
    """The key of a request of the harness."""
    return RequestKey("f", name)


def status_of(request: Request) -> RequestStatus:
    """Its status now."""
    return request.status
