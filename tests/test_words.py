"""One vocabulary: every word of the glossary (docs/design.md, 3) is a name where the glossary says so, and no private
word comes back. Docstrings begin with what they are about."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tools.packages import PRODUCT

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY_ROW = re.compile(r"(?m)^\| (`.*?) \| .* \| (`.*`) \|$")
TICKED = re.compile(r"`([^`]+)`")
FRAGMENT = re.compile(r"(Of|See|That|Those|These|They|The same|To be|As its|As the base's)\b|By \w+[.;,]")
"""Beginnings of docstrings that mean nothing without the line above."""

INSTEAD = {
    "Asked": "ClientRequest",
    "asked": "request, or what it is",
    "given": "request, or what it is",
    "GenerateInput": "CheckedRequest",
    "Ticket": "QuotaLease",
    "ticket": "lease",
    "Face": "Services",
    "Intake": "RequestProcessor",
    "intake": "processor",
    "obituary": "exit_report",
    "last_words": "exit_report",
    "LastWords": "ExitReport",
    "make_form": "make_renderer",
    "Newest": "LatestValue",
    "GrammarDesk": "GrammarCoordinator",
    "Verdict": "GrammarResult",
    "Offers": "WaitingCursor",
    "pass_over": "skip",
    "owing": "resumable",
    "owing_slots": "resumable",
    "prospects": "ttft_estimator",
    "Prospects": "TtftEstimator",
    "had": "service_received",
    "barrier": "throttled_by",
    "fruitless": "full_at_version",
    "toggled": "rest_changes",
    "_Starter": "PrefillAdmission",
    "Missing": "UnaccountedRequests",
    "Turns": "LateQuota",
    "heir": "substitute",
    "pass_on": "substitute_with",
    "base_rank": "priority",
    "waits_as": "priority_at_wait",
    "place_rank": "active_priority",
}
"""Private words, as whole names, and the field's word for each (the review that found them counted over a thousand)."""


@cache
def names_in(path: Path) -> frozenset[str]:
    """All names that its code uses, and its own."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return frozenset({path.stem} | {token.string for token in tokens if token.type == tokenize.NAME})


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace(" ", "_")).lower()


def glossary() -> Iterator[tuple[str, str]]:
    """(word, file): the first cell's words, each at home in every file of the last cell."""
    text = (ROOT / "docs" / "design.md").read_text()
    section = text.partition("## 3. Words")[2].partition("\n## ")[0]
    for words, files in GLOSSARY_ROW.findall(section):
        for word in TICKED.findall(words):
            for file in TICKED.findall(files):
                yield word, file


def is_named_in(word: str, path: Path) -> bool:
    """`word` is a name of `path`, or a part of one: `slot` of `slots`, `free_slots` and `SlotTable`."""
    part = re.compile(rf"(^|_){re.escape(snake(word))}s?(_|$)")
    return any(part.search(snake(name)) for name in names_in(path))


@pytest.mark.parametrize(("word", "file"), list(glossary()), ids=str)
def test_a_word_of_the_glossary_is_a_name_where_it_is_at_home(word: str, file: str) -> None:
    assert is_named_in(word, ROOT / file)


def test_the_glossary_is_found() -> None:
    assert len({word for word, _ in glossary()}) > 35


@pytest.mark.parametrize("package", PRODUCT)
def test_no_private_word_is_a_name(package: str) -> None:
    found = []
    for path in (ROOT / package).rglob("*.py"):
        file = str(path.relative_to(ROOT))
        private = names_in(path) & INSTEAD.keys()
        found += [f"{file}: say {INSTEAD[word]}, not {word}" for word in sorted(private)]
    assert found == []


def documented(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """(name, line, docstring) of classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, ast.get_docstring(node) or "without one"
        body = getattr(node, "body", None)
        for before, after in pairwise(body if isinstance(body, list) else ()):
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                target = before.target if isinstance(before, ast.AnnAssign) else before.targets[0]
                if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                    yield ast.unparse(target), before.lineno, after.value.value


@pytest.mark.parametrize("package", PRODUCT)
def test_docstrings_begin_with_the_thing(package: str) -> None:
    """No fragment that goes on where a name or another line ended."""
    found = []
    for path in (ROOT / package).rglob("*.py"):
        if "_pb2" not in path.name:
            for name, line, text in documented(ast.parse(path.read_text())):
                if FRAGMENT.match(text) or len(text.split()) < 2:
                    found.append(f"{path.relative_to(ROOT)}:{line} {name}: {text}")
    assert found == []
