"""Parts of a worker: which it has, when a step asks them, and what becomes of orders for others (PT7, PT8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from signalbox.protocol.parts.disk import DiskOrders
from signalbox.protocol.parts.handoff import HandoffOrders
from signalbox.protocol.parts.lanes import LaneOrders
from signalbox.protocol.parts.orders import Orders
from signalbox.protocol.parts.pulls import PullOrders
from signalbox.v1 import to_worker_pb2
from tests.contract.odd_orders import step, u16
from tests.worker_svc.test_misfits import INFO, TERM, WAIT_S, Bench
from worker_svc.core.batch import BlockCopy
from worker_svc.core.parts.disk import DiskPart
from worker_svc.core.parts.part import Parts
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.core.step import StepDelta
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import StepRefusedError, WorkerCore
from worker_svc.runner.sim.model import SimRunner

NONE: dict[type[Orders], Orders] = {
    HandoffOrders: HandoffOrders(),
    LaneOrders: LaneOrders(),
    DiskOrders: DiskOrders(1),
    PullOrders: PullOrders(),
}


@pytest.mark.parametrize(
    ("kinds", "fields"),
    [
        ([], {}),
        ([LaneOrders], {"num_lanes": 2}),
        ([HandoffOrders, PullOrders], {"kv_layout": "layout"}),
        ([HandoffOrders, LaneOrders, PullOrders], {"num_lanes": 2, "kv_layout": "layout"}),
    ],
)
def test_a_worker_has_the_parts_that_its_hello_names(
    kinds: list[type[Orders]], fields: dict[str, Any]
) -> None:
    """PT8."""
    core = WorkerCore(replace(INFO, **fields), num_slots=4)
    assert [kind for kind in NONE if core.parts.has(kind)] == kinds
    core.parts.add(DiskPart(lambda orders: None))
    assert core.parts.has(DiskOrders)


class Unasked(Parts):
    """Parts that nobody may ask."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"a step without orders asks for {name}")


def test_a_step_without_orders_asks_no_part() -> None:
    """PT7."""
    core = WorkerCore(replace(INFO, kv_layout="layout", num_lanes=2), num_slots=4)
    core.parts = Unasked()
    delta = StepDelta(1, 1)
    assert core.refusal_of(delta) is None and not core.has_to_wait(delta)
    assert not core.apply(delta).begins


@pytest.mark.parametrize("kind", NONE)
def test_orders_for_a_part_that_a_worker_lacks_are_refused(kind: type[Orders]) -> None:
    """PT8: nothing of the step is applied."""
    core = WorkerCore(INFO, num_slots=4)
    delta = StepDelta(1, 1, orders={kind: NONE[kind]})
    assert core.refusal_of(delta) == f"it has orders for {kind.part}, which this worker does not have"
    with pytest.raises(StepRefusedError):
        core.apply(delta)
    assert core.last_step_id == 0


ON_THE_WIRE: dict[str, dict[str, Any]] = {
    "handoff": {"handoffs": to_worker_pb2.Handoffs()},
    "lanes": {"lane_slots": u16(0), "lanes": b"\x00"},
    "disk": {"disk": to_worker_pb2.DiskOrders()},
    "pulls": {"pulls": to_worker_pb2.BlockPulls()},
}


@pytest.mark.parametrize("part", ON_THE_WIRE)
def test_the_link_is_left_that_orders_a_part_which_is_not_here(part: str) -> None:
    """PT8: and what the worker holds goes on by the next link."""
    bench = Bench()
    bench.loop.put(step(TERM, 3, finished_slots=u16(0), **ON_THE_WIRE[part]))
    assert f"orders for {part}" in bench.refusals.get(timeout=WAIT_S)
    bench.loop.link_closed()
    bench.loop.snapshot().result(WAIT_S)
    assert bench.core.held_slots() == [0, 1, 2]
    bench.close()


def with_a_row_in_flight() -> WorkerCore:
    """A worker whose slot 0 decodes, and has a token on its way."""
    core = WorkerCore(replace(INFO, kv_layout="layout"), num_slots=4)
    core.parts.add(DiskPart(lambda orders: None))
    table = core.table
    table.status[0], table.runs[0], table.num_in_flight[0] = SlotStatus.DECODE, True, 1
    return core


@pytest.mark.parametrize(
    ("orders", "waits"),
    [
        (PullOrders(), False),
        (DiskOrders(1), True),
        (HandoffOrders(frozen_slots=[1]), False),
        (HandoffOrders(frozen_slots=[0]), True),
    ],
)
def test_steps_in_flight_are_committed_ahead_of_orders_that_need_it(orders: Orders, waits: bool) -> None:
    """PT7: what is stored has been written, and what freezes has all its tokens."""
    core = with_a_row_in_flight()
    assert core.has_to_wait(StepDelta(1, 1, orders={type(orders): orders})) is waits
    assert not core.has_to_wait(StepDelta(1, 1))


def test_orders_beside_the_steps_begin_after_the_copies_of_their_step() -> None:
    """PT7, DT3: and not when the step is applied."""
    done: list[Any] = []

    class Runner(SimRunner):
        """Notes its copies."""

        def copy_blocks(self, copies: list[BlockCopy]) -> None:
            """As `SimRunner.copy_blocks`."""
            done.append(copies)

    core = WorkerCore(INFO, num_slots=4)
    core.parts.add(DiskPart(done.append))
    orders, copies = DiskOrders(1, drops_all=True), [BlockCopy(0, False, 1, False)]
    running = core.apply(StepDelta(1, 1, copies=copies, orders={DiskOrders: orders}))
    assert not done
    flights = StepsInFlight(core.table, Runner(INFO), lambda copies: None)
    flights.start(running)
    flights.collect()
    assert done == [copies, orders]


NAMED: dict[str, Callable[[StepDelta], Any]] = {
    "written": lambda delta: delta.brought_to(0),
    "tables": lambda delta: delta.given_tables,
    "going on": lambda delta: delta.going_on,
}


@pytest.mark.parametrize("what", NAMED)
def test_a_plain_step_names_nothing_for_parts(what: str) -> None:
    """PT7."""
    delta = StepDelta(1, 1, grant_slots=np.array([1]), grant_blocks=np.array([3], np.int32))
    assert not NAMED[what](delta)
