"""Each count is its budget, and an offence against each is found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from frontend_svc.links import outputs
from scheduler_svc.core.parts.disk.part import disk_of
from scheduler_svc.core.scheduler import Scheduler
from tools.structure.budgets import PATH, complaints, read_budgets
from tools.structure.calls.counting import Kind
from tools.structure.calls.measure import PYTHON, call_counts, count_in_fresh_process
from tools.structure.calls.ring import WARM_UP_STEPS, Ring
from tools.structure.figures import shape_counts
from tools.structure.sizes import MOST_FILES, MOST_LINES, native_lines, python_lines
from tools.structure.sources import read_modules
from worker_svc.core.worker_core import WorkerCore

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = read_budgets((ROOT / PATH).read_text())
SHAPE = {name: value for name, value in BUDGETS.items() if not name.startswith("calls.")}
CALLS = {name: value for name, value in BUDGETS.items() if name.startswith("calls.")}
counts_calls = pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="other versions inline calls")

# -- this checkout --


def test_the_shape_is_within_its_budgets() -> None:
    assert complaints(shape_counts(read_modules(ROOT)), SHAPE) == []


@counts_calls
def test_calls_are_within_their_budgets() -> None:
    assert complaints(count_in_fresh_process(ROOT), CALLS) == []


# -- planted: the shape --

FUNCTION = "def f() -> None:\n"
"""With `MOST_LINES` lines below it, one line too long."""
TREE = {
    "signalbox/__init__.py": "",
    "signalbox/one/a.py": "import signalbox.two.b\n",
    "signalbox/two/b.py": "",
    "signalbox/two/c.py": "",
    "scheduler_svc/core/d.py": "import signalbox.one.a\n",
    **{f"worker_svc/room/file{number}.py": "" for number in range(MOST_FILES)},
    "frontend_svc/e.py": (FUNCTION + "    pass\n") * 100,
}
"""A synthetic product without an offence."""
OFFENCES = {
    "a pair, by an import in a function": (
        "two_way_pairs.signalbox",
        {"signalbox/two/c.py": "def f() -> None:\n    from signalbox.one import a\n"},
    ),
    "a pair, by a relative import": (
        "two_way_pairs.signalbox",
        {"signalbox/two/c.py": "from ..one import a\n"},
    ),
    "a pair, by a string": (
        "two_way_pairs.signalbox",
        {"signalbox/two/c.py": "import importlib\nimportlib.import_module('signalbox.one.a')\n"},
    ),
    "a pair, by a string that is put together": (
        "two_way_pairs.signalbox",
        {
            "signalbox/one/__init__.py": "",
            "signalbox/two/c.py": "name = 'a'\n__import__(f'signalbox.one.{name}')\n",
        },
    ),
    "a pair, for type checking": (
        "two_way_pairs.signalbox",
        {
            "signalbox/two/c.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from signalbox.one.a import A\n"
        },
    ),
    "a pair of packages": (
        "two_way_pairs.between_packages",
        {"signalbox/two/c.py": "def f() -> None:\n    import scheduler_svc.core.d\n"},
    ),
    "a circle": (
        "circles.signalbox",
        {
            "signalbox/two/b.py": "import signalbox.two.c\n",
            "signalbox/two/c.py": "def f() -> None:\n    import signalbox.two.b\n",
        },
    ),
    "a circle of packages": (
        "circles.between_packages",
        {"signalbox/two/b.py": "def f() -> None:\n    import scheduler_svc.core.d\n"},
    ),
    "a 14th file": ("wide_folders.worker_svc", {"worker_svc/room/one_more.py": ""}),
    "a function of 81 lines": (
        "long_functions.scheduler_svc",
        {"scheduler_svc/core/f.py": FUNCTION + "    pass\n" * MOST_LINES},
    ),
    "longer functions": (
        "function_lines.p95",
        {"scheduler_svc/core/f.py": (FUNCTION + "    pass\n" * 20) * 6},
    ),
}
"""By what is planted: the count that shows it, and the files."""


def plant(tree: Path, files: dict[str, str]) -> dict[str, int]:
    """The counts of the synthetic product with these files."""
    for name, text in (TREE | files).items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return shape_counts(read_modules(tree))


def test_the_synthetic_product_has_no_offence(tmp_path: Path) -> None:
    counts = plant(tmp_path, {"scheduler_svc/core/f.py": FUNCTION + "    pass\n" * (MOST_LINES - 1)})
    assert counts.keys() == SHAPE.keys()
    assert {name: value for name, value in counts.items() if value} == {"function_lines.p95": 2}


@pytest.mark.parametrize("offence", OFFENCES)
def test_an_offence_against_the_shape_is_found(tmp_path: Path, offence: str) -> None:
    name, files = OFFENCES[offence]
    before = plant(tmp_path, {})
    found = complaints(plant(tmp_path, files), before)
    assert any(line.startswith(f"{name} is ") and "above" in line for line in found), found


# -- planted: calls --


def as_product(work: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a new file of the product, which calls `work` and nothing else."""
    code = compile("def planted(*args, **kwargs): return work(*args, **kwargs)", "planted.py", "exec")
    names: dict[str, Any] = {"__name__": "scheduler_svc.planted", "work": work}
    exec(code, names)
    planted = names["planted"]
    assert isinstance(planted, FunctionType)
    return planted


@counts_calls
@pytest.mark.parametrize("kind", Kind)
def test_one_more_call_is_found(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """In each part and on each worker: one call, in one more file, which is entered from another."""
    for owner, name in (
        (Scheduler, "schedule"),
        (Scheduler, "update"),
        (WorkerCore, "apply"),
        (WorkerCore, "commit"),
        (outputs, "feed"),
    ):
        monkeypatch.setattr(owner, name, as_product(getattr(owner, name)))
    found = complaints(call_counts([kind]), CALLS)
    above = {line.split(" is ")[0] for line in found if "above" in line}
    assert above == {name for name in CALLS if f".{kind.value}." in name}, found


def test_the_worker_with_features_says_all_of_them() -> None:
    """Else its counts would be those of a lesser one."""
    ring = Ring(Kind.FEATURES)
    info = ring.worker.info
    assert info.groups and info.state_group and info.num_host_blocks and info.num_lanes > 1
    assert info.kv_layout and info.pulls_blocks
    disk = disk_of(ring.worker)
    assert disk is not None and not disk.is_off


def test_the_worker_with_drafts_has_some() -> None:
    ring = Ring(Kind.DRAFTS)
    ring.submit_all()
    for _ in range(WARM_UP_STEPS):
        ring.turn()
    assert ring.core.draft_totals.num_accepted > 0


# -- lines of code --


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings(tmp_path: Path) -> None:
    text = '"""One.\n\nTwo."""\n\n# comment\nX = """\n# text\n"""  # three lines\n"""Of X."""\n\nY = 1  # comment\n'
    plant(tmp_path, {"signalbox/two/c.py": text})
    assert python_lines(read_modules(tmp_path)["signalbox.two.c"]) == 4
    assert native_lines("// one\n\nint a; // two\n/* three\n four */\nint b;\n") == 2
