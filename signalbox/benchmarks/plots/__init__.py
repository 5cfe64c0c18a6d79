"""Figures from the JSON lines of benches, drawn by matplotlib (`pip install 'signalbox[plots]'`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from signalbox.errors import InvalidRequestError, StartupError

Line = Mapping[str, Any]
"""One line of a bench."""
KINDS = ("load", "serve", "scheduler", "qos")
"""Each is a file here that has `draw`."""
SUFFIXES = (".svg", ".png", ".pdf")


def check_plot(path: Path | None) -> None:
    """Raises InvalidRequestError or StartupError when no figure could be written to `path`: before anything is
    measured for it."""
    if path is None:
        return
    if path.suffix not in SUFFIXES:
        raise InvalidRequestError(
            f"{path} has to end with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}", field="plot"
        )
    if not path.absolute().parent.is_dir():
        raise InvalidRequestError(f"the directory of {path} does not exist", field="plot")
    if find_spec("matplotlib") is None:
        raise StartupError("plots need matplotlib: pip install 'signalbox[plots]'")


def draw(kind: str, lines: Sequence[Line], path: Path) -> None:
    """Writes the figure of these lines. Raises InvalidRequestError when there is nothing to draw in them."""
    check_plot(path)
    module = import_module(f"signalbox.benchmarks.plots.{kind}")
    module.draw(lines, path)
