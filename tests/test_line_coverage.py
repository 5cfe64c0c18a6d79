"""Line coverage counts what any process has run, and changes nothing of what the code does."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.line_coverage.__main__ import found, main
from tools.line_coverage.hook import sitecustomize

SOURCE = '''"""Docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import never

LIMIT: int = 3
"""Of it."""


class Thing:
    """A thing."""

    def size(self, large: bool) -> int:
        """Its size."""
        global LIMIT
        if large:
            return LIMIT
        elif not large:
            LIMIT = 4
            return 1
        else:
            return 2


def ends() -> None:
    import os
    os.kill(os.getpid(), 9)
    print("never")
'''
COUNTED = {5, 7, 10, 14, 17, 19, 20, 21, 22, 23, 24, 26, 29, 30, 31, 32}


def test_lines_of_statements_count() -> None:
    assert sitecustomize.lines(SOURCE) == COUNTED


def test_what_a_fork_and_a_killed_process_ran_is_there(tmp_path: Path) -> None:
    """And __doc__, `elif` and `global` mean what they meant."""
    package = tmp_path / "tree" / "signalbox"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "thing.py").write_text(SOURCE)
    (package / "__main__.py").write_text(
        "import os, sys\n"
        "from signalbox import thing\n"
        "assert (thing.__doc__, thing.Thing.size.__doc__) == ('Docstring.', 'Its size.')\n"
        "if pid := os.fork():\n"
        "    os.waitpid(pid, 0)\n"
        "    print('parent')\n"
        "    sys.exit(thing.Thing().size(True))\n"
        "else:\n"
        "    thing.ends()\n"
    )
    folder = tmp_path / "found"
    words = [str(folder), "--tree", str(tmp_path / "tree"), "--", sys.executable, "-m", "signalbox"]
    assert main(words) == 3
    not_run = {22, 23, 24, 26, 32}
    main_lines = 8
    assert found(folder)["signalbox"] == (len(COUNTED - not_run) + main_lines, len(COUNTED) + main_lines)
