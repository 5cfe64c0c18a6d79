"""Python processes of ours: they import nothing from the working directory, where a download may have put a file.

It imports nothing but os and sys: a process that was started by `python -m` has the working directory on its path until
`leave_working_directory` has run.
"""

from __future__ import annotations

import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))  # noqa: PTH100, PTH118, PTH120
"""The directory that our packages are in."""


def module_command(module: str, *arguments: str) -> list[str]:
    """A command that runs a module of ours, or an installed one, in a process of its own: with `-P`, unless this
    process runs from a checkout by standing in it, which its child then has to do, too. `python -c` and a prompt put an
    empty name on the path for the working directory."""
    safe = [] if {ROOT, ""} & set(sys.path) and _working_directory() == ROOT else ["-P"]
    return [sys.executable, *safe, "-m", module, *arguments]


def leave_working_directory() -> None:
    """Takes the working directory off the front of the import path, where `python -m` has put it, unless our packages
    are in it."""
    here = _working_directory()
    if not sys.flags.safe_path and here != ROOT and sys.path[:1] == [here]:
        del sys.path[0]


def _working_directory() -> str:
    """Empty: it has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return ""
