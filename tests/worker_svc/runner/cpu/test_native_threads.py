"""Who does what of a product, and that threads which share a list wait for what the list before it left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.worker_svc.runner.cpu.kept_builds import kept_program
from worker_svc.runner.cpu.native import build

HERE = Path(__file__).parent
SANITIZER = "-fsanitize=thread"
pytestmark = pytest.mark.skipif(not build.has_compiler(), reason="there is no C++ compiler")


def compiled(name: str, *options: str) -> Path:
    """The test program `name`, compiled."""
    return kept_program([build.find_compiler(), "-std=c++20", "-O1", *options], HERE / f"{name}.cpp")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """What the program did and said."""
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_parts_of_products_are_whole_disjoint_and_of_one_size() -> None:
    """For 1 to 256 threads, by rows too where there are more threads than tiles."""
    done = run(compiled("all_parts"))
    assert done.returncode == 0, done.stdout


def test_members_of_a_team_do_not_race() -> None:
    try:
        program = compiled("team_of_threads", "-g", "-pthread", SANITIZER)
    except build.BuildError as error:
        pytest.skip(f"there is no ThreadSanitizer: {error}")
    for members in (1, 2, 5):
        done = run(program, str(members))
        if "unexpected memory mapping" in done.stderr:
            pytest.skip("ThreadSanitizer does not run on this kernel")
        assert done.returncode == 0, (members, done.stdout, done.stderr[:2000])
