"""`python -m signalbox.benchmarks.qos.bench`: fairness against its bound, and latencies beside others' load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from signalbox.benchmarks.plots import Line
from signalbox.benchmarks.plots.frame import log_y, need, panels, series

BAR = 0.8
"""Width of the bars of one place together."""


def draw(lines: Sequence[Line], path: Path) -> None:
    """A panel for each experiment that is in the lines: fairness, flood, priority, deadline."""
    lines = need(lines, "experiment", "signalbox.benchmarks.qos.bench")
    found = {name: own for name in PANELS if (own := [line for line in lines if line["experiment"] == name])}
    need([line for own in found.values() for line in own], "experiment", " or ".join(PANELS))
    with panels(len(found), path) as axes:
        for place, (name, own) in zip(axes, found.items(), strict=True):
            PANELS[name](place, own)


def _fairness(axes: Axes, lines: Sequence[Line]) -> None:
    """Largest difference of service between two backlogged tenants, as a share of the bound."""
    places = list(dict.fromkeys(str(line["mix"]) for line in lines))
    groups = {
        str(policy): [
            next(
                line["largest_difference"] / line["bound"]
                for line in lines
                if (line["mix"], line["policy"]) == (mix, policy)
            )
            for mix in places
        ]
        for policy in dict.fromkeys(line["policy"] for line in lines)
    }
    _bars(axes, places, groups)
    axes.axhline(1.0, color="#1a2230", linewidth=1.0, linestyle="--", label="the bound")
    axes.set(title="largest difference of service, of the bound")
    log_y(axes)
    axes.legend()


def _flood(axes: Axes, lines: Sequence[Line]) -> None:
    """The well-behaved tenant's time to first token."""
    keys = {
        "alone with its share": "ttft_p99_ms_alone_with_its_share",
        "beside the flood": "ttft_p99_ms_beside_the_flood",
    }
    groups = {name: [float(line[key]) for line in lines] for name, key in keys.items()}
    _bars(axes, [str(line["policy"]) for line in lines], groups)
    axes.set(title="flooded by another tenant: ttft p99, ms")
    log_y(axes)
    axes.legend()


def _priority(axes: Axes, lines: Sequence[Line]) -> None:
    """The high class beside a full load of a lower one."""
    keys = {"idle": "ttft_p99_ms_idle", "overloaded": "ttft_p99_ms_overloaded"}
    groups = {name: [float(line[key]) for line in lines] for name, key in keys.items()}
    _bars(axes, [f"prompts {line['prompt']}" for line in lines], groups)
    axes.set(title="high class beside batch: ttft p99, ms", ylim=(0, None))
    axes.legend()


def _deadline(axes: Axes, lines: Sequence[Line]) -> None:
    """Requests whose first token came in time, by policy."""
    for policy in dict.fromkeys(str(line["policy"]) for line in lines):
        series(axes, [line for line in lines if line["policy"] == policy], "overload", "in_time", policy)
    axes.set(title="first tokens in time, share", xlabel="load, of what the worker can do", ylim=(0, 1.05))
    axes.legend()


def _bars(axes: Axes, places: Sequence[str], groups: dict[str, list[float]]) -> None:
    """Bars side by side at each place, one of each group."""
    width = BAR / len(groups)
    for number, (name, values) in enumerate(groups.items()):
        offsets = [place - BAR / 2 + width * (number + 0.5) for place in range(len(places))]
        axes.bar(offsets, values, width=width * 0.92, label=name)
    axes.set_xticks(range(len(places)), [place.replace(" ", "\n", 1) for place in places])
    axes.grid(visible=False, axis="x")


PANELS = {"fairness": _fairness, "flood": _flood, "priority": _priority, "deadline": _deadline}
