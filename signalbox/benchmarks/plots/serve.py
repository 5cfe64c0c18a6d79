"""`signalbox bench serve`: throughput and latency on one machine, beside what it was compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from signalbox.benchmarks.plots import Line
from signalbox.benchmarks.plots.frame import columns, log_y, need, panels, powers_of_two, series


def draw(lines: Sequence[Line], path: Path) -> None:
    """Two panels: tokens per second of each system, and our latencies."""
    lines = need(lines, "streams", "signalbox bench serve")
    systems = list(dict.fromkeys(str(line["system"]) for line in lines if "system" in line))
    marks, _ = columns(lines, "streams", "output_tok_s")
    with panels(2, path) as (rates, times):
        for system in systems:
            own = [line for line in lines if line.get("system") == system]
            series(rates, own, "streams", "output_tok_s", system)
        rates.set(title="output tokens per second", xlabel="streams", ylim=(0, None))
        ours = [line for line in lines if line.get("system") == "signalbox"]
        for kind, color in (("ttft", "C0"), ("itl", "C1")):
            for percentile, style in ((50, "-"), (99, ":")):
                label = f"{kind} p{percentile}"
                series(
                    times, ours, "streams", f"{kind}_ms_p{percentile}", label, linestyle=style, color=color
                )
        times.set(title="signalbox: latencies, ms", xlabel="streams")
        log_y(times)
        for axes in (rates, times):
            axes.legend()
            powers_of_two(axes, marks)
