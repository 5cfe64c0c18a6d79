"""The stage `sampling`: decode steps whose rows are not all greedy, and steps that run in turn for one row's sake."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.context import Context
from benchmarks.gpu.speed.loaded import Loaded, loaded
from benchmarks.gpu.speed.steps import WARM_UPS, Steps, computed, most_rows
from signalbox.benchmarks.runner.requests import I32
from worker_svc.core.requests.grammar import GrammarTable
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.run_ahead import is_plain

ROWS = (64, 256)
GREEDY = SamplingParams(temperature=0.0)
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


SPECIAL_STEPS = 6
"""Most steps of these that are measured: they are slow."""


class OddTokens:
    """An automaton that allows every other token."""

    is_complete = False
    work_us = 0

    def advance(self, token: int) -> None:
        """See `Automaton`."""

    def legal_drafts(self, drafts: I32) -> int:
        """See `Automaton`."""
        return 0

    def fill(self, drafts: I32, masks: NDArray[np.uint32]) -> None:
        """See `Automaton`."""
        masks[:] = 0xAAAAAAAA


def run(context: Context) -> None:
    """Writes a line for each kind of sampling."""
    model = loaded(context)
    num_outputs = model.sizes.steps + WARM_UPS + 3
    most = most_rows(model, max(model.sizes.rows), model.sizes.contexts[0], num_outputs)
    for rows in sorted({min(rows, most) for rows in ROWS}):
        steps = computed(model, rows, model.sizes.contexts[0], num_outputs)
        for name, values in DRAWN.items():
            _measure(context, steps, rows, name, values, model.sizes.steps)
        if rows == min(ROWS[0], most):
            few = min(SPECIAL_STEPS, model.sizes.steps)
            for count in (1, rows):
                for name, values in SPECIAL.items():
                    _measure(context, steps, count, name, values, few)
                _measure_forms(context, model, steps, count, few)
    model.check_compiles(context)


def _measure(
    context: Context, steps: Steps, count: int, name: str, values: dict[str, Any], num_steps: int
) -> None:
    """The first `count` rows have the settings `values`, the others are greedy."""
    for slot in range(len(steps.requests.num_prompt)):
        params = SamplingParams(seed=slot + 1, **values) if slot < count else GREEDY
        steps.requests.set_sampling(slot, params)
    _run(context, steps, count, name, num_steps)


def _measure_forms(context: Context, model: Loaded, steps: Steps, count: int, num_steps: int) -> None:
    """The first `count` rows follow a form, whose masks cost nothing to make; all are greedy."""
    vocab_size = model.runner.info.vocab_size
    grammars = GrammarTable(len(steps.requests.num_prompt), vocab_size)
    for slot in range(len(steps.requests.num_prompt)):
        steps.requests.set_sampling(slot, GREEDY)
    for slot in range(count):
        grammars.expect(slot)
        grammars.put(slot, OddTokens())
    steps.requests.follow(grammars)
    _run(context, steps, count, "a form", num_steps)
    steps.requests.follow(GrammarTable(len(steps.requests.num_prompt), vocab_size))


def _run(context: Context, steps: Steps, count: int, name: str, num_steps: int) -> None:
    rows = len(steps.requests.num_prompt)
    steps.rewind()
    runs_ahead = is_plain(steps.requests.batch([]))
    steps.measure(num_steps, None, depth=2 if runs_ahead else 1)
    context.line(
        "sampling",
        rows=rows,
        of_them=count,
        sampling=name,
        steps="one ahead" if runs_ahead else "in turn",
        step_ms=round(steps.step_ms, 3),
        launch_ms=round(steps.launch_ms, 3),
    )
