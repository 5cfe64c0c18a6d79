"""The processor time that a run of the tests prints at its end, of a tiny suite in processes of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.costs import _without_group

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
from tests import costs

pytest_addoption, pytest_configure = costs.add_option, costs.register
"""
CHILD = """
import subprocess, sys
import pytest

@pytest.mark.parametrize("name", ["a@b"])
def test_child(name):
    burn = "import time\\nwhile time.process_time() < 0.6: pass"
    subprocess.run([sys.executable, "-S", "-c", burn], check=True)
"""
OWN = """
import time
import pytest
from tests import costs

def burn(cpu_s):
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass

@pytest.fixture
def dear():
    burn(0.2)
    yield
    burn(0.1)

@pytest.mark.xdist_group("a group")
def test_fixture(dear):
    costs.add(100.0)

def test_cheap():
    pass
"""
CHILD_TEST, FIXTURE_TEST = "child/test_child.py::test_child[a@b]", "own/test_own.py::test_fixture"
ROW = re.compile(r" *([\d.]+) +([\d.]+) +(\d+)  (child|own)")


@pytest.mark.parametrize(
    "options", [(), ("-p", "xdist", "-n", "2", "--dist", "loadgroup")], ids=["one", "xdist"]
)
def test_sums_hold_with_children_fixtures_and_processes_of_xdist(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    for name, text in (("conftest.py", CONFTEST), ("child/test_child.py", CHILD), ("own/test_own.py", OWN)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n")
    output = run(tmp_path, *options, "--costs-to", "costs.json")
    record = json.loads((tmp_path / "costs.json").read_text())
    cpu_s = {test["nodeid"]: test["cpu_s"] for test in record["tests"]}
    assert cpu_s.keys() == {CHILD_TEST, FIXTURE_TEST, "own/test_own.py::test_cheap"}
    assert cpu_s[CHILD_TEST] >= 0.6 and cpu_s[FIXTURE_TEST] >= 100.3 and min(cpu_s.values()) >= 0
    assert record["cpu_s"] > sum(cpu_s.values())  # imports and collection come on top
    folders = {row[4]: (float(row[1]), int(row[3])) for row in map(ROW.fullmatch, output) if row}
    expected = {"child": (cpu_s[CHILD_TEST], 1), "own": (sum(cpu_s.values()) - cpu_s[CHILD_TEST], 2)}
    assert folders == {
        folder: (pytest.approx(sum_s, abs=0.051), num) for folder, (sum_s, num) in expected.items()
    }
    assert any("CPU seconds" in line for line in output)
    dearest = output[output.index("   CPU s   wall s  the 2 dearest tests") + 1 :]
    assert [line.split()[-1] for line in dearest[:2]] == [FIXTURE_TEST, CHILD_TEST]
    assert output[-1].startswith("3 passed in ")


def test_a_run_of_no_tests_prints_no_figures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    assert not any("CPU s" in line for line in run(tmp_path, status=5))


def run(folder: Path, *options: str, status: int = 0) -> list[str]:
    """Lines that pytest prints for the suite in `folder`."""
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("a.py::test[x@y]@a.py", "a.py::test[x@y]"),
        ("a.py::test@the demo ring", "a.py::test"),
        ("a.py::test[x@y]", "a.py::test[x@y]"),
        ("a.py::test", "a.py::test"),
    ],
)
def test_names_of_groups_are_taken_off(nodeid: str, name: str) -> None:
    assert _without_group(nodeid) == name
