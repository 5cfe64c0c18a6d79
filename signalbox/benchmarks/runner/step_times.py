"""Measures what steps of a model take on this machine, and fits what `signalbox bench plan` goes by.

    python -m signalbox.benchmarks.runner.step_times --model DIR --threads 1 --json

Steps with so many rows that decode as `--streams` says, each with a chunk of a prompt or without, are run; a step then
takes `base_ms`, `token_ms` for each token in it, and `context_ms` for each token that its rows look back at. The fit
minimises relative errors; `error` is their median, so that a machine which these three do not describe shows.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from signalbox.benchmarks.runner.bench import add_load, load_runner
from signalbox.benchmarks.runner.requests import Requests
from worker_svc.runner.torch_runner import TorchRunner

F64 = NDArray[np.float64]
CHUNKS = (0, 16, 64, 256, 512)
BLOCK_SIZE = 16


@dataclass(frozen=True)
class StepTimes:
    """Options of `signalbox bench plan`, in milliseconds."""

    base_ms: float
    token_ms: float
    context_ms: float
    error: float
    """Median of the relative errors of the fit."""
    num_steps: int


def observe(runner: TorchRunner, options: argparse.Namespace) -> tuple[F64, F64]:
    """Tokens and context of each step, (n, 2), and its seconds, (n,)."""
    random = np.random.default_rng(0)
    features, seconds = [], []
    for rows in options.streams:
        for chunk in CHUNKS:
            lengths = [options.prompt_tokens] * rows + [chunk + 1]
            prompts = [random.integers(0, runner.info.vocab_size, n).astype(np.int32) for n in lengths]
            requests = Requests(prompts, options.rounds + rows + 2, BLOCK_SIZE)
            for first in range(rows):
                _run(runner, requests, [(first, options.prompt_tokens)])
            for number in range(options.rounds):
                requests.num_computed[rows] = 0
                started = time.perf_counter()
                lengths = _run(runner, requests, [(rows, chunk)] if chunk else [])
                if number:  # the first allocates
                    seconds.append(time.perf_counter() - started)
                    features.append((rows + chunk, sum(lengths)))
    return np.array(features, np.float64), np.array(seconds)


def _run(runner: TorchRunner, requests: Requests, chunks: list[tuple[int, int]]) -> list[int]:
    """Runs a step; returns how far its rows reach."""
    batch = requests.batch(chunks)
    requests.advance(batch)
    requests.fill_in(batch, runner.execute(batch).token_ids)
    reach: list[int] = batch.seq_lens.tolist()
    return reach


def fit(features: F64, seconds: F64) -> StepTimes:
    """Least squares of relative errors; what comes out below 0 is 0, and the others are fitted again."""
    columns = np.column_stack([np.ones(len(features)), features]) / seconds[:, None]
    used = [0, 1, 2]
    while True:
        found = np.linalg.lstsq(columns[:, used], np.ones(len(columns)))[0]
        if (found >= 0).all():
            break
        used.pop(int(found.argmin()))
    values = np.zeros(3)
    values[used] = found
    errors = np.abs(columns @ values - 1)
    base, token, context = (values * 1e3).tolist()
    return StepTimes(
        round(base, 4), round(token, 5), round(context, 7), round(float(np.median(errors)), 3), len(seconds)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_load(parser)
    parser.set_defaults(streams=[1, 4, 16, 32])
    parser.add_argument("--rounds", type=int, default=8, help="steps of each kind")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object (the default, and the only form)"
    )
    options = parser.parse_args()
    most = max(options.streams)
    room = argparse.Namespace(**vars(options))
    room.streams, room.output_tokens = [most + 1], max(CHUNKS) + options.rounds + most
    print(json.dumps(asdict(fit(*observe(load_runner(room), options)))))


if __name__ == "__main__":
    main()
