"""Compares a model in one process with the same model divided among several, in turns on one machine.

    python -m signalbox.benchmarks.runner.ranks --model DIR --ranks 2 --streams 1 8 32 --json

One process runs with one thread and with as many as there are ranks; ranks run with one thread each, on a core each.
Times are medians of decode steps and of a prompt. Of the ranks also: bytes that rank 0 tells of a step, bytes that a
rank gives to collectives, how many these are, and where the time of rank 0 goes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from signalbox.benchmarks.runner.requests import Requests
from worker_svc.config import WorkerSettings
from worker_svc.ranks.runners import LeadingRunner
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.runner_factory import make_runner

BLOCK_SIZE = 16
PROMPT = 64
LONG_PROMPT = 512


@dataclass
class Result:
    """One form at one number of streams."""

    form: str
    streams: int
    step_ms: float = 0.0
    prompt_ms: float = 0.0
    """A prompt of LONG_PROMPT tokens."""
    log_bytes: float = 0.0
    collective_bytes: float = 0.0
    collectives: float = 0.0
    collectives_ms: float = 0.0
    answers_ms: float = 0.0


@dataclass(frozen=True)
class Form:
    """A runner, and the cores of the thread that calls it."""

    name: str
    runner: TorchRunner
    cores: set[int]


def load(options: argparse.Namespace) -> Iterator[Form]:
    """The model in all forms."""
    count = options.ranks
    most = max(options.streams)
    width = -(-(PROMPT + options.steps + 2) // BLOCK_SIZE)
    settings = WorkerSettings.model_validate(
        {
            "model": options.model,
            "dtype": options.dtype,
            "quantization": "none",
            "num_blocks": most * width + LONG_PROMPT // BLOCK_SIZE + 8,
            "num_slots": most + 1,
            "threads": 1,
        }
    )
    cores = sorted(os.sched_getaffinity(0))
    for threads in sorted({1, count}):
        runner, _ = make_runner(settings.model_copy(update={"threads": threads}))
        assert isinstance(runner, TorchRunner)
        yield Form(f"1 process, {threads} threads", runner, set(cores))
    collectives = {"collectives": options.collectives}
    leading, _ = make_runner(settings.model_copy(update={"tensor_parallel": count} | collectives))
    assert isinstance(leading, LeadingRunner)
    for rank, pid in enumerate(leading.pids, 1):
        os.sched_setaffinity(pid, {cores[rank % len(cores)]})
    yield Form(f"{count} ranks, 1 thread each", leading, {cores[0]})


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """This thread runs there meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(form: Form, streams: int, num_steps: int) -> Result:
    """Decode steps of so many streams, and a long prompt."""
    random, runner = np.random.default_rng(0), form.runner
    prompts = [random.integers(0, runner.info.vocab_size, PROMPT).astype(np.int32) for _ in range(streams)]
    requests = Requests(prompts, num_steps + 2, BLOCK_SIZE)
    result = Result(form.name, streams)
    with on_cores(form.cores):
        for slot in range(streams):
            _run(runner, requests, [(slot, PROMPT)])
        before = _counts(runner)
        times = [_run(runner, requests, []) for _ in range(num_steps)]
        after = _counts(runner)
        long = [random.integers(0, runner.info.vocab_size, LONG_PROMPT).astype(np.int32)]
        result.prompt_ms = _run(runner, Requests(long, 2, BLOCK_SIZE), [(0, LONG_PROMPT)])
    result.step_ms = statistics.median(times)
    each = [(b - a) / num_steps for a, b in zip(before, after, strict=True)]
    result.log_bytes, result.collective_bytes, result.collectives = each[:3]
    result.collectives_ms, result.answers_ms = (1e3 * seconds for seconds in each[3:])
    return result


def _run(runner: TorchRunner, requests: Requests, chunks: list[tuple[int, int]]) -> float:
    """Milliseconds of a step."""
    batch = requests.batch(chunks)
    started = time.perf_counter()
    sampled = runner.execute(batch)
    took = time.perf_counter() - started
    requests.advance(batch)
    requests.fill_in(batch, sampled.token_ids)
    return 1e3 * took


def _counts(runner: TorchRunner) -> list[float]:
    if not isinstance(runner, LeadingRunner):
        return [0.0] * 5
    ranks, times = runner.ranks, runner.rank_times[0]
    return [runner.log_bytes, ranks.num_bytes, ranks.num_calls, times.collectives, times.answers]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="model directory")
    add("--dtype", choices=("float32", "bfloat16"), default="bfloat16", help="type of weights")
    add("--ranks", type=int, default=2, help="processes")
    add("--streams", type=int, nargs="+", default=[1, 8, 32], help="streams that decode")
    add("--steps", type=int, default=48, help="decode steps of a turn")
    add("--turns", type=int, default=5, help="turns; medians of them are told")
    add(
        "--collectives",
        choices=("auto", "shared-memory", "gloo"),
        default="auto",
        help="as the worker's setting",
    )
    add("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    forms = list(load(options))
    for streams in options.streams:
        turns = [[measure(form, streams, options.steps) for form in forms] for _ in range(options.turns)]
        for number, form in enumerate(forms):
            mine = [turn[number] for turn in turns]
            told = replace(
                mine[-1],
                step_ms=statistics.median(each.step_ms for each in mine),
                prompt_ms=statistics.median(each.prompt_ms for each in mine),
            )
            line = {
                key: value if isinstance(value, str) else round(value, 3)
                for key, value in asdict(told).items()
            }
            if options.json:
                print(json.dumps(line), flush=True)
            else:
                print(
                    f"{streams:>4} streams, {form.name}: {told.step_ms:.2f} ms a step, {told.prompt_ms:.0f} ms a prompt"
                )
    for form in forms:
        if isinstance(form.runner, LeadingRunner):
            form.runner.close()


if __name__ == "__main__":
    main()
