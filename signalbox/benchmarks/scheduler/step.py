"""What the scheduler costs per step, without a network: `signalbox bench scheduler`.

Steady decode: every request runs in every step, block phases are spread evenly, and the pool is in its long-run state,
so each grant evicts a cached block. Timed are the scheduler's own parts: deciding, building and serializing the step,
parsing and taking in the report. The worker's reports are made outside of the measured time. With `--tables` so many
workers take turns, so that none finds its table in the CPU's caches.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.steps.step import StepDecision, StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_check import check_state
from scheduler_svc.links.codec import delta
from signalbox.benchmarks.plots import check_plot, draw
from signalbox.benchmarks.scheduler.tables import WARM_UP_STEPS, Load, Table, make_request, make_scheduler
from signalbox.errors import SignalboxError
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.v1 import from_worker_pb2

PARTS = ("schedule", "encode", "parse", "update")
CORE_PARTS = ("schedule", "update")
"""Parts of a step that are the core's, without messages."""


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


def run(load: Load) -> Times:
    """Steady steps, `inflight` of them always under way on every table; the tables take turns."""
    scheduler, tables = make_scheduler(load)
    times = Times()
    gc.collect()
    gc.freeze()
    for number in range(WARM_UP_STEPS + load.steps):
        if number == WARM_UP_STEPS:
            times = Times()
        for table in tables:
            _take_turn(load, scheduler, table, times)
    gc.unfreeze()
    for table in tables:
        check_state(table.worker)
    return times


def _take_turn(load: Load, scheduler: Scheduler, table: Table, times: Times) -> None:
    """Sends what can be sent to one worker, and takes in its oldest report."""
    while len(table.worker.records) < table.worker.limits.max_inflight_steps:
        step = times.measure("schedule", lambda: scheduler.schedule(table.name, 0.0))
        assert isinstance(step, StepDecision)
        raw = times.measure("encode", lambda step=step: delta.build_step(step, 1).SerializeToString())  # type: ignore[misc]
        assert isinstance(raw, bytes)
        times.grants.append(len(step.grant_slots))
        times.output_bytes.append(len(raw))
        table.reports.append(table.echo.report(step.step_id, table.worker.records[-1].decode_slots))
    raw = table.reports.popleft()
    times.report_bytes.append(len(raw))
    report = times.measure("parse", partial(parse, raw))
    assert isinstance(report, StepReport)
    times.seals.append(len(report.sealed_slots))
    times.measure("update", lambda: scheduler.update(table.name, report, 0.0))


def parse(raw: bytes) -> object:
    """A report from the wire."""
    return delta.parse_report(from_worker_pb2.ModelRunnerOutput.FromString(raw))


def measure_admission(load: Load, cached: bool, rounds: int = 60) -> list[float]:
    """Microseconds of all scheduler work to take a 2,048-token prompt in while `running` others decode: submit, place,
    look up, allocate, build both messages."""
    wide = Load(load.running, 0, 1, load.prompt_tokens, 0, load.steps)
    scheduler, (table,) = make_scheduler(wide)
    hashes, samples = os.urandom(HASH_BYTES * 128), []
    for number in range(rounds):
        request = make_request(f"new{number}", 2048)
        request.block_hashes = hashes if cached else request.block_hashes
        idle = _timed_step(scheduler, table.worker, lambda: None)[0]
        spent, placed = _timed_step(scheduler, table.worker, partial(scheduler.submit, request, 0.0))
        assert placed == 1
        samples.append(spent - idle)
        scheduler.cancel(request.key, 1)
        _timed_step(scheduler, table.worker, lambda: None)
    return samples[5:]


def _timed_step(scheduler: Scheduler, worker: Worker, before: Callable[[], None]) -> tuple[float, int]:
    started = time.perf_counter_ns()
    before()
    step = scheduler.schedule(worker.info.worker_id, 0.0)
    assert step is not None
    for request in step.placed:
        delta.build_new_request(request, worker).SerializeToString()
    delta.build_step(step, 1).SerializeToString()
    spent = (time.perf_counter_ns() - started) / 1e3
    report = from_worker_pb2.ModelRunnerOutput(
        step_id=step.step_id, num_decode_rows=step.num_decode_rows, num_prefill_tokens=step.num_prefill_tokens
    )
    scheduler.update(worker.info.worker_id, delta.parse_report(report), 0.0)
    return spent, len(step.placed)


def summarize(load: Load, times: Times) -> dict[str, float]:
    """The line that is printed."""
    line: dict[str, float] = {
        "running": load.running,
        "speculative": load.speculative,
        "inflight": load.inflight,
    }
    line |= {"prompt_tokens": load.prompt_tokens, "waiting": load.waiting, "steps": load.steps}
    line["tables"], line["groups"], line["lanes"] = load.tables, load.groups, load.lanes
    columns = {part: np.array(values) for part, values in times.parts.items()}
    count = load.steps * load.tables
    columns["total"] = np.sum([values[:count] for values in columns.values()], axis=0)
    for part, values in columns.items():
        line[f"{part}_us_mean"] = round(float(values.mean()), 1)
        line[f"{part}_us_p50"] = round(float(np.percentile(values, 50)), 1)
        line[f"{part}_us_p99"] = round(float(np.percentile(values, 99)), 1)
    core_us = sum(float(columns[part].mean()) for part in CORE_PARTS)
    line["core_steps_per_s"] = round(1e6 / core_us, 1)
    line["steps_per_s"] = round(1e6 / float(columns["total"].mean()), 1)
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
    parser.add_argument("--steps", type=int, default=400, help="steps measured, of each table")
    parser.add_argument(
        "--tables", type=int, default=1, help="workers, each with its own table, that take turns"
    )
    parser.add_argument(
        "--groups", type=int, default=0, help="groups of blocks beside the spine, of windows of 512"
    )
    parser.add_argument(
        "--lanes", type=int, default=1, help="lanes of each worker: a step is the turn of one"
    )
    parser.add_argument("--prompt-tokens", type=int, default=512, help="prompt length, plus (i mod 16)")
    parser.add_argument("--waiting", type=int, default=0, help="requests that wait meanwhile")
    parser.add_argument(
        "--admission", action="store_true", help="measure the admission of a 2,048-token prompt instead"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per line (the default, and the only form)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="also draw the figures (.svg, .png, .pdf), beside peers'"
    )
    arguments = parser.parse_args()
    if arguments.plot is not None and arguments.admission:
        parser.error("--plot draws steady steps, not --admission")
    try:
        check_plot(arguments.plot)
    except SignalboxError as error:
        parser.error(error.message)
    lines = []
    for running in arguments.running:
        load = Load(
            running,
            arguments.speculative,
            arguments.inflight,
            arguments.prompt_tokens,
            arguments.waiting,
            arguments.steps,
            arguments.tables,
            arguments.groups,
            arguments.lanes,
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
            lines.append(summarize(load, run(load)))
            print(json.dumps(lines[-1]), flush=True)
    if arguments.plot is not None:
        draw("scheduler", lines, arguments.plot)


if __name__ == "__main__":
    main()
