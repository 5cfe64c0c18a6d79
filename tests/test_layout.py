"""The documents name every folder and every rule that there is, and none that is gone (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.packages import MAPPED

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/design").glob("*.md")])
UNGUARDED = {
    "C13": "where the code is that C9 to C12 are about, and that nothing is stored for it",
    "J6": "it says that something is not there: a second path",
    "M6": "a list of the events, each of which has a rule and tests of its own",
    "TR8": "what others make sure of: the tests of hand-offs are theirs",
    "R3": "a list of the messages, which M1 to M8 are about",
}
"""Rules that no test names, and why: they describe, and nothing that could break is theirs alone."""
GONE = {"HO15", "HO16", "PD4", "TR10", "TR11"}
"""Ids of rules that were removed."""
MAX_COLUMNS = 100
UNWRAPPED: set[str] = set()
"""Documents whose lines are still longer."""
MAX_README_LINES = 100
FOLDER = re.compile(r"(?m)^\| `([\w/]+)/` \|")
"""The first cell of a row of the tables of folders."""
PATH = re.compile(rf"`((?:{'|'.join(MAPPED)})/[\w/.]*\.(?:py|h|cpp))`")
"""A source file, named from the root."""
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"\s*```")
RULE = re.compile(r"(?m)^(?:- |\| )\*\*([A-Z]{1,2}\d+)\*\*")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without code and tables."""
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if FENCE.match(line):
            is_code = not is_code
        elif not (is_code or line.startswith(("|", "    "))):
            yield number, line


def is_too_long(line: str) -> bool:
    """A link that is alone on its line cannot be broken."""
    words = line.lstrip("- *!").split(" ")
    return len(line) > MAX_COLUMNS and not (LINK.search(line) and len(words) == 1)


def anchor_of(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    return {anchor_of(line.lstrip("#")) for _, line in prose(path) if line.startswith("#")}


def test_every_folder_is_named_and_every_folder_named_is_there() -> None:
    named = FOLDER.findall((ROOT / "docs" / "architecture.md").read_text())
    folders = {
        relative(path.parent)
        for package in MAPPED
        for suffix in ("py", "h")
        for path in (ROOT / package).rglob(f"*.{suffix}")
    }
    assert sorted(named) == sorted(folders)


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if relative(path) not in UNWRAPPED], ids=relative
)
def test_lines_fit(path: Path) -> None:
    assert [number for number, line in prose(path) if is_too_long(line)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_files_that_are_named_and_linked_are_there(path: Path) -> None:
    text = path.read_text()
    missing = [name for name in PATH.findall(text) if not (ROOT / name).exists()]
    for target, anchor in LINK.findall(text):
        file = (path.parent / target).resolve()
        if "://" in target:
            continue
        if not file.exists() or (anchor and anchor[1:] not in anchors(file)):
            missing.append(target + anchor)
    assert missing == []


def test_the_readme_is_short_and_names_every_document() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MAX_README_LINES
    others = [
        relative(path) for path in DOCUMENTS if path.name != "README.md" and path.parent.name != "design"
    ]
    assert [name for name in others if f"| [{name}]({name}) |" not in text] == []


def rules() -> list[str]:
    """Their ids, in order."""
    documents = [ROOT / "docs" / name for name in ("design.md", "liveness.md")]
    return [rule for path in documents for rule in RULE.findall(path.read_text())]


def docstrings(path: Path) -> Iterator[str]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, kinds):
            yield ast.get_docstring(node) or ""


def test_every_rule_is_named_by_a_test() -> None:
    texts = [text for path in (ROOT / "tests").rglob("*.py") for text in docstrings(path)]
    named = set(re.findall(r"\b[A-Z]{1,2}\d+\b", "\n".join(texts)))
    assert sorted(set(rules()) - named) == sorted(UNGUARDED)


def test_ids_of_rules_are_used_once_and_count_up() -> None:
    ids = rules()
    assert sorted(GONE & set(ids)) == [], "ids of removed rules are not given again"
    letters = [rule.rstrip("0123456789") for rule in (*ids, *GONE)]
    expected = {
        f"{letter}{number}" for letter in set(letters) for number in range(1, letters.count(letter) + 1)
    }
    assert len(set(ids)) == len(ids)
    assert set(ids) | GONE == expected
