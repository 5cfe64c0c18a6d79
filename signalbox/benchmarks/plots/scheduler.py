"""`signalbox bench scheduler`: cost of a step against running requests, beside others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from signalbox.benchmarks.plots import Line
from signalbox.benchmarks.plots.frame import columns, log_y, need, panels, powers_of_two, series
from signalbox.benchmarks.plots.peers import SCHEDULERS

PARTS = ("schedule", "update", "parse", "encode")
PEER_NAMES = tuple(dict.fromkeys(peer.name for peer in SCHEDULERS))


def draw(lines: Sequence[Line], path: Path) -> None:
    """Two panels: the total beside peers, and its parts without drafts."""
    lines = need(lines, "total_us_p50", "signalbox bench scheduler")
    depths = sorted({int(line["speculative"]) for line in lines})
    marks, _ = columns(lines, "running", "total_us_p50")
    with panels(2, path) as (totals, parts):
        for drafts, style in zip(depths, cycle(("-", ":", "--")), strict=False):
            own = [line for line in lines if line["speculative"] == drafts]
            label = f"signalbox, {drafts} drafts" if drafts else "signalbox"
            series(totals, own, "running", "total_us_p50", label, color="C0", linestyle=style)
            for peer in (peer for peer in SCHEDULERS if peer.speculative == drafts):
                label = f"{peer.name}, {drafts} drafts" if drafts else peer.name
                points = [(running, us) for running, us in peer.total_us.items() if running in marks]
                color = f"C{PEER_NAMES.index(peer.name) + 1}"
                if points:
                    totals.plot(
                        *zip(*points, strict=True), marker="s", label=label, color=color, linestyle=style
                    )
        totals.set(title="scheduler, µs per step (p50)", xlabel="running requests")
        log_y(totals)
        own = [line for line in lines if line["speculative"] == depths[0]]
        below = [0.0] * len(own)
        for part in PARTS:
            xs, values = columns(own, "running", f"{part}_us_p50")
            parts.bar([f"{x:,.0f}" for x in xs], values, bottom=below, label=part, width=0.6)
            below = [low + value for low, value in zip(below, values, strict=True)]
        parts.set(title="signalbox: parts of it, µs", xlabel="running requests")
        powers_of_two(totals, marks)
        totals.legend(loc="center right", fontsize="x-small")  # between others and us
        parts.legend()
