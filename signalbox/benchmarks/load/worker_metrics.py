"""What a worker's /metrics says of its steps, and the difference between two readings."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from signalbox.benchmarks.load.metrics_page import read_page
from signalbox.benchmarks.load.summary import Figures
from signalbox.errors import InternalError
from signalbox.telemetry.attributes import METRIC_WORKER_STEP_SECONDS, METRIC_WORKER_STEPS

_SAMPLE = re.compile(r'^([a-zA-Z_:][\w:]*)(?:\{part="(\w+)"\})? (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class StepTotals:
    """Since the worker started; times in seconds."""

    num_steps: float
    queued: float
    """Spent on waiting for the steps before: not time in which the worker does anything."""
    prepare: float
    execute: float
    commit: float

    def since(self, earlier: StepTotals) -> StepTotals:
        """What came to it."""
        names = [field.name for field in fields(self)]
        return StepTotals(*(getattr(self, name) - getattr(earlier, name) for name in names))

    def figures(self, wall_s: float) -> Figures:
        """Figures of the steps that ran within `wall_s`: means per step, and shares of the wall clock."""
        steps = max(self.num_steps, 1)
        busy = self.prepare + self.execute + self.commit
        parts = ("queued", "prepare", "execute", "commit")
        means = {f"step_{part}_ms": round(getattr(self, part) / steps * 1e3, 3) for part in parts}
        return {
            "steps": int(self.num_steps),
            "step_ms": round(wall_s / steps * 1e3, 3),
            **means,
            "step_else_share": round(1 - self.execute / wall_s, 4),
            # A worker that runs ahead prepares and commits while the model runs.
            "worker_idle_share": round(max(1 - busy / wall_s, 0.0), 4),
        }


async def read_totals(address: str) -> StepTotals:
    """Asks the worker's metrics server at `host:port`."""
    return parse_totals(await read_page(address))


def parse_totals(text: str) -> StepTotals:
    """Reads the text format of Prometheus. Raises InternalError when a counter is missing."""
    samples = {(name, part): float(value) for name, part, value in _SAMPLE.findall(text)}
    try:
        return StepTotals(
            samples[f"{METRIC_WORKER_STEPS}_total", ""],
            *(
                samples[f"{METRIC_WORKER_STEP_SECONDS}_total", part]
                for part in ("queued", "prepare", "execute", "commit")
            ),
        )
    except KeyError as error:
        raise InternalError(f"the worker's metrics lack {error.args[0]}") from None
