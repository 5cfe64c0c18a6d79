"""The stage `prompts`: steps that compute prompts alone."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.gpu.context import Context
from benchmarks.gpu.speed.loaded import MOST_TOKENS, Loaded, loaded
from benchmarks.gpu.speed.profiling import profile_steps
from benchmarks.gpu.speed.steps import Steps, computed
from benchmarks.gpu.speed.timer import synchronize

TIMES = 3
"""Steps that are measured, of which the fastest counts; another one runs before them."""
REST = 64
"""Tokens of a chat's next turn."""
NONE = np.empty(0, np.int32)


def run(context: Context) -> None:
    """Writes a line for each number and length of prompts, and one for a few tokens behind a long context."""
    model = loaded(context)
    info = model.runner.info
    for count, length in model.sizes.prompts:
        blocks = count * -(-(length + 1) // info.block_size)
        if length >= info.max_model_len or blocks > info.num_blocks:
            context.line("prompts", prompts=count, length=length, note="no room")
            continue
        _measure(context, model, count, length)
    _behind(context, model)
    model.check_compiles(context)


def _measure(context: Context, model: Loaded, count: int, length: int) -> None:
    chunks = [(slot, length) for slot in range(count)]
    random = np.random.default_rng(count)
    prompts = random.integers(3, model.runner.info.vocab_size, (count, length)).astype(np.int32)
    requests = computed(model, 0, 1, 2, list(prompts))
    seconds = [_time(model, requests, chunks, 0) for _ in range(1 + TIMES)]
    fastest = min(seconds[1:])
    flops = count * model.flops(length)
    peak = model.peak
    context.line(
        "prompts",
        prompts=count,
        length=length,
        ms=round(fastest * 1e3, 2),
        first_ms=round(seconds[0] * 1e3, 2),
        tok_s=round(count * length / fastest),
        tflop_s=round(flops / fastest / 1e12, 2),
        of_peak=None if peak is None else round(flops / fastest / peak, 3),
    )
    if context.order.is_gpu and (count, length) == model.sizes.prompts[0]:
        name = f"{count} prompt of {length}"
        profile_steps(context, name, 1, lambda: _time(model, requests, chunks, 0))


def _time(model: Loaded, steps: Steps, chunks: list[tuple[int, int]], known: int) -> float:
    """Seconds of the step that computes `chunks`, behind `known` tokens of each prompt."""
    requests = steps.requests
    requests.num_computed[:] = known
    requests.num_tokens[:] = requests.num_prompt
    synchronize(model.device)
    started = time.perf_counter()
    steps.step(chunks, NONE)
    steps.settle()
    return time.perf_counter() - started


def _behind(context: Context, model: Loaded) -> None:
    """A chat's next turn."""
    info = model.runner.info
    rest = min(REST, info.max_model_len // 4)
    known = (min(info.max_model_len, info.num_blocks * info.block_size) - rest - 4) // info.block_size
    known *= info.block_size
    random = np.random.default_rng(9)
    prompt = random.integers(3, info.vocab_size, known + rest).astype(np.int32)
    steps = computed(model, 0, 1, 2, [prompt])
    for start in range(0, known, MOST_TOKENS):
        steps.step([(0, min(MOST_TOKENS, known - start))], NONE)
    seconds = [_time(model, steps, [(0, rest)], known) for _ in range(1 + TIMES)]
    context.line(
        "prompts", prompts=1, length=rest, note=f"behind {known}", ms=round(min(seconds[1:]) * 1e3, 2)
    )
