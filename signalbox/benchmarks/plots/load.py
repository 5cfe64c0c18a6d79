"""`signalbox bench load`: latencies and throughput against the load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from signalbox.benchmarks.plots import Line
from signalbox.benchmarks.plots.frame import columns, log_y, need, panels, powers_of_two, series

WORDS = {"ttft": "time to first token", "itl": "inter-token"}
STYLES = {50: "-", 90: "--", 99: ":"}


def draw(lines: Sequence[Line], path: Path) -> None:
    """Three panels. Open loop against requests per second, closed loop against streams."""
    lines = need(lines, "ttft_ms_p50", "signalbox bench load")
    x = "rate" if lines[0].get("rate") is not None else "streams"
    name = "requests per second asked for" if x == "rate" else "requests at one time"
    marks, _ = columns(lines, x, "ttft_ms_p50")
    with panels(3, path) as (first, between, rates):
        for axes, kind in ((first, "ttft"), (between, "itl")):
            for percentile, style in STYLES.items():
                series(
                    axes, lines, x, f"{kind}_ms_p{percentile}", f"p{percentile}", linestyle=style, color="C0"
                )
            axes.set(title=f"{WORDS[kind]}, ms", xlabel=name)
            log_y(axes)
            axes.legend()
        series(rates, lines, x, "output_tok_s", "output")
        series(rates, lines, x, "prompt_tok_s", "prompt")
        rates.set(title="tokens per second", xlabel=name, ylim=(0, None))
        rates.legend()
        for axes in (first, between, rates):
            powers_of_two(axes, marks)
