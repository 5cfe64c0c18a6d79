"""Figures of the documents: their text is that of docs/data, and they know whether their code has changed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools.figures import __main__ as figures
from tools.figures import record, render
from tools.figures.calls import calls_of
from tools.figures.catalogue import FIGURES
from tools.figures.digest import digests_of, outermost
from tools.figures.record import Record, age, code_of
from tools.packages import PRODUCT
from tools.steady_step import summarize

FUNCTION = '''
class Table:
    def add(self, rows: list[int], limit: int = 3) -> int:
        """Adds them."""
        total = 0
        for row in rows:
            total += row * 2  # twice

        def capped(value: int) -> int:
            return min(value, limit)

        return capped(total)
'''
SAME = {
    "a docstring": ('"""Adds them."""', '"""Adds rows, twice."""'),
    "no docstring": ('        """Adds them."""\n', ""),
    "a comment": ("  # twice", ""),
    "a local": ("total", "whole"),
    "a parameter": ("limit", "most"),
    "a nested function": ("capped", "bounded"),
    "an annotation": ("value: int", "value: float"),
}
OTHER = {
    "an operator": ("row * 2", "row + 2"),
    "a constant": ("row * 2", "row * 3"),
    "a default": ("limit: int = 3", "limit: int = 4"),
    "a function that is called": ("min(", "max("),
    "another local": ("return capped(total)", "return capped(row)"),
    "a statement less": ("        total = 0\n", ""),
}


def digest_of(source: str) -> str:
    return digests_of(source)["Table.add"]


@pytest.mark.parametrize("old, new", SAME.values(), ids=SAME)
def test_what_does_not_change_the_code_does_not_change_its_digest(old: str, new: str) -> None:
    assert old in FUNCTION
    assert digest_of(FUNCTION.replace(old, new)) == digest_of(FUNCTION)


@pytest.mark.parametrize("old, new", OTHER.values(), ids=OTHER)
def test_what_changes_the_code_changes_its_digest(old: str, new: str) -> None:
    assert old in FUNCTION
    assert digest_of(FUNCTION.replace(old, new)) != digest_of(FUNCTION)


def test_nested_code_belongs_to_the_function_around_it() -> None:
    assert outermost("Table.add.<locals>.capped.<locals>.<lambda>") == "Table.add"
    assert outermost("<module>") == outermost("Table.<lambda>") == ""


def test_the_functions_of_a_command_are_found_in_all_its_processes_and_threads() -> None:
    script = (
        "import os, threading\n"
        "from signalbox.errors import code_of, limit_reached, status_of\n"
        "thread = threading.Thread(target=lambda: limit_reached('full', 1.0))\n"
        "thread.start(); thread.join()\n"
        "if os.fork() == 0:\n"
        "    status_of(limit_reached('full', 1.0)); os._exit(0)\n"
        "os.wait()\n"
    )
    found = {
        name
        for file, name in calls_of([sys.executable, "-c", script], PRODUCT)
        if file == "signalbox/errors.py"
    }
    assert {"limit_reached", "status_of"} <= found
    assert "code_of" not in found


def test_a_figure_is_fresh_until_a_function_that_it_ran_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    code = code_of(frozenset({("signalbox/errors.py", "code_of"), ("signalbox/errors.py", "status_of")}))
    assert age(code).is_fresh and age(code).num_run == 2
    code["signalbox/errors.py"]["code_of"] = "0" * 8
    assert (age(code).num_run, age(code).num_changed) == (2, 1)


def test_a_function_that_moved_has_not_changed() -> None:
    code = code_of(frozenset({("signalbox/errors.py", "limit_reached")}))
    assert age({"signalbox/gone.py": code["signalbox/errors.py"]}).is_fresh


def test_a_figure_without_recorded_code_is_old() -> None:
    assert not age({}).is_fresh


def test_the_check_tells_what_is_old_and_only_the_readme_matters_at_a_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh = code_of(frozenset({("signalbox/errors.py", "status_of")}))
    old = {"signalbox/errors.py": {"status_of": "0" * 8}}
    outdated = ""

    def read(name: str) -> tuple[Record, list[record.Line]]:
        code = old if name == outdated else fresh
        return Record("abc", "a machine", "2026-11-27", [], "", code), []

    monkeypatch.setattr(figures, "read", read)
    for outdated, fails in (("", False), ("qos", False), ("tenants", True)):
        lines, is_old = figures.check()
        assert is_old is fails
        assert [line for line in lines if line.startswith("old")] == [
            f"old: {name}{' (README)' if fails else ''}: 1 of 1 functions changed since abc, 2026-11-27"
            for name in FIGURES
            if name == outdated
        ]


@pytest.mark.parametrize("document", render.DOCUMENTS)
def test_documents_have_the_figures_of_the_data(document: str) -> None:
    text = (record.ROOT / document).read_text()
    assert len(render.PLACE.findall(text)) == text.count("<!-- figures: ") > 0
    assert render.render(document) == text, "run: make figures"


def test_another_measurement_is_another_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for path in record.DATA.glob("*.jsonl"):
        (tmp_path / path.name).write_text(path.read_text())
    measured, lines = record.read("scheduler")
    monkeypatch.setattr(record, "DATA", tmp_path)
    lines = [line | {"scheduler_output_bytes": line["running"] * 0.4} for line in lines]
    record.write("scheduler", replace(measured, commit="f00"), lines)
    assert "410 bytes" in render.summary() and "step at f00," in render.summary()
    assert "| 410 (vLLM 56,926) |" in render.steps() and "Measured at f00," in render.steps()


def test_a_ratio_is_the_median_over_pairs_and_not_of_medians() -> None:
    def lines(*totals: float) -> list[dict[str, float]]:
        return [
            {
                "running": 64,
                **{f"{part}_us_p50": total for part in ("total", "schedule", "encode", "parse", "update")},
            }
            for total in totals
        ]

    pairs = [(lines(10.0), lines(10.0)), (lines(30.0), lines(20.0)), (lines(26.0), lines(13.0))]
    (line,) = summarize(pairs)
    assert (line["total_ratio"], line["total_ratio_min"], line["total_ratio_max"]) == (1.5, 1.0, 2.0)
    assert (line["total_us"], line["total_us_there"], line["pairs"]) == (26.0, 13.0, 3)
