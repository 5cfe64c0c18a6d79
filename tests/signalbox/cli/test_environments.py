"""Commands on machines that are not as a developer's: each works, or says in one sentence what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.signalbox.cli.environments import (
    NAMELESS,
    OWN_MOUNTS,
    SIGNALBOX,
    can_unshare,
    homeless,
    hostile_directory,
)

pytestmark = [
    pytest.mark.fresh,
    pytest.mark.skipif(sys.platform != "linux", reason="it is about users and mounts of Linux"),
]


def run(
    command: Sequence[str],
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    stdout: IO[str] | int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=100, check=False
    )


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The only thing that a command has said that cannot do what it should."""
    assert (done.returncode, done.stdout) == (1, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("signalbox: "), line
    return line.removeprefix("signalbox: ")


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        ("ps", "XDG_STATE_HOME"),
        ("models", "XDG_CACHE_HOME"),
        ("up --model smollm2", "XDG_CACHE_HOME"),
        ("up --model some/model", "HF_HOME"),
    ],
)
def test_a_user_without_a_home_is_told_what_to_set(tmp_path: Path, arguments: str, variable: str) -> None:
    if not can_unshare():
        pytest.skip("a user without a name cannot be made here")
    done = run([*NAMELESS, SIGNALBOX, *arguments.split()], env=homeless(), cwd=tmp_path)
    wanted = f"this user has no home directory: set HOME or {variable} to an absolute path"
    assert sentence(done) == wanted
    assert list(tmp_path.iterdir()) == []  # nothing was taken for a home


def test_a_home_that_is_no_user_s_is_named() -> None:
    assert sentence(run([SIGNALBOX, "up", "--model", "~nobody-has-this-name/model"])) == (
        "~nobody-has-this-name/model names the home directory of a user who has none"
    )


def test_a_working_directory_that_was_removed_is_told(tmp_path: Path) -> None:
    script = f"mkdir gone; cd gone; rmdir ../gone; exec {SIGNALBOX} up --model a"
    assert sentence(run(["sh", "-c", script], cwd=tmp_path)) == (
        "the working directory has been removed; change to one that is there"
    )


def test_temporary_files_that_cannot_be_made_are_told() -> None:
    if not can_unshare():
        pytest.skip("nothing can be mounted here")
    # What lies there stays, as the checkout may.
    mounts = "".join(
        f"mount --bind {place} {place}; mount -o remount,bind,ro {place}; " for place in ("/tmp", "/var/tmp")
    )
    done = run([*OWN_MOUNTS, f"{mounts} cd /proc; exec {SIGNALBOX} up --runner sim"], env=homeless(HOME="/x"))
    assert sentence(done).startswith("cannot make a directory for logs: ")
    assert done.stderr.endswith("name one with --log-dir, or set TMPDIR to another disk\n")


def test_output_that_cannot_be_written_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = run([SIGNALBOX, "ps"], stdout=full)
    assert done.returncode == 1
    assert done.stderr == "signalbox: No space left on device; make room, or set TMPDIR to another disk\n"


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run([SIGNALBOX, "ps"], stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_streams_that_are_closed_get_nothing_of_ours(tmp_path: Path) -> None:
    """Whatever is opened next would have their numbers: the log directory's lock, a socket."""
    script = f"exec {SIGNALBOX} status --scheduler 127.0.0.1:1 <&- >&- 2>&-"
    done = run(["sh", "-c", script], cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_python_m_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """But what Python itself imports before our first line, and a package that is called as ours."""
    here = hostile_directory(tmp_path)
    before_us = run([sys.executable, "-c", "import runpy, sys; print(*sys.modules)"]).stdout.split()
    for name in {"signalbox", *before_us}:
        (here / f"{name}.py").unlink(missing_ok=True)
    assert (here / "argparse.py").exists()
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    done = run([sys.executable, "-m", "signalbox", "ps"], cwd=here, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()
