"""What `signalbox bench scheduler` measures on: a core whose tables are full of requests that decode, and workers that
answer as real ones would."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request, RequestKey
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.links.codec import delta
from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.v1 import from_worker_pb2

BLOCK_SIZE = 16
MODEL = "model"
WARM_UP_STEPS = 40
REACH = 512


@dataclass
class Load:
    """What is measured."""

    running: int
    speculative: int
    inflight: int
    prompt_tokens: int
    waiting: int
    steps: int
    """Measured, per table."""
    tables: int = 1
    """Workers, each with a table of its own; their steps come in turn."""
    groups: int = 0
    """Groups of blocks beside the spine, of layers that look back `REACH` positions."""
    lanes: int = 1
    """Lanes of each worker: a step is the turn of one."""

    @property
    def tokens_per_step(self) -> int:
        """With drafts, three tokens come of each step of a request."""
        return 3 if self.speculative else 1


class EchoWorker:
    """The worker's side of a steady decode: counts and seals as a real one would report them, without a model."""

    def __init__(self, load: Load, num_slots: int) -> None:
        self._load = load
        self._rng = np.random.default_rng(0)
        self.num_tokens = np.zeros(num_slots, np.int64)
        self._sealed = np.zeros(num_slots, np.int64)

    def place(self, slot: int, num_prompt: int) -> None:
        """The prompt ran and gave one token."""
        self.num_tokens[slot] = num_prompt + 1
        self._sealed[slot] = num_prompt // BLOCK_SIZE

    def report(self, step_id: int, rows: NDArray[np.int64]) -> bytes:
        """One step of all `rows`, as the scheduler will receive it."""
        count = self._load.tokens_per_step
        self.num_tokens[rows] += count
        full = (self.num_tokens[rows] - 1) // BLOCK_SIZE
        sealing = rows[full > self._sealed[rows]]
        indexes = self._sealed[sealing]
        self._sealed[sealing] += 1
        message = from_worker_pb2.ModelRunnerOutput(
            step_id=step_id,
            num_decode_rows=len(rows),
            decode_counts=np.full(len(rows), count, np.uint8).tobytes() if count != 1 else b"",
            sealed_slots=sealing.astype("<u2").tobytes(),
            sealed_indexes=indexes.astype("<u2").tobytes(),
            sealed_hashes=self._rng.bytes(HASH_BYTES * len(sealing)),
            timings=from_worker_pb2.StepTimings(
                queued_us=100, prepare_us=100, execute_us=20_000, commit_us=100
            ),
        )
        return message.SerializeToString()


@dataclass
class Table:
    """One worker: its side in the scheduler, its other side, and what it has not reported yet."""

    worker: Worker
    echo: EchoWorker
    reports: deque[bytes] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """Name of the worker."""
        return self.worker.info.worker_id


def make_scheduler(load: Load, config: SchedulerConfig | None = None) -> tuple[Scheduler, list[Table]]:
    """A scheduler whose tables are full of requests that decode, and whose waiting ones cannot be taken."""
    config = config or SchedulerConfig(
        max_num_seqs=load.running + 1,
        max_num_batched_tokens=1 << 30,
        max_inflight_steps=load.inflight,
        num_speculative_tokens=load.speculative,
        just_in_time_steps=load.lanes == 1,  # no time passes here
        enable_chunked_prefill=load.lanes == 1,  # all prompts in one step
        max_waiting=1 << 30,
    )
    scheduler = Scheduler(config, epoch=1, now=0.0)
    # One after the other: requests go to the table that has just come, as all others are full.
    tables = [_fill(load, scheduler, f"worker-{number}") for number in range(load.tables)]
    for number in range(load.waiting):
        scheduler.submit(make_request(f"waiting{number}", load.prompt_tokens), 0.0)
    if load.waiting:
        for table in tables:
            table.worker.limits = replace(table.worker.limits, max_num_seqs=load.running)
    return scheduler, tables


def _fill(load: Load, scheduler: Scheduler, name: str) -> Table:
    """Adds a worker whose cache is full of old content, and brings `running` requests there to decode."""
    length = load.prompt_tokens + 16 + (load.steps + WARM_UP_STEPS + 8) * (1 + load.speculative)
    blocks = (load.running + 2) * (-(-length // BLOCK_SIZE) + 4)
    num_slots = load.running + 64
    max_model_len = max(length, 4096)
    group = BlockGroup(BlockGroupKind.WINDOW, REACH, blocks)
    info = WorkerInfo(
        name,
        "i",
        "a:1",
        MODEL,
        num_slots,
        blocks,
        BLOCK_SIZE,
        max_model_len,
        1 << 30,
        load.speculative,
        groups=(group,) * load.groups,
        num_lanes=load.lanes,
    )
    worker = scheduler.attach_worker(info, None, 0.0)
    for pool in worker.pools:
        old = pool.take(blocks)
        pool.publish(old, np.frombuffer(os.urandom(HASH_BYTES * blocks), HASH_DTYPE))
        pool.release(old)
    table = Table(worker, EchoWorker(load, num_slots))
    _start_all(load, scheduler, table)
    return table


def _start_all(load: Load, scheduler: Scheduler, table: Table) -> None:
    for number in range(load.running):
        scheduler.submit(make_request(f"{table.name}/{number}", load.prompt_tokens + number % 16), 0.0)
    worker = table.worker
    while worker.table.num_running < load.running or worker.table.prefilling:
        step = scheduler.schedule(table.name, 0.0)
        assert step is not None
        report = from_worker_pb2.ModelRunnerOutput.FromString(
            table.echo.report(step.step_id, worker.records[-1].decode_slots)
        )
        report.num_prefill_tokens = step.num_prefill_tokens
        for chunk in worker.records[-1].chunks:
            if chunk.is_final:
                table.echo.place(chunk.slot, worker.request(chunk.slot).num_prompt_tokens)
        scheduler.update(table.name, delta.parse_report(report), 0.0)


def make_request(name: str, num_prompt: int) -> Request:
    """A request with the block hashes of a prompt that nobody had before."""
    return Request(
        key=RequestKey("frontend", name),
        attempt=1,
        model=MODEL,
        num_prompt_tokens=num_prompt,
        num_prior_output_tokens=0,
        max_tokens=1 << 30,
        arrival_ms=0,
        sequence=0,
        block_hashes=os.urandom(HASH_BYTES * (num_prompt // BLOCK_SIZE)),
        hash_block_size=BLOCK_SIZE,
    )
