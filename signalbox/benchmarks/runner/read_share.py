"""How fast one stream's decode steps read the model, beside a plain parallel read of as many bytes in the same run.

    python -m signalbox.benchmarks.runner.read_share --model DIR --quantization int4 --threads 2

In turns, round by round: some decode steps of one stream, and passes of a vectorised sum by as many threads over memory
of the size that a step reads, weights and KV, on huge pages as those are. Each round gives both rates by its medians.
One JSON object: GB/s of both and their ratio, medians over the rounds, and the lowest and highest ratio.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch

from signalbox.benchmarks.runner.bench import (
    BLOCK_SIZE,
    Streams,
    bytes_of_step,
    packed_bytes,
    weight_bytes_of,
)
from signalbox.cli.commands.arguments import NUMBER_TYPES, number_type
from signalbox.cli.models.name import model_directory
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.torch_runner import TorchRunner

PROMPT_TOKENS = 64


def seconds_of(call: Callable[[], object], count: int) -> float:
    """Median of so many calls."""
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return median(taken)


def make_read(num_bytes: int, threads: int) -> Callable[[], object]:
    """Reads so many bytes once, as a sum by vectors and by so many of torch's threads. The runner leaves torch as many
    as it found to be the fastest for itself."""
    source, left = allocate((num_bytes // 4,), torch.float32), torch.get_num_threads()
    source.fill_(1.0)

    def read() -> None:
        torch.set_num_threads(threads)
        source.sum()
        torch.set_num_threads(left)

    return read


def measure(options: argparse.Namespace) -> dict[str, object]:
    """The rates of all rounds, as medians."""
    tokens = PROMPT_TOKENS + 1 + (options.rounds + 1) * options.steps
    runner = TorchRunner(
        options.model,
        served_model_name=options.model.name,
        dtype=options.dtype,
        quantization=Quantization(options.quantization),
        device="cpu",
        has_groups=False,
        num_blocks=-(-tokens // BLOCK_SIZE),
        block_size=BLOCK_SIZE,
        threads=options.threads,
    )
    run = Streams(runner, 1, PROMPT_TOKENS, tokens - PROMPT_TOKENS, SamplingParams(temperature=0.0))
    run.prefill()
    weight_bytes = packed_bytes(runner.model.module) or weight_bytes_of(options.model)
    num_bytes = bytes_of_step(runner, weight_bytes, 1, PROMPT_TOKENS + tokens // 2)
    read = make_read(num_bytes, options.threads)
    read()
    for _ in range(options.steps):
        run.decode()
    rounds = [
        (seconds_of(run.decode, options.steps), seconds_of(read, options.steps))
        for _ in range(options.rounds)
    ]
    ratios = [plain / step for step, plain in rounds]
    return {
        "model": options.model.name,
        "kept": runner.model.kept,
        "threads": options.threads,
        "step_mb": round(num_bytes / 1e6),
        "step_ms": round(median(step for step, _ in rounds) * 1e3, 2),
        "step_gb_s": round(num_bytes / median(step for step, _ in rounds) / 1e9, 1),
        "read_gb_s": round(num_bytes / median(plain for _, plain in rounds) / 1e9, 1),
        "ratio": round(median(ratios), 2),
        "ratios": [round(min(ratios), 2), round(max(ratios), 2)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=model_directory, required=True)
    parser.add_argument("--dtype", default="bfloat16", type=number_type, choices=NUMBER_TYPES[1:])
    parser.add_argument("--quantization", default="auto", choices=[each.value for each in Quantization])
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=12, help="of each round, and passes of the plain read")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
