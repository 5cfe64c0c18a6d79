"""Measures the runner and transformers' `generate` in turns, in one process and with the same weights.

    python -m signalbox.benchmarks.runner.turns --model DIR --streams 1 32 --dtype bfloat16 --threads 2

Each round runs all streams greedily from prompt to last token, first here and then there. What is told is the median
step of all rounds, and the median prompt. Where anything else runs on the machine set OMP_WAIT_POLICY=PASSIVE and
GOMP_SPINCOUNT=2000.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import torch

from signalbox.benchmarks.runner.bench import Streams, add_load, load_runner
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.torch_runner import TorchRunner


@dataclass
class Times:
    """What one system took for a number of streams."""

    prompts_s: list[float] = field(default_factory=list)
    """Time of all prompts and their first tokens, of each round."""
    steps_s: list[float] = field(default_factory=list)
    """Time of a decode step, which is one token of each stream, of all steps of all rounds."""


@dataclass(frozen=True)
class Line:
    """One line of output."""

    streams: int
    dtype: str
    step_ms: float
    transformers_step_ms: float
    decode_tok_s: float
    transformers_decode_tok_s: float
    prompts_ms: float
    transformers_prompts_ms: float
    step_ratio: float
    """How many times as long transformers' step takes."""


Round = Callable[[int, Times], None]
"""A callable that runs so many streams once, and notes what it takes."""


def runner_round(runner: TorchRunner, options: argparse.Namespace) -> Round:
    """A round of the runner."""

    def run(streams: int, times: Times) -> None:
        requests = Streams(
            runner, streams, options.prompt_tokens, options.output_tokens, SamplingParams(temperature=0.0)
        )
        marks = [time.perf_counter()]
        requests.prefill()
        marks.append(time.perf_counter())
        for _ in range(options.output_tokens - 1):
            requests.decode()
            marks.append(time.perf_counter())
        note(marks, times)

    return run


def transformers_round(model: Any, options: argparse.Namespace) -> Round:
    """A round of `generate`, with a static batch. Its criterion for stopping, which it asks at each token, looks at the
    clock."""
    from transformers import StoppingCriteriaList  # noqa: PLC0415

    def run(streams: int, times: Times) -> None:
        prompts = torch.randint(0, model.config.vocab_size, (streams, options.prompt_tokens))
        marks = [time.perf_counter()]

        def look_at_clock(token_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            marks.append(time.perf_counter())
            return torch.zeros(len(token_ids), dtype=torch.bool)

        with torch.inference_mode():
            model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=options.output_tokens,
                do_sample=False,
                pad_token_id=0,
                stopping_criteria=StoppingCriteriaList([look_at_clock]),
            )
        note(marks, times)

    return run


def note(marks: list[float], times: Times) -> None:
    """Adds the times between marks: the first is the prompts'."""
    spans = [end - start for start, end in itertools.pairwise(marks)]
    times.prompts_s.append(spans[0])
    times.steps_s.extend(spans[1:])


def load_transformers(options: argparse.Namespace, dtype: torch.dtype) -> Any:
    """The model as transformers has it, which ends at no token."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(options.model, dtype=dtype).eval()
    model.generation_config.eos_token_id = None
    return model


def compare(options: argparse.Namespace) -> list[Line]:
    """A line for each number of streams."""
    runner = load_runner(options)
    dtype = runner.model.dtype
    rounds = (
        runner_round(runner, options),
        transformers_round(load_transformers(options, dtype), options),
    )
    lines = []
    for streams in options.streams:
        ours, theirs = Times(), Times()
        for _ in range(options.rounds):
            for run, times in zip(rounds, (ours, theirs), strict=True):
                torch.set_num_threads(options.threads or torch.get_num_threads())
                run(streams, times)
        lines.append(line_of(streams, str(dtype).removeprefix("torch."), ours, theirs))
    return lines


def line_of(streams: int, dtype: str, ours: Times, theirs: Times) -> Line:
    """The medians."""
    step, other = median(ours.steps_s), median(theirs.steps_s)
    return Line(
        streams=streams,
        dtype=dtype,
        step_ms=round(step * 1e3, 2),
        transformers_step_ms=round(other * 1e3, 2),
        decode_tok_s=round(streams / step, 1),
        transformers_decode_tok_s=round(streams / other, 1),
        prompts_ms=round(median(ours.prompts_s) * 1e3, 1),
        transformers_prompts_ms=round(median(theirs.prompts_s) * 1e3, 1),
        step_ratio=round(other / step, 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_load(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    for line in compare(options):
        values = asdict(line)
        text = json.dumps(values) if options.json else "  ".join(f"{k}={v}" for k, v in values.items())
        print(text, flush=True)


if __name__ == "__main__":
    main()
