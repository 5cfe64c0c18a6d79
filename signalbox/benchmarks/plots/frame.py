"""How all figures look, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from signalbox.benchmarks.plots import Line
from signalbox.errors import InvalidRequestError

COLORS = ("#2468d8", "#d9822b", "#177a4b", "#8250c4", "#b3261e", "#5b6675")
PANEL_INCHES = (5.0, 3.6)
MOST_IN_A_ROW = 3
_STYLE: Any = {
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e7ec",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "font.size": 10.0,
    "lines.markersize": 4.5,
    "savefig.dpi": 140,
    "svg.hashsalt": "signalbox",
}


@contextmanager
def panels(count: int, path: Path) -> Iterator[Sequence[Axes]]:
    """A figure of `count` axes side by side, or two by two when they are many, written when the block ends. The same
    lines make the same file."""
    width = count if count <= MOST_IN_A_ROW else 2
    height = math.ceil(count / width)
    with mpl.rc_context(_STYLE):
        size = (PANEL_INCHES[0] * width, PANEL_INCHES[1] * height)
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        places = list(figure.subplots(height, width, squeeze=False).flat)
        for spare in places[count:]:
            spare.remove()
        yield places[:count]
        figure.savefig(path, metadata=_METADATA.get(path.suffix, {}))


_METADATA: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def columns(lines: Sequence[Line], x: str, y: str) -> tuple[list[float], list[float]]:
    """Values of two figures by rising `x`, from the lines that have both."""
    pairs = sorted(
        (line[x], line[y]) for line in lines if line.get(x) is not None and line.get(y) is not None
    )
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def series(axes: Axes, lines: Sequence[Line], x: str, y: str, label: str, **style: Any) -> None:
    """One line with its points; nothing when no line has both figures."""
    found = columns(lines, x, y)
    if found[0]:
        axes.plot(*found, label=label, **({"marker": "o"} | style))


def powers_of_two(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic x axis whose marks are the values that were measured."""
    axes.set_xscale("log", base=2)
    marks = sorted(set(values))
    axes.set_xticks(marks, [f"{value:,g}" for value in marks])
    axes.minorticks_off()


def log_y(axes: Axes) -> None:
    """A logarithmic y axis with marks at 1, 2 and 5, written out."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_locator(NullLocator())


def need(lines: Sequence[Line], key: str, what: str) -> list[Line]:
    """The lines that have `key`. Raises InvalidRequestError when none has."""
    found = [line for line in lines if line.get(key) is not None]
    if not found:
        raise InvalidRequestError(f"none of the {len(lines)} lines is one of {what}: {key} is not in them")
    return found
