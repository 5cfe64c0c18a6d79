"""The setting for drafts, read."""

from __future__ import annotations

import pytest

from signalbox.protocol.speculation import Speculation, parse_speculation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ngram", Speculation("ngram", 8)),
        ("draft", Speculation("draft", 4)),
        ("ngram:1", Speculation("ngram", 1)),
        ("draft:32", Speculation("draft", 32)),
    ],
)
def test_what_can_be_asked_for(text: str, expected: Speculation) -> None:
    assert parse_speculation(text) == expected


@pytest.mark.parametrize(
    "text", ["", "medusa", "ngram:0", "ngram:33", "ngram:-1", "draft:", "draft:2:3", ":4"]
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)):
        parse_speculation(text)
