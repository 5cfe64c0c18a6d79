"""Compares a model in one process with the same model divided among several, in turns on one machine.

    python -m signalbox.benchmarks.runner.ranks --model DIR --ranks 2 --streams 1 8 32 --json

One process runs with one thread and with as many as there are ranks; ranks run with one thread each, on a core each:
layers are divided among them, and with `--stages` each has layers of its own. Then streams are in as many lanes, and a
step is a round of all of them; a prompt is cut as the scheduler cuts it.
Each form is a process of its own, started anew in each turn: threads are a setting of a whole process. Times are
medians of decode steps and of a prompt. Of the ranks also: bytes that rank 0 tells of a step, bytes that a
rank gives to collectives, how many these are, and where the time of rank 0 goes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.step.turn_share import LEAST_TOKENS, PARTS
from signalbox.benchmarks.runner.requests import Requests
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import Batch
from worker_svc.ranks.pipeline import PassingBatch, PipelineRunner
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
    """A way to run the model."""

    num_ranks: int
    threads: int
    num_stages: int = 1

    @property
    def name(self) -> str:
        """For people."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        if self.num_stages > 1:
            return f"{self.num_stages} stages, {threads} each"
        return f"1 process, {threads}" if self.num_ranks == 1 else f"{self.num_ranks} ranks, {threads} each"


def load(form: Form, options: argparse.Namespace) -> TorchRunner:
    """The model in that form, each rank on a core of its own."""
    most = max(options.streams)
    width = -(-(PROMPT + options.steps + most + 2) // BLOCK_SIZE)
    settings = WorkerSettings.model_validate(
        {
            "model": options.model,
            "dtype": options.dtype,
            "quantization": options.quantization,
            "num_blocks": most * width + LONG_PROMPT // BLOCK_SIZE + 8,
            "num_slots": most + 1,
            "threads": form.threads,
            "tensor_parallel": form.num_ranks,
            "pipeline_parallel": form.num_stages,
            "collectives": options.collectives,
        }
    )
    runner, _ = make_runner(settings)
    assert isinstance(runner, TorchRunner)
    if isinstance(runner, LeadingRunner):
        cores = sorted(os.sched_getaffinity(0))
        for rank, pid in enumerate((0, *runner.pids)):
            os.sched_setaffinity(pid, {cores[rank % len(cores)]})
    return runner


def measure(name: str, runner: TorchRunner, streams: int, num_steps: int) -> Result:
    """Decode steps of so many streams, and a long prompt."""
    random = np.random.default_rng(0)
    prompts = [random.integers(0, runner.info.vocab_size, PROMPT).astype(np.int32) for _ in range(streams)]
    requests = Requests(prompts, num_steps + streams + 2, BLOCK_SIZE)
    result = Result(name, streams)
    for slot in range(streams):
        _run(runner, requests, [(slot, PROMPT)])
    before = _counts(runner)
    times = (
        _run_rounds(runner, requests, streams, num_steps)
        if isinstance(runner, PipelineRunner)
        else [_run(runner, requests, []) for _ in range(num_steps)]
    )
    after = _counts(runner)
    long = [random.integers(0, runner.info.vocab_size, LONG_PROMPT).astype(np.int32)]
    prompt = Requests(long, 2, BLOCK_SIZE)
    if isinstance(runner, PipelineRunner):
        result.prompt_ms = _run_prompt(runner, prompt)
    else:
        result.prompt_ms = _run(runner, prompt, [(0, LONG_PROMPT)])
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


def _run_rounds(runner: PipelineRunner, requests: Requests, streams: int, num_rounds: int) -> list[float]:
    """Milliseconds of rounds, in each of which all streams get a token: batches of all lanes are on their way."""
    lanes = [
        part.astype(np.int32)
        for part in np.array_split(np.arange(streams), runner.info.num_lanes)
        if len(part)
    ]
    passing = deque[tuple[NDArray[np.int32], Batch, PassingBatch]]()

    def launch(lane: NDArray[np.int32]) -> None:
        batch = requests.batch([], lane)
        passing.append((lane, batch, runner.launch(batch, np.zeros(len(lane), np.bool_))))
        requests.advance(batch)

    for lane in lanes:
        launch(lane)
    times = []
    for _ in range(num_rounds):
        started = time.perf_counter()
        for _ in lanes:
            lane, batch, launched = passing.popleft()
            requests.fill_in(batch, runner.collect(launched).token_ids)
            launch(lane)
        times.append(1e3 * (time.perf_counter() - started))
    while passing:
        runner.collect(passing.popleft()[2])
    return times


def _run_prompt(runner: PipelineRunner, prompt: Requests) -> float:
    """Milliseconds of a prompt whose chunks follow each other through the stages."""
    left, passing, started = LONG_PROMPT, deque[PassingBatch](), time.perf_counter()
    while left or passing:
        if left and len(passing) < runner.info.num_lanes:
            length = min(left, max(-(-left // (PARTS * runner.info.num_lanes)), LEAST_TOKENS))
            batch = prompt.batch([(0, length)])
            passing.append(runner.launch(batch, np.zeros(1, np.bool_)))
            prompt.advance(batch)
            left -= length
        else:
            runner.collect(passing.popleft())
    return 1e3 * (time.perf_counter() - started)


def _counts(runner: TorchRunner) -> list[float]:
    if not isinstance(runner, LeadingRunner):
        return [0.0] * 5
    ranks, times = runner.ranks, runner.rank_times[0]
    return [runner.log_bytes, ranks.num_bytes, ranks.num_calls, times.collectives, times.answers]


def run_one(form: Form, options: argparse.Namespace) -> None:
    """Measures a form at all numbers of streams, and prints a line of JSON for each."""
    runner = load(form, options)
    for streams in options.streams:
        print(json.dumps(asdict(measure(form.name, runner, streams, options.steps))), flush=True)
    if isinstance(runner, LeadingRunner):
        runner.close()


def run_apart(form: Form, arguments: list[str]) -> list[Result]:
    """What a process of its own measures."""
    command = [
        sys.executable,
        "-m",
        __spec__.name,
        *arguments,
        "--form",
        str(form.num_ranks),
        str(form.threads),
        str(form.num_stages),
    ]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [Result(**json.loads(line)) for line in output.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="model directory")
    add("--dtype", choices=("float32", "bfloat16"), default="bfloat16", help="type of weights")
    add(
        "--quantization",
        choices=("auto", "none", "int8", "int4"),
        default="none",
        help="as the worker's setting",
    )
    add("--ranks", type=int, default=2, help="processes")
    add("--streams", type=int, nargs="+", default=[1, 8, 32], help="streams that decode")
    add("--steps", type=int, default=48, help="decode steps of a turn")
    add("--turns", type=int, default=5, help="turns; medians of them are told")
    collectives = ("auto", "shared-memory", "gloo")
    add("--collectives", choices=collectives, default="auto", help="as the worker's setting")
    add("--stages", action="store_true", help="also as many stages as ranks, with a part of the layers each")
    add(
        "--form",
        type=int,
        nargs=3,
        metavar=("RANKS", "THREADS", "STAGES"),
        help="that one alone, in this process",
    )
    add("--json", action="store_true", help="one JSON object per line (the default, and the only form)")
    options = parser.parse_args()
    if options.form:
        run_one(Form(*options.form), options)
        return
    forms = [Form(1, threads) for threads in sorted({1, options.ranks})] + [Form(options.ranks, 1)]
    forms += [Form(1, 1, options.ranks)] if options.stages else []
    turns = [[run_apart(form, sys.argv[1:]) for form in forms] for _ in range(options.turns)]
    for at in range(len(options.streams)):
        for number in range(len(forms)):
            mine = [turn[number][at] for turn in turns]
            steps, prompts = ([getattr(each, name) for each in mine] for name in ("step_ms", "prompt_ms"))
            told = replace(mine[-1], step_ms=statistics.median(steps), prompt_ms=statistics.median(prompts))
            line = asdict(told)
            print(json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in line.items()}))


if __name__ == "__main__":
    main()
