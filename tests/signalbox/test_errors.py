"""The map from errors to gRPC status and HTTP codes is complete and can be read back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from signalbox import errors
from signalbox.errors import SignalboxError, code_of, from_code, status_of
from tools.packages import PRODUCT

ROOT = Path(__file__).resolve().parents[2]


def tree(root: type[SignalboxError]) -> Iterator[type[SignalboxError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


CLASSES = [error for error in tree(SignalboxError) if error.__module__ == errors.__name__]


def test_the_map_has_every_class_and_no_other() -> None:
    assert set(errors.STATUS) == set(CLASSES)


@pytest.mark.parametrize("package", PRODUCT)
def test_no_error_is_declared_elsewhere(package: str) -> None:
    """One would have no status."""
    names = {error.__name__ for error in CLASSES}
    files = [
        path for path in (ROOT / package).rglob("*.py") if path.name != "errors.py" or package != "signalbox"
    ]
    classes = [
        node
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert [
        node.name for node in classes if names & {ast.unparse(base).split(".")[-1] for base in node.bases}
    ] == []


@pytest.mark.parametrize("error", CLASSES)
def test_a_code_names_its_class(error: type[SignalboxError]) -> None:
    original = error("a sentence", field="prompt")
    copy = from_code(code_of(original), original.message, original.field)
    assert type(copy) is error
    assert (copy.message, copy.field, str(copy)) == ("a sentence", "prompt", "a sentence")


@pytest.mark.parametrize("error", CLASSES)
def test_every_status_is_an_error_on_both_faces(error: type[SignalboxError]) -> None:
    status = status_of(error("a sentence"))
    assert status.grpc.name != "OK"
    assert 400 <= status.http <= 599
    assert status.openai_type.endswith("_error")


def test_the_code_of_a_newer_version_is_an_internal_error() -> None:
    assert type(from_code("TimeTravelError", "not yet")) is errors.InternalError


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (errors.UnavailableError("it starts"), 1),
        (from_code("UnavailableError", "as a scheduler says it"), 1),
        (errors.UnavailableError("short of memory", retry_after_s=2.4), 3),
        (errors.UnavailableError("lost again and again", passes=False), None),
        (errors.ResourceExhaustedError("a limit", retry_after_s=0.2), 1),
        (errors.ResourceExhaustedError("a limit"), None),
        (errors.InternalError("a bug"), None),
    ],
    ids=str,
)
def test_who_may_ask_again_is_told_when(error: SignalboxError, seconds: int | None) -> None:
    """W1: whatever passes."""
    assert errors.retry_after_of(error) == seconds
