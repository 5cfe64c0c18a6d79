"""What to run first on a GPU: whether the outputs are right, then how long a step takes against the memory floor.

    python -m signalbox.benchmarks.runner.bench --device cuda --model DIR --streams 1 32 128

Needs nothing but a model directory, torch, transformers, triton, safetensors and numpy. Fails if an output is wrong.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from signalbox.benchmarks.runner.reference import count_read
from signalbox.benchmarks.runner.requests import Requests
from worker_svc.core.batch import Batch
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.runner.attention.kv_cache import bytes_per_block
from worker_svc.runner.cuda.runner import CudaRunner, Launched
from worker_svc.runner.model.probe import TOLERANCES

BLOCK_SIZE = 16
CHECKED_PROMPTS = (1, 15, 16, 33, 100, 300, 700)
"""Lengths; the longest outgrows one split of a context."""
CHECKED_OUTPUT = 24
CHUNK = 90
"""Prompts of the check are computed in chunks of this many tokens, beside rows that decode."""
MAX_CHUNK_TOKENS = 4096
COPY_BYTES = 1 << 30
DEPTHS = {"in turn": 1, "one ahead": 2}


@dataclass(frozen=True)
class Check:
    """Greedy tokens against the logits of transformers' own forward over the same sequences."""

    check: str
    tokens: int
    equal: int
    near_ties: int
    wrong: int
    largest_gap: float
    """Largest gap between the best logit and that of our token, in standard deviations."""


@dataclass(frozen=True)
class StepTime:
    """One decode step of all streams."""

    streams: int
    steps: str
    step_ms: float
    fastest_ms: float
    floor_ms: float
    """Bytes of weights and of the KV read, over the bandwidth measured by copying."""
    floor_share: float
    decode_tok_s: float


def run(options: argparse.Namespace, emit: Callable[[dict[str, Any]], None]) -> bool:
    """The checks and the measurements; each line goes to `emit`. Returns whether all outputs were right."""
    width = -(-(options.prompt_tokens + options.output_tokens) // BLOCK_SIZE)
    runner = CudaRunner(
        options.model,
        served_model_name=options.model.name,
        num_slots=max(*options.streams, len(CHECKED_PROMPTS)),
        dtype=options.dtype,
        device=options.device,
        num_blocks=max(max(options.streams) * width, checked_blocks()),
        block_size=BLOCK_SIZE,
        threads=options.threads,
        has_groups=False,
    )
    bandwidth = copy_bandwidth(runner.model.device)
    emit(describe(runner, bandwidth))
    outputs = {name: checked_outputs(runner, depth) for name, depth in DEPTHS.items()}
    reference = load_reference(options.model, runner)
    weight_bytes = count_read(reference) * runner.model.dtype.itemsize
    checks = [check(name, requests, reference, runner) for name, requests in outputs.items()]
    for line in checks:
        emit(asdict(line))
    del reference
    gc.collect()
    for streams in options.streams:
        for name, depth in DEPTHS.items():
            run_streams(
                runner, streams, options.prompt_tokens, min(8, options.output_tokens), depth
            )  # warm-up
            seconds = run_streams(runner, streams, options.prompt_tokens, options.output_tokens, depth)
            context = options.prompt_tokens + options.output_tokens // 2
            read = weight_bytes + streams * context * bytes_per_token(runner)
            emit(asdict(step_time(streams, name, seconds, read / bandwidth)))
    return not any(line.wrong for line in checks)


def main(options: argparse.Namespace) -> None:
    """Prints the lines, as JSON or for people. Exits with 1 if an output was wrong."""

    def emit(values: dict[str, Any]) -> None:
        text = "  ".join(f"{name}={value}" for name, value in values.items())
        print(json.dumps(values) if options.json else text, flush=True)

    if not run(options, emit):
        raise SystemExit("Some tokens are neither the best of transformers' logits nor near ties.")


def describe(runner: CudaRunner, bandwidth: float) -> dict[str, Any]:
    """The machine and how the model runs on it."""
    device = runner.model.device
    modules = {type(module).__name__ for module in runner.model.module.modules()}
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "dtype": str(runner.model.dtype).removeprefix("torch."),
        "batch": runner._batch_class.__name__,
        "graphs": runner.num_graphs,
        "fused": sorted(name for name in modules if name.startswith(("Triton", "Joined"))),
        "copy_bytes_s": round(bandwidth),
    }


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second that are read and written when a large tensor is copied; the best of a few."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(5):
        synchronize(device)
        started = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        best = max(best, 2 * COPY_BYTES / (time.perf_counter() - started))
    return best


def checked_steps() -> int:
    """Steps of the check, which are the most tokens that a request can get in it."""
    return sum(-(-length // CHUNK) for length in CHECKED_PROMPTS) + CHECKED_OUTPUT


def checked_blocks() -> int:
    """KV blocks that the check needs."""
    return len(CHECKED_PROMPTS) * -(-(max(CHECKED_PROMPTS) + checked_steps()) // BLOCK_SIZE)


def checked_outputs(runner: CudaRunner, depth: int) -> Requests:
    """Prompts of all lengths, one chunk a step beside those that decode; ended when the last has its output."""
    random = np.random.default_rng(1)
    limit = runner.info.max_model_len - checked_steps()
    lengths = [min(length, limit) for length in CHECKED_PROMPTS]
    prompts = [random.integers(0, runner.info.vocab_size, n).astype(np.int32) for n in lengths]
    requests = Requests(prompts, checked_steps(), BLOCK_SIZE)
    steps = Steps(runner, requests, depth)
    for slot, length in enumerate(lengths):
        for start in range(0, length, CHUNK):
            steps.launch([(slot, min(CHUNK, length - start))])
    for _ in range(CHECKED_OUTPUT):
        steps.launch([])
    steps.settle()
    return requests


class Steps:
    """Launches steps of `requests`, `depth` at most in flight."""

    def __init__(self, runner: CudaRunner, requests: Requests, depth: int) -> None:
        self._runner, self._requests, self._depth = runner, requests, depth
        self._flying: deque[tuple[Batch, Launched]] = deque()
        self._states = StateVersions(runner.info.num_slots, runner.info.num_state_versions)

    def execute(self, batch: Batch) -> None:
        """Runs a step in turn."""
        self._states.take(batch)
        sampled = self._runner.execute(batch)
        self._states.commit(batch, ())
        self._requests.advance(batch)
        self._requests.fill_in(batch, sampled.token_ids)

    def launch(self, chunks: list[tuple[int, int]]) -> None:
        """One more step; waits for the oldest one when too many are in flight."""
        while len(self._flying) >= self._depth:
            self._collect()
        batch = self._requests.batch(chunks)
        waiting = [
            slot for earlier, _ in self._flying for slot in earlier.slots[earlier.sample_rows].tolist()
        ]
        ahead = np.isin(batch.slots, waiting)
        self._states.take(batch)
        self._flying.append((batch, self._runner.launch(batch, ahead)))
        self._requests.advance(batch)

    def settle(self) -> None:
        """Waits for all."""
        while self._flying:
            self._collect()

    def _collect(self) -> None:
        batch, launched = self._flying.popleft()
        sampled = self._runner.collect(launched)
        self._states.commit(batch, ())
        self._requests.fill_in(batch, sampled.token_ids)


def load_reference(model_dir: Path, runner: CudaRunner) -> Any:
    """The model as transformers runs it, with plain attention."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(model_dir, dtype=runner.model.dtype, attn_implementation="eager")
    return model.to(runner.model.device).eval()


@torch.inference_mode()
def check(name: str, requests: Requests, reference: Any, runner: CudaRunner) -> Check:
    """Compares the outputs, token by token, each given those before it."""
    tolerance = TOLERANCES[runner.model.dtype]
    gaps = []
    for slot in range(len(requests.num_prompt)):
        known, prompt = int(requests.num_tokens[slot]), int(requests.num_prompt[slot])
        tokens = torch.from_numpy(requests.tokens[slot : slot + 1, :known].astype(np.int64))
        tokens = tokens.to(runner.model.device)
        logits = reference(tokens, use_cache=False).logits[0, prompt - 1 : known - 1].float()
        ours = logits.gather(1, tokens[0, prompt:, None])[:, 0]
        gaps.append(((logits.amax(-1) - ours) / logits.std(-1)).cpu().numpy())
    gap = np.concatenate(gaps)
    equal, wrong = int((gap == 0).sum()), int((~(gap <= tolerance)).sum())
    return Check(
        check=f"greedy against transformers, steps {name}",
        tokens=len(gap),
        equal=equal,
        near_ties=len(gap) - equal - wrong,
        wrong=wrong,
        largest_gap=round(float(gap.max()), 5),
    )


def run_streams(
    runner: CudaRunner, streams: int, prompt_tokens: int, output_tokens: int, depth: int
) -> list[float]:
    """Decodes `streams` random prompts. Returns seconds from collected step to collected step."""
    random = np.random.default_rng(2)
    prompts = random.integers(0, runner.info.vocab_size, (streams, prompt_tokens)).astype(np.int32)
    requests = Requests(list(prompts), output_tokens, BLOCK_SIZE)
    steps = Steps(runner, requests, depth)
    at_once = max(1, MAX_CHUNK_TOKENS // prompt_tokens)
    for first in range(0, streams, at_once):
        batch = requests.batch(
            [(slot, prompt_tokens) for slot in range(first, min(first + at_once, streams))]
        )
        steps.execute(batch.rows(batch.num_decode_rows, len(batch.slots)))
    seconds = []
    for _ in range(output_tokens - 1):
        started = time.perf_counter()
        steps.launch([])
        seconds.append(time.perf_counter() - started)
    steps.settle()
    return seconds[depth:] or seconds


def step_time(streams: int, name: str, seconds: list[float], floor: float) -> StepTime:
    """The line of one measurement."""
    mean = sum(seconds) / len(seconds)
    return StepTime(
        streams=streams,
        steps=name,
        step_ms=round(mean * 1e3, 3),
        fastest_ms=round(min(seconds) * 1e3, 3),
        floor_ms=round(floor * 1e3, 3),
        floor_share=round(floor / mean, 3),
        decode_tok_s=round(streams / mean, 1),
    )


def bytes_per_token(runner: CudaRunner) -> int:
    """Bytes of KV of one position."""
    return bytes_per_block(runner.model.layer_shapes, 1, runner.model.dtype)
