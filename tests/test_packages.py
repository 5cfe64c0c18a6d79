"""All checks take their packages from tools/packages.py; files that cannot read it say the same."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tools.packages import GENERATED, NAMES, PACKED, PRODUCT, unlisted

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MOST_NAMED = 2
"""Packages that a list elsewhere may name: pairs of services have their own tests."""


def lists_of_packages(path: Path) -> list[str]:
    """Lists, tuples and sets of a file that name more packages of the product than a pair."""
    text = path.read_text()
    if sum(name in text for name in PRODUCT) <= MOST_NAMED:
        return []
    displays = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.List | ast.Tuple | ast.Set)
    ]
    return [
        f"{path.name}:{node.lineno}"
        for node in displays
        if sum(isinstance(each, ast.Constant) and each.value in PRODUCT for each in node.elts) > MOST_NAMED
    ]


def test_each_top_level_folder_with_python_is_listed() -> None:
    assert unlisted(ROOT) == []
    assert [name for name in NAMES if not any((ROOT / name).rglob("*.py"))] == []


def test_a_folder_that_is_not_listed_is_found(tmp_path: Path) -> None:
    for name in ("signalbox", "new_svc/core", "docs", ".hidden", "build"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("signalbox/a.py", "new_svc/core/b.py", "docs/page.md", ".hidden/c.py", "build/d.py"):
        (tmp_path / name).touch()
    assert unlisted(tmp_path) == ["new_svc"]


def test_wheels_and_images_have_the_product() -> None:
    include = PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    assert sorted(include) == sorted(f"{name}*" for name in PACKED)
    copies = [line.split() for line in (ROOT / "Dockerfile").read_text().splitlines()]
    copied = [words[1] for words in copies if words[:1] == ["COPY"] and words[1:] == [words[1], words[1]]]
    assert set(copied) - {"locks", "worker_svc/runner/cpu"} == set(PACKED)
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert let_in >= set(PACKED)


def test_generated_folders_are_left_out_of_lint_and_types() -> None:
    assert PYPROJECT["tool"]["ruff"]["extend-exclude"] == list(GENERATED)
    assert set(PYPROJECT["tool"]["mypy"]["exclude"]) >= {f"{folder}/" for folder in GENERATED}


@pytest.mark.parametrize("folder", ["tests", "tools"])
def test_nothing_else_lists_the_packages(folder: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*.py") if path != ROOT / "tools" / "packages.py"]
    assert [found for path in paths for found in lists_of_packages(path)] == []


def test_make_lint_types_what_the_list_says() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    assert "/mypy $$($(BIN)/python -m tools.packages typed)" in recipe
