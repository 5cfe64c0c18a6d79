"""Submits that no frontend of ours sends are refused by name, and harm nobody else."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_svc.core.queue import refusal
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.slots.table import SlotTable
from scheduler_svc.core.state.slots.table_check import check_table
from scheduler_svc.server import tick_for_ever
from scheduler_svc.step_loop import StepLoop
from signalbox.v1 import from_frontend_pb2, shared_pb2
from tests.scheduler_svc.attached import MODEL, attach_frontend, dial, make_hello, serve, submit
from tests.scheduler_svc.harness import make_request, make_scheduler, run_step


def refusal_fields(scheduler: Scheduler) -> list[str]:
    """Fields that refusals name."""
    notices = [notice for notice in scheduler.drain_notices() if isinstance(notice, Rejected)]
    assert all(notice.code == "InvalidRequestError" for notice in notices)
    return [notice.field for notice in notices]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hashes": bytes(17)}, "block_hashes"),
        ({"hashes": bytes(32)}, "block_hashes"),
        ({"hashes": bytes(16), "hash_block_size": 0}, "block_hashes"),
        ({"root_hash": bytes(5)}, "root_hash"),
        ({"num_prompt": 0}, "num_prompt_tokens"),
        ({"payload": bytes(65)}, "payload"),
    ],
)
@pytest.mark.parametrize("with_worker", [True, False])
def test_it_is_refused_by_name(
    fields: dict[str, object], named: str, with_worker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Z4."""
    monkeypatch.setattr(refusal, "MAX_REQUEST_BYTES", 64)
    scheduler = (
        make_scheduler(max_inflight_steps=1)
        if with_worker
        else Scheduler(SchedulerConfig(), epoch=1, now=0.0)
    )
    scheduler.submit(make_request("bad", **({"num_prompt": 6} | fields)), 0.0)  # type: ignore[arg-type]
    assert refusal_fields(scheduler) == [named]
    scheduler.submit(make_request("good", 6, hashes=bytes(16)), 0.0)
    assert refusal_fields(scheduler) == []
    if with_worker:
        assert [request.key.request_id for request in run_step(scheduler).placed] == ["good"]
    scheduler.check_integrity()


def test_hashes_that_do_not_fit_take_no_slot() -> None:
    table = SlotTable(num_slots=2, max_blocks=4, block_size=4)
    for _ in range(3):
        with pytest.raises(ValueError, match="buffer size"):
            table.place(make_request("bad", 6, hashes=bytes(17)), limit=16, drafts=0)
    assert table.num_free_slots == 2
    check_table(table)


async def test_the_others_of_its_message_are_served() -> None:
    """U3."""
    async with serve() as (_, address), dial(address) as stub:
        worker, frontend = stub.AttachWorker(), await attach_frontend(stub)
        await worker.write(make_hello("w"))
        await worker.read()
        meta = from_frontend_pb2.RequestMeta(
            model=MODEL, num_prompt_tokens=6, max_tokens=8, block_hashes=bytes(17), hash_block_size=4
        )
        bad = from_frontend_pb2.SubmitRequest(
            ref=shared_pb2.RequestRef(request_id="bad", attempt=1), meta=meta
        )
        await frontend.write(
            from_frontend_pb2.AttachFrontendRequest(
                operations=[from_frontend_pb2.FrontendOperation(submit=bad)]
            )
        )
        await submit(frontend, "good")
        async with asyncio.timeout(10):
            assert [request.ref.request_id for request in (await worker.read()).new_requests] == ["good"]
            while not (message := await frontend.read()).rejected:
                pass
        assert message.rejected[0].error.field == "block_hashes"


async def test_the_ticker_outlives_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grace times have to run out whatever one tick met."""
    core = Scheduler(SchedulerConfig(), epoch=1, now=0.0)
    ticks: list[float] = []

    def tick(now: float) -> None:
        ticks.append(now)
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(core, "tick", tick)
    ticker = asyncio.create_task(tick_for_ever(StepLoop(core, lambda: 0.0, lambda when, action: None), 0.001))
    async with asyncio.timeout(10):
        while len(ticks) < 3:
            await asyncio.sleep(0.001)
    ticker.cancel()
