"""Which functions of the product a command runs, in all of its processes and threads of Python."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
OUT = "SIGNALBOX_FIGURES_CALLS"
"""Environment variable of the file to which a profiled process adds its functions."""
START = "from tools.figures.calls import start\nstart()\n"
Calls = frozenset[tuple[str, str]]
"""Files, relative to the root, with qualified names of functions."""


def calls_of(command: Sequence[str], packages: Sequence[str]) -> Calls:
    """Runs `command` in the root under a profiler. Raises CalledProcessError when it fails.

    Each new process of Python starts the profiler by its `sitecustomize`. A process that is killed loses nothing: names
    are written at the first call.
    """
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "sitecustomize.py").write_text(START)
        found = Path(directory) / "calls"
        path = os.pathsep.join((directory, str(ROOT)))
        environment = os.environ | {"PYTHONPATH": path, OUT: str(found)}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        return parse(found.read_text(), packages)


def parse(text: str, packages: Sequence[str]) -> Calls:
    """The functions of `packages` in what the profiler wrote."""
    rows = (line.partition("\t") for line in text.splitlines())
    files = (
        (os.path.relpath(file, ROOT), name) for file, _, name in rows if file.startswith(f"{ROOT}{os.sep}")
    )
    return frozenset((file, name) for file, name in files if Path(file).parts[0] in packages)


def start() -> None:
    """Writes the file and name of each function of this process at its first call, from now on."""
    out = os.open(os.environ[OUT], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen: dict[int, CodeType] = {}  # holds the code, so that no other gets its id

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if id(code) not in seen:
            seen[id(code)] = code
            os.write(out, f"{code.co_filename}\t{code.co_qualname}\n".encode())

    threading.setprofile(note)
    sys.setprofile(note)
