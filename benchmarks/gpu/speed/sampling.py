"""The stage `sampling`: decode steps whose rows are not all greedy, and steps that run in turn for one row's sake."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gpu.context import Context
from benchmarks.gpu.speed.loaded import Loaded, loaded
from benchmarks.gpu.speed.steps import WARM_UPS, computed, most_rows
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.run_ahead import is_plain

ROWS = (64, 256)
DRAWN: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.8},
    "temperature, top_k 50": {"temperature": 0.8, "top_k": 50},
    "temperature, top_k 50, top_p 0.9": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    "temperature, top_p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "temperature, min_p 0.05": {"temperature": 0.8, "min_p": 0.05},
}
"""Settings of all rows, sampled on the device."""
SPECIAL: dict[str, dict[str, Any]] = {
    "repetition penalty": {"temperature": 0.0, "repetition_penalty": 1.1},
    "frequency penalty": {"temperature": 0.7, "frequency_penalty": 0.2},
    "log-probabilities": {"temperature": 0.0, "num_logprobs": 5},
    "min_tokens": {"temperature": 0.0, "min_tokens": 100, "stop_token_ids": frozenset({2})},
    "logit bias": {"temperature": 0.0, "logit_bias": {7: 1.0}},
}
"""Settings of one row, or of all, beside rows that are greedy."""


def run(context: Context) -> None:
    """Writes a line for each kind of sampling."""
    model = loaded(context)
    most = max(model.sizes.rows)
    for wanted in sorted({min(rows, most) for rows in ROWS}):
        rows = most_rows(model, wanted, model.sizes.contexts[0], _num_outputs(model))
        for name, values in DRAWN.items():
            _measure(context, model, rows, rows, name, values)
    rows = min(ROWS[0], most)
    for name, values in SPECIAL.items():
        for count in (1, rows):
            _measure(context, model, rows, count, name, values)


def _num_outputs(model: Loaded) -> int:
    return model.sizes.steps + WARM_UPS + 3


def _measure(
    context: Context, model: Loaded, rows: int, count: int, name: str, values: dict[str, Any]
) -> None:
    """`count` of the rows have the settings `values`."""
    steps = computed(model, rows, model.sizes.contexts[0], _num_outputs(model))
    for slot in range(count):
        steps.requests.set_sampling(slot, SamplingParams(seed=slot + 1, **values))
    runs_ahead = is_plain(steps.requests.batch([], np.arange(rows, dtype=np.int32)))
    steps.measure(model.sizes.steps, None, depth=2 if runs_ahead else 1)
    context.line(
        "sampling",
        rows=rows,
        of_them=count,
        sampling=name,
        steps="one ahead" if runs_ahead else "in turn",
        step_ms=round(steps.step_ms, 3),
        launch_ms=round(steps.launch_ms, 3),
    )
