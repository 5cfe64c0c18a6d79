"""What a process of ours imports, by where it is started and how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from signalbox.runtime.start.interpreter import ROOT, module_command

ASK = "from signalbox.runtime.start.interpreter import module_command; print(*module_command('scheduler_svc', 'a')[1:])"


@pytest.mark.fresh
@pytest.mark.parametrize(
    ("is_in_checkout", "flags", "command"),
    [
        (False, [], "-P -m scheduler_svc a"),
        (True, ["-P"], "-P -m scheduler_svc a"),
        (True, [], "-m scheduler_svc a"),
    ],
)
def test_a_child_leaves_the_working_directory_out_but_where_that_is_our_checkout(
    tmp_path: Path, is_in_checkout: bool, flags: list[str], command: str
) -> None:
    """A checkout that nobody has installed runs where one stands in it, and so do its children."""
    script = tmp_path / "ask.py"
    script.write_text(f"import sys; sys.path[:1] = {[ROOT] if is_in_checkout and not flags else []}; {ASK}")
    where = ROOT if is_in_checkout else tmp_path
    done = subprocess.run(
        [sys.executable, *flags, str(script)], cwd=where, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == command


@pytest.mark.fresh
def test_a_child_of_python_c_in_a_checkout_stands_in_it_too() -> None:
    """The path has an empty name for the working directory then. `-S`: no installed package is on it."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", ASK], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "-m scheduler_svc a"


def test_a_working_directory_that_was_removed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()  # noqa: PTH109
    assert module_command("pip")[1:] == ["-P", "-m", "pip"]
