"""A scheduler core with a worker that does what it is told, without a worker's core behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler_svc.core.recovery.snapshot import SlotSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request, RequestKey
from scheduler_svc.core.state.steps.step import StepDecision, StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_info import WorkerInfo
from signalbox.protocol.enums import SlotStatus

MODEL = "m"
WORKER = "w"


def make_scheduler(
    num_blocks: int = 64, block_size: int = 4, num_slots: int = 16, **settings: object
) -> Scheduler:
    """A scheduler with one attached worker."""
    scheduler = Scheduler(SchedulerConfig(**settings), epoch=1, now=0.0)  # type: ignore[arg-type]
    info = WorkerInfo(WORKER, "i", "a:1", MODEL, num_slots, num_blocks, block_size, 1 << 20, 1 << 20)
    scheduler.attach_worker(info, None, 0.0)
    return scheduler


def make_info(**fields: Any) -> WorkerInfo:
    """What the one worker says of itself, but for `fields`."""
    values: dict[str, Any] = {
        "worker_id": WORKER,
        "instance": "i",
        "address": "a:1",
        "model": MODEL,
        "num_slots": 16,
        "num_blocks": 64,
        "block_size": 4,
        "max_model_len": 1 << 20,
        "max_num_batched_tokens": 1 << 20,
    }
    return WorkerInfo(**(values | fields))


def make_slot(**fields: Any) -> SlotSnapshot:
    """A decode row of 40 tokens in ten blocks."""
    values: dict[str, Any] = {
        "slot": 0,
        "request": make_request("long", 30, max_tokens=100),
        "status": SlotStatus.DECODE,
        "blocks": np.arange(10, dtype=np.int32),
        "sealed_hashes": b"",
        "num_computed_tokens": 39,
        "num_output_tokens": 10,
        "prefill_target": 30,
    }
    return SlotSnapshot(**(values | fields))


def make_request(
    name: str, num_prompt: int, max_tokens: int = 100, hashes: bytes = b"", **fields: object
) -> Request:
    """A request that arrives in the order of creation."""
    values: dict[str, object] = {
        "key": RequestKey("f", name),
        "attempt": 1,
        "model": MODEL,
        "num_prompt_tokens": num_prompt,
        "num_prior_output_tokens": 0,
        "max_tokens": max_tokens,
        "arrival_ms": 0,
        "sequence": 0,
        "block_hashes": hashes,
        "hash_block_size": 4,
    } | fields
    return Request(**values)  # type: ignore[arg-type]


def report_for(scheduler: Scheduler, finished: tuple[tuple[int, int, int], ...] = ()) -> StepReport:
    """The report of the oldest step in flight of a worker where everything went as expected."""
    record = scheduler.workers[WORKER].records[0]
    return StepReport(
        record.step_id,
        record.num_decode_rows,
        record.num_prefill_tokens,
        finished=list(finished),
        checkpoint_positions=[order.position for order in record.checkpoints],
    )


def run_step(scheduler: Scheduler) -> StepDecision:
    """Schedules one step and reports it."""
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    return step


def tokens_by_name(scheduler: Scheduler, step: StepDecision) -> dict[str, int]:
    """How many tokens a step runs for each request."""
    worker = scheduler.workers[WORKER]
    chunks = [*step.chunks, *(s.chunk for s in step.resumed), *(s.chunk for s in step.started)]
    tokens = {name_of(worker, chunk.slot): chunk.length for chunk in chunks}
    record = worker.records[-1]
    return tokens | {
        name_of(worker, int(slot)): int(record.advance[slot]) for slot in np.flatnonzero(record.advance)
    }


def name_of(worker: Worker, slot: int) -> str:
    """The request id of whoever holds `slot`."""
    return worker.request(slot).key.request_id
