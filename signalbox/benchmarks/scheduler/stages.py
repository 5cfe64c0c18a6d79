"""How much of their time the stages of a pipeline stand idle, in simulated time.

    python -m signalbox.benchmarks.scheduler.stages --stages 4 --base-ms 8.3 --token-ms 0.55 --context-ms 0.0002

The scheduler core is the real one, and a simulated worker passes its steps through stages that each take an equal part
of `base + per_token * tokens + per_context * context`, of each chunk by the positions that it reads. A line for each
of: one long prompt alone, beside the ideal share (P - 1) / (chunks + P - 1) of as many equal chunks; the same with
prompts that are cut by the budget alone; requests that decode and end at random, with lanes that are kept even, and
left as they come; and both together. Idle is what lies between the begin of the first step and the end of the last, at
all stages.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from scheduler_svc.core.cluster.worker_info import WorkerInfo
from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.request import Request, RequestKey
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.step import builder, capacity
from scheduler_svc.core.step.step import Chunk, StepDecision, StepReport
from signalbox.protocol.enums import FinishReason

WORKER, MODEL, BLOCK_SIZE = "w", "model", 16


@dataclass(frozen=True)
class Timing:
    """Seconds of a step at all stages together."""

    base: float
    per_token: float
    per_context: float


@dataclass
class StagedWorker:
    """Counts tokens; a step enters a stage when that is free and the one before has done with it."""

    num_stages: int
    timing: Timing
    free_at: list[float] = field(default_factory=list)
    busy_s: float = 0.0
    begun_at: float | None = None
    num_chunks: int = 0
    lengths: dict[int, int] = field(default_factory=dict)
    """Tokens so far of each slot."""
    limits: dict[int, int] = field(default_factory=dict)
    done_at: dict[int, float] = field(default_factory=dict)
    """When each slot's last token was there: the next step of it begins behind that."""

    def __post_init__(self) -> None:
        self.free_at = [0.0] * self.num_stages

    def run(self, step: StepDecision, rows: list[int], now: float) -> tuple[float, StepReport]:
        """When the step leaves the last stage, and what is reported then."""
        starts = [*step.started, *step.resumed]
        chunks = [*step.chunks, *(start.chunk for start in starts)]
        report = StepReport(step.step_id, len(rows), sum(chunk.length for chunk in chunks))
        at = max([now, *(self.done_at[slot] for slot in rows)])
        stage_s = self._seconds(rows, chunks) / self.num_stages
        if rows or chunks:
            self.begun_at = at if self.begun_at is None else self.begun_at
            for stage, free in enumerate(self.free_at):
                at = self.free_at[stage] = max(at, free) + stage_s
                self.busy_s += stage_s
        self.num_chunks += len(chunks)
        self._count(rows, chunks, report, at)
        report.execute_us = report.duration_us = int(stage_s * 1e6)
        return at, report

    def _seconds(self, rows: list[int], chunks: list[Chunk]) -> float:
        context = sum(self.lengths[slot] for slot in rows)
        context += sum(chunk.length * (chunk.start + chunk.length // 2) for chunk in chunks)
        tokens = len(rows) + sum(chunk.length for chunk in chunks)
        timing = self.timing
        return timing.base + timing.per_token * tokens + timing.per_context * context

    def _count(self, rows: list[int], chunks: list[Chunk], report: StepReport, at: float) -> None:
        over = []
        for slot in rows:
            if self.lengths[slot] >= self.limits[slot]:
                over.append(slot)
                continue
            self._add_token(slot, report, at)
        for chunk in chunks:
            if chunk.is_final:
                self.lengths[chunk.slot] = chunk.start + chunk.length
                self._add_token(chunk.slot, report, at)
        report.exception_slots, report.exception_counts = (
            np.array(over, np.int64),
            np.zeros(len(over), np.int64),
        )

    def _add_token(self, slot: int, report: StepReport, at: float) -> None:
        self.lengths[slot] += 1
        self.done_at[slot] = at
        if self.lengths[slot] == self.limits[slot]:
            report.finished.append((slot, FinishReason.LENGTH, 0))


@dataclass
class Pipeline:
    """A scheduler and its one worker, in simulated time."""

    options: argparse.Namespace
    scheduler: Scheduler = field(init=False)
    worker: StagedWorker = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        config = SchedulerConfig(
            max_num_seqs=options.seqs,
            max_num_batched_tokens=options.budget,
            just_in_time_steps=False,
            decode_burst_ms=0.0,
        )
        self.scheduler = Scheduler(config, epoch=1, now=0.0)
        info = WorkerInfo(
            WORKER, "i", "a:1", MODEL, 4 * options.seqs, 1 << 16, BLOCK_SIZE, 1 << 20, 1 << 20,
            num_lanes=options.stages,
        )  # fmt: skip
        self.scheduler.attach_worker(info, None, 0.0)
        timing = Timing(options.base_ms / 1e3, options.token_ms / 1e3, options.context_ms / 1e3)
        self.worker = StagedWorker(options.stages, timing)

    def run(self, requests: list[tuple[float, int, int]]) -> dict[str, float]:
        """Requests as (when, prompt, output). Idle share and others, once all have ended."""
        coming, now = sorted(requests), 0.0
        state, ends = self.scheduler.workers[WORKER], list[tuple[float, StepReport]]()
        number = 0
        while coming or ends or self.scheduler.requests:
            while coming and coming[0][0] <= now:
                _, prompt, output = coming.pop(0)
                self.scheduler.submit(_request(number, prompt, output), now)
                number += 1
            while (
                len(ends) <= self.options.stages
                and (step := self.scheduler.schedule(WORKER, now)) is not None
            ):
                record = state.records[-1]
                for request in step.placed:
                    assert request.slot is not None
                    self.worker.lengths[request.slot] = request.num_prompt_tokens
                    self.worker.limits[request.slot] = request.num_prompt_tokens + request.max_tokens
                ends.append(self.worker.run(step, record.decode_slots.tolist(), now))
            if ends and not (coming and coming[0][0] < ends[0][0]):
                now = max(now, ends[0][0])
                self.scheduler.update(WORKER, ends.pop(0)[1], now)
            elif coming:
                now = coming[0][0]
        worker = self.worker
        assert worker.begun_at is not None
        elapsed = max(worker.free_at) - worker.begun_at
        idle = 1 - worker.busy_s / (elapsed * worker.num_stages)
        return {"seconds": round(elapsed, 3), "idle_share": round(idle, 3), "chunks": worker.num_chunks}


def _request(number: int, prompt: int, output: int) -> Request:
    return Request(
        key=RequestKey("f", f"r{number}"),
        attempt=1,
        model=MODEL,
        num_prompt_tokens=prompt,
        num_prior_output_tokens=0,
        max_tokens=output,
        arrival_ms=number,
        sequence=0,
        block_hashes=b"",
        hash_block_size=0,
    )


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Meanwhile the scheduler does without these: `even_out`, `turn_share`. For comparison."""
    plain: dict[str, Any] = {
        "even_out": mock.patch.object(builder, "even_out", lambda table, step: None),
        "turn_share": mock.patch.object(capacity, "turn_share", lambda worker, slot: 1 << 30),
    }
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(plain[name])
        yield


def main() -> None:
    """Prints one JSON object per case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--stages", type=int, default=4, help="stages, and lanes")
    add("--base-ms", type=float, default=8.3, help="a step without tokens, at all stages together")
    add("--token-ms", type=float, default=0.55, help="per token")
    add("--context-ms", type=float, default=0.0002, help="per token and position before it")
    add("--budget", type=int, default=2048, help="max_num_batched_tokens")
    add("--seqs", type=int, default=64, help="requests at once")
    add("--prompt", type=int, default=2048, help="of the long prompt")
    add("--requests", type=int, default=400, help="that decode")
    add("--seed", type=int, default=0)
    add("--json", action="store_true", help="one JSON object per line (the default, and the only form)")
    options = parser.parse_args()
    dice, stages = random.Random(options.seed), options.stages
    chats = [(0.0, dice.randint(16, 128), dice.randint(16, 400)) for _ in range(options.requests)]
    prompts = [(0.5 * n, options.prompt, 16) for n in range(20)]
    cases: list[tuple[str, list[tuple[float, int, int]], tuple[str, ...]]] = [
        ("one prompt", [(0.0, options.prompt, 1)], ()),
        ("one prompt, cut by the budget alone", [(0.0, options.prompt, 1)], ("turn_share",)),
        ("decoding, even lanes", chats, ()),
        ("decoding, lanes as they come", chats, ("even_out",)),
        ("decoding and prompts", [*chats, *prompts], ()),
        ("decoding and prompts, neither", [*chats, *prompts], ("even_out", "turn_share")),
    ]
    for name, requests, left_out in cases:
        with without(*left_out):
            line: dict[str, Any] = {"case": name, **Pipeline(options).run(requests)}
        if len(requests) == 1:
            line["ideal"] = round((stages - 1) / (line["chunks"] + stages - 1), 3)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
