"""The stage `mixed`: a chunk of a prompt beside rows that decode."""

from __future__ import annotations

import numpy as np

from benchmarks.gpu.context import Context
from benchmarks.gpu.speed.loaded import Loaded, loaded
from benchmarks.gpu.speed.profiling import profile_steps
from benchmarks.gpu.speed.steps import WARM_UPS, Steps, computed

ROWS = 64
PROFILED_STEPS = 3
DEPTHS = {"in turn": 1, "one ahead": 2}


def run(context: Context) -> None:
    """Writes a line for each size of a chunk, in turn and one ahead, and profiles of the largest."""
    model = loaded(context)
    rows = min(ROWS, max(model.sizes.rows) - 1)
    for chunk in model.sizes.chunks:
        for name, depth in DEPTHS.items():
            steps = _with_a_long_prompt(model, rows, chunk)
            for _ in range(WARM_UPS):
                steps.step([(rows, chunk)], depth=depth)
            steps.forget_times()
            for _ in range(_num_steps(model, chunk)):
                steps.step([(rows, chunk)], depth=depth)
            steps.settle()
            context.line(
                "mixed",
                rows=rows,
                chunk=chunk,
                steps=name,
                step_ms=round(steps.step_ms, 3),
                launch_ms=round(steps.launch_ms, 3),
            )
        if context.order.is_gpu:
            _profile(context, model, rows, chunk)
    model.check_compiles(context)


def _num_steps(model: Loaded, chunk: int) -> int:
    """Steps that are measured: as many as a prompt has chunks."""
    room = model.runner.info.max_model_len // chunk - 1 - WARM_UPS
    return max(2, min(model.sizes.steps, room))


def _with_a_long_prompt(model: Loaded, rows: int, chunk: int) -> Steps:
    """Makes rows that decode, followed by a request whose prompt has not begun."""
    num_steps = WARM_UPS + max(_num_steps(model, chunk), PROFILED_STEPS)
    random = np.random.default_rng(3)
    prompt = random.integers(3, model.runner.info.vocab_size, num_steps * chunk + 1).astype(np.int32)
    return computed(model, rows, model.sizes.contexts[0], num_steps + 2, [prompt])


def _profile(context: Context, model: Loaded, rows: int, chunk: int) -> None:
    steps = _with_a_long_prompt(model, rows, chunk)
    for _ in range(WARM_UPS):
        steps.step([(rows, chunk)], depth=2)
    steps.settle()

    def work() -> None:
        for _ in range(PROFILED_STEPS):
            steps.step([(rows, chunk)], depth=2)
        steps.settle()

    profile_steps(context, f"{rows} rows and a chunk of {chunk}", PROFILED_STEPS, work)
