"""The stage `decode`: steps in which every row decodes one token, greedily, against the time to read the bytes."""

from __future__ import annotations

import numpy as np

from benchmarks.gpu.context import Context
from benchmarks.gpu.speed.invariance import compare_companies
from benchmarks.gpu.speed.loaded import Loaded, loaded
from benchmarks.gpu.speed.profiling import profile_steps
from benchmarks.gpu.speed.steps import WARM_UPS, Steps, computed, most_rows

PROFILED_ROWS, PROFILED_STEPS = 64, 5


def run(context: Context) -> None:
    """Writes a line for each number of rows at each length of contexts, a profile, and how much tokens depend on the
    company of their row."""
    model = loaded(context)
    sizes = model.sizes
    num_outputs = (2 * len(sizes.rows) + 1) * (sizes.steps + WARM_UPS + 3)
    for length in sizes.contexts:
        room = most_rows(model, max(sizes.rows), length, num_outputs)
        most = max((rows for rows in sizes.rows if rows <= room), default=0)
        steps = computed(model, most, length, num_outputs)
        for rows in sizes.rows:
            if rows > most:
                context.line("decode", context=length, rows=rows, note=f"the cache has room for {room}")
            else:
                _measure(context, model, steps, rows, length)
        if length == sizes.contexts[0] and most:
            _profile(context, steps, min(PROFILED_ROWS, most))
    compare_companies(context, model)
    model.check_compiles(context)


def _measure(context: Context, model: Loaded, steps: Steps, rows: int, length: int) -> None:
    some = np.arange(rows, dtype=np.int32)
    steps.measure(model.sizes.steps, some, depth=1)
    in_turn, device, launch_in_turn = steps.step_ms, steps.device_ms, steps.launch_ms
    steps.measure(model.sizes.steps, some, depth=2)
    known = float(np.mean(steps.requests.num_computed[:rows]))
    floor = model.floor_ms(rows, known)
    context.line(
        "decode",
        context=length,
        rows=rows,
        step_ms=round(steps.step_ms, 3),
        floor_ms=round(floor, 3),
        ratio=round(steps.step_ms / floor, 2),
        in_turn_ms=round(in_turn, 3),
        device_ms=round(device, 3),
        launch_ms=round(steps.launch_ms, 3),
        launch_in_turn_ms=round(launch_in_turn, 3),
        tok_s=round(rows / steps.step_ms * 1e3),
    )


def _profile(context: Context, steps: Steps, rows: int) -> None:
    some = np.arange(rows, dtype=np.int32)

    def work() -> None:
        for _ in range(PROFILED_STEPS):
            steps.step(rows=some, depth=2)
        steps.settle()

    if context.order.is_gpu:
        profile_steps(context, f"decode, {rows} rows", PROFILED_STEPS, work)
