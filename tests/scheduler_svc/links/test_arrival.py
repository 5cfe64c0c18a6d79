"""Who came first is said by the scheduler's clock, and survives it."""

from __future__ import annotations

import pytest

from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.links.codec import delta
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, shared_pb2
from tests.scheduler_svc.attached import make_hello
from tests.scheduler_svc.harness import make_info, make_request, make_slot, run_step

WALL_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("age_ms", "arrival_ms"),
    [(0, WALL_MS), (1500, WALL_MS - 1500), (1 << 60, WALL_MS - delta.MAX_AGE_MS)],
)
def test_a_request_arrived_by_our_clock_whatever_its_frontend_thinks_the_time_is(
    age_ms: int, arrival_ms: int
) -> None:
    """A frontend whose clock was slow went first in every queue."""
    meta = from_frontend_pb2.RequestMeta(model="m", num_prompt_tokens=3, arrival_ms=5, age_ms=age_ms)
    ref = shared_pb2.RequestRef(request_id="a", attempt=1)
    message = from_frontend_pb2.SubmitRequest(ref=ref, meta=meta)
    request = delta.parse_submit(message, "f", WALL_MS)
    assert request.arrival_ms == arrival_ms
    echoed = from_frontend_pb2.RequestMeta.FromString(request.meta)
    assert (echoed.arrival_ms, echoed.age_ms) == (arrival_ms, 0), "what the next scheduler will see"


@pytest.mark.parametrize(("stamped", "arrival_ms"), [(WALL_MS - 7, WALL_MS - 7), (WALL_MS + 9, WALL_MS)])
def test_an_adopted_request_arrived_when_another_scheduler_said_but_not_in_the_future(
    stamped: int, arrival_ms: int
) -> None:
    meta = from_frontend_pb2.RequestMeta(model="m", num_prompt_tokens=3, arrival_ms=stamped)
    slot = from_worker_pb2.SlotSnapshot(
        status=from_worker_pb2.SLOT_STATUS_PREEMPTED, scheduler_meta=meta.SerializeToString()
    )
    hello = make_hello("w", snapshot=from_worker_pb2.WorkerSnapshot(slots=[slot])).hello
    _, snapshot = delta.parse_hello(hello, WALL_MS)
    assert snapshot is not None and snapshot.slots[0].request.arrival_ms == arrival_ms


def test_adopted_requests_of_one_time_go_in_the_order_in_which_they_were_adopted() -> None:
    """Their sequence is ours: whoever is submitted later in the same millisecond stands behind them."""
    scheduler = Scheduler(SchedulerConfig(max_inflight_steps=1, max_num_seqs=1), 1, 0.0)
    first = make_slot(slot=1, request=make_request("first", 30), blocks=make_slot().blocks + 20)
    second = make_slot(request=make_request("second", 30))
    worker = scheduler.attach_worker(make_info(), WorkerSnapshot(1, 5, [first, second]), 0.0)
    scheduler.submit(make_request("third", 30), 0.0)
    order = sorted(scheduler.requests.values(), key=lambda request: request.order)
    assert [request.key.request_id for request in order] == ["first", "second", "third"]
    assert len({request.sequence for request in order}) == 3
    assert [worker.request(slot).key.request_id for slot in run_step(scheduler).preempted_slots] == ["second"]
