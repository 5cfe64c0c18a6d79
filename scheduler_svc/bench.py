"""What the scheduler costs per step, without a network: `signalbox bench scheduler`.

Steady decode: every request runs in every step, block phases are spread evenly, and the pool is in its long-run state,
so each grant evicts a cached block. Timed are the scheduler's own parts: deciding, building and serializing the step,
parsing and taking in the report. The worker's reports are made outside of the measured time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler_svc import delta
from scheduler_svc.core.block_pool import HASH_DTYPE
from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.request import HASH_BYTES, Request, RequestKey
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.step import StepDecision
from scheduler_svc.core.worker import Worker, WorkerInfo
from signalbox.v1 import scheduler_pb2

BLOCK_SIZE = 16
WORKER = "worker"
MODEL = "model"
WARM_UP_STEPS = 40
PARTS = ("schedule", "encode", "parse", "update")


@dataclass
class Load:
    """What is measured."""

    running: int
    speculative: int
    inflight: int
    prompt_tokens: int
    waiting: int
    steps: int

    @property
    def tokens_per_step(self) -> int:
        """With drafts, three tokens come of each step of a request."""
        return 3 if self.speculative else 1


@dataclass
class Times:
    """Microseconds per step, by part, and what the messages held."""

    parts: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})
    grants: list[int] = field(default_factory=list)
    seals: list[int] = field(default_factory=list)
    output_bytes: list[int] = field(default_factory=list)
    report_bytes: list[int] = field(default_factory=list)

    def measure(self, part: str, work: Callable[[], object]) -> object:
        """Runs `work` and adds its time to `part`."""
        started = time.perf_counter_ns()
        result = work()
        self.parts[part].append((time.perf_counter_ns() - started) / 1e3)
        return result


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
        message = scheduler_pb2.ModelRunnerOutput(
            step_id=step_id,
            num_decode_rows=len(rows),
            decode_counts=np.full(len(rows), count, np.uint8).tobytes() if count != 1 else b"",
            sealed_slots=sealing.astype("<u2").tobytes(),
            sealed_indexes=indexes.astype("<u2").tobytes(),
            sealed_hashes=self._rng.bytes(HASH_BYTES * len(sealing)),
            timings=scheduler_pb2.StepTimings(
                queued_us=100, prepare_us=100, execute_us=20_000, commit_us=100
            ),
        )
        return message.SerializeToString()


def make_scheduler(load: Load) -> tuple[Scheduler, Worker]:
    """A scheduler with one worker whose cache is full of old content."""
    length = load.prompt_tokens + 16 + (load.steps + WARM_UP_STEPS + 8) * (1 + load.speculative)
    blocks = (load.running + 2) * (-(-length // BLOCK_SIZE) + 4)
    config = SchedulerConfig(
        max_num_seqs=load.running + 1,
        max_num_batched_tokens=1 << 30,
        max_inflight_steps=load.inflight,
        num_speculative_tokens=load.speculative,
        max_waiting=1 << 30,
    )
    scheduler = Scheduler(config, epoch=1, now=0.0)
    num_slots = load.running + 64
    info = WorkerInfo(
        WORKER, "i", "a:1", MODEL, num_slots, blocks, BLOCK_SIZE, max(length, 4096), 1 << 30, load.speculative
    )
    worker = scheduler.attach_worker(info, None, 0.0)
    old = worker.pool.take(blocks)
    worker.pool.publish(old, np.frombuffer(os.urandom(HASH_BYTES * blocks), HASH_DTYPE))
    worker.pool.release(old)
    return scheduler, worker


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


def start_all(load: Load, scheduler: Scheduler, worker: Worker, echo: EchoWorker) -> None:
    """Brings all requests to decode."""
    for number in range(load.running):
        scheduler.submit(make_request(f"r{number}", load.prompt_tokens + number % 16), 0.0)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and len(step.started) == load.running
    for start in step.started:
        echo.place(start.chunk.slot, worker.request(start.chunk.slot).num_prompt_tokens)
    report = scheduler_pb2.ModelRunnerOutput(step_id=step.step_id, num_prefill_tokens=step.num_prefill_tokens)
    scheduler.update(WORKER, delta.parse_report(report), 0.0)
    for number in range(load.waiting):
        scheduler.submit(make_request(f"waiting{number}", load.prompt_tokens), 0.0)


def run(load: Load) -> Times:
    """Steady steps, `inflight` of them always under way."""
    scheduler, worker = make_scheduler(load)
    echo = EchoWorker(load, worker.info.num_slots)
    start_all(load, scheduler, worker, echo)
    if load.waiting:
        worker.limits = type(worker.limits)(**{**vars(worker.limits), "max_num_seqs": load.running})
    times, reports = Times(), deque[bytes]()
    gc.collect()
    gc.freeze()
    for number in range(WARM_UP_STEPS + load.steps):
        if number == WARM_UP_STEPS:
            times = Times()
        while len(worker.records) < load.inflight:
            step = times.measure("schedule", lambda: scheduler.schedule(WORKER, 0.0))
            assert isinstance(step, StepDecision)
            raw = times.measure("encode", lambda step=step: delta.build_step(step, 1).SerializeToString())  # type: ignore[misc]
            assert isinstance(raw, bytes)
            times.grants.append(len(step.grant_slots))
            times.output_bytes.append(len(raw))
            reports.append(echo.report(step.step_id, worker.records[-1].decode_slots))
        raw = reports.popleft()
        times.report_bytes.append(len(raw))
        report = times.measure("parse", lambda raw=raw: parse(raw))  # type: ignore[misc]
        times.seals.append(len(report.sealed_slots))  # type: ignore[attr-defined]
        times.measure("update", lambda report=report: scheduler.update(WORKER, report, 0.0))  # type: ignore[misc]
    gc.unfreeze()
    worker.check_integrity()
    return times


def parse(raw: bytes) -> object:
    """A report from the wire."""
    return delta.parse_report(scheduler_pb2.ModelRunnerOutput.FromString(raw))


def measure_admission(load: Load, cached: bool, rounds: int = 60) -> list[float]:
    """Microseconds of all scheduler work to take a 2,048-token prompt in while `running` others decode: submit, place,
    look up, allocate, build both messages."""
    wide = Load(load.running, 0, 1, load.prompt_tokens, 0, load.steps)
    scheduler, worker = make_scheduler(wide)
    echo = EchoWorker(wide, worker.info.num_slots)
    start_all(wide, scheduler, worker, echo)
    hashes, samples = os.urandom(HASH_BYTES * 128), []
    for number in range(rounds):
        request = make_request(f"new{number}", 2048)
        request.block_hashes = hashes if cached else request.block_hashes
        idle = _timed_step(scheduler, worker, lambda: None)[0]
        spent, placed = _timed_step(scheduler, worker, lambda request=request: scheduler.submit(request, 0.0))  # type: ignore[misc]
        assert placed == 1
        samples.append(spent - idle)
        scheduler.cancel(request.key, 1)
        _timed_step(scheduler, worker, lambda: None)
    return samples[5:]


def _timed_step(scheduler: Scheduler, worker: Worker, before: Callable[[], None]) -> tuple[float, int]:
    started = time.perf_counter_ns()
    before()
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None
    for request in step.placed:
        delta.build_new_request(request, worker).SerializeToString()
    delta.build_step(step, 1).SerializeToString()
    spent = (time.perf_counter_ns() - started) / 1e3
    report = scheduler_pb2.ModelRunnerOutput(
        step_id=step.step_id, num_decode_rows=step.num_decode_rows, num_prefill_tokens=step.num_prefill_tokens
    )
    scheduler.update(WORKER, delta.parse_report(report), 0.0)
    return spent, len(step.placed)


def summarize(load: Load, times: Times) -> dict[str, float]:
    """The line that is printed."""
    line: dict[str, float] = {
        "running": load.running,
        "speculative": load.speculative,
        "inflight": load.inflight,
    }
    line |= {"prompt_tokens": load.prompt_tokens, "waiting": load.waiting, "steps": load.steps}
    columns = {part: np.array(values) for part, values in times.parts.items()}
    columns["total"] = np.sum([values[: load.steps] for values in columns.values()], axis=0)
    for part, values in columns.items():
        line[f"{part}_us_mean"] = round(float(values.mean()), 1)
        line[f"{part}_us_p50"] = round(float(np.percentile(values, 50)), 1)
        line[f"{part}_us_p99"] = round(float(np.percentile(values, 99)), 1)
    line["grants_per_step"] = round(float(np.mean(times.grants)), 1)
    line["seals_per_step"] = round(float(np.mean(times.seals)), 1)
    line["scheduler_output_bytes"] = round(float(np.mean(times.output_bytes)), 1)
    line["model_runner_output_bytes"] = round(float(np.mean(times.report_bytes)), 1)
    return line


def main() -> None:
    """Prints one JSON object per number of running requests."""
    parser = argparse.ArgumentParser(prog="signalbox bench scheduler", description=__doc__)
    parser.add_argument(
        "--running", type=int, nargs="+", default=[64, 256, 1024, 4096], help="running requests"
    )
    parser.add_argument(
        "--speculative", type=int, default=0, help="draft tokens per step; 3 tokens come of each step"
    )
    parser.add_argument("--inflight", type=int, default=2, help="steps sent ahead")
    parser.add_argument("--steps", type=int, default=400, help="steps measured")
    parser.add_argument("--prompt-tokens", type=int, default=512, help="prompt length, plus (i mod 16)")
    parser.add_argument("--waiting", type=int, default=0, help="requests that wait meanwhile")
    parser.add_argument(
        "--admission", action="store_true", help="measure the admission of a 2,048-token prompt instead"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per line (the default, and the only form)"
    )
    arguments = parser.parse_args()
    for running in arguments.running:
        load = Load(
            running,
            arguments.speculative,
            arguments.inflight,
            arguments.prompt_tokens,
            arguments.waiting,
            arguments.steps,
        )
        if arguments.admission:
            for cached in (False, True):
                samples = np.array(measure_admission(load, cached))
                line = {"running": running, "cached": cached}
                percentiles = {
                    f"admission_us_p{p}": round(float(np.percentile(samples, p)), 1) for p in (50, 99)
                }
                print(json.dumps(line | percentiles), flush=True)
        else:
            print(json.dumps(summarize(load, run(load))), flush=True)


if __name__ == "__main__":
    main()
