"""Measures figures: runs their commands, records which code a sample runs, and writes docs/data."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.figures.calls import ROOT, calls_of
from tools.figures.catalogue import Figure
from tools.figures.record import Line, make_record, this_machine, write
from tools.packages import PRODUCT


def measure(figure: Figure) -> None:
    """Replaces the figure's file. Raises CalledProcessError when a command fails: the file then stays as it was."""
    machine = this_machine()
    lines = [line for command in figure.commands for line in _lines(command)]
    with tempfile.TemporaryDirectory() as directory:
        samples = [_arguments(sample, Path(directory) / "out") for sample in figure.samples]
        calls = frozenset(call for sample in samples for call in calls_of([sys.executable, *sample], PRODUCT))
    write(
        figure.name, make_record([f"python {command}" for command in figure.commands], calls, machine), lines
    )


def _lines(command: str) -> list[Line]:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        run = [sys.executable, *_arguments(command, out)]
        printed = subprocess.run(run, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        text = out.read_text() if out.exists() else printed
    return [json.loads(line) for line in text.splitlines()]


def _arguments(command: str, out: Path) -> list[str]:
    return [str(out) if word == "{out}" else word for word in shlex.split(command)]
