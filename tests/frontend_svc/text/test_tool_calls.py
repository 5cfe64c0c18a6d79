"""Calls of tools are found in an output however it is cut into pieces, and what is no call stays text."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend_svc.text.tool_call_reader import CallStart, Text
from frontend_svc.text.tool_calls import ListedCalls, NamedCall, TaggedCalls

Found = tuple[str, list[tuple[str, str]]]


def read(calls: Any, text: str, cuts: list[int]) -> Found:
    """The text, and name and arguments of each call."""
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    events = [event for a, b in itertools.pairwise(edges) if a < b for event in calls.push(text[a:b])]
    events += calls.flush()
    free, found = "", []
    for event in events:
        if isinstance(event, Text):
            free += event.text
        elif isinstance(event, CallStart):
            assert event.index == len(found)
            found.append((event.name, ""))
        else:
            assert event.index == len(found) - 1, "arguments belong to the newest call"
            found[-1] = (found[-1][0], found[-1][1] + event.text)
    assert calls.num_calls == len(found)
    return free, found


TAGGED: list[tuple[str, Found]] = [
    ("just text", ("just text", [])),
    ("a <b> <tool", ("a <b> <tool", [])),
    (
        'so: <tool_call>\n{"name": "f", "arguments": {"a": "}\\" {", "b": [1, {}]}}\n</tool_call>',
        ("so: ", [("f", '{"a": "}\\" {", "b": [1, {}]}')]),
    ),
    (
        '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_call>{"name": "g", "arguments": {}}</tool_call>',
        ("", [("f", "{}"), ("g", "{}")]),
    ),
    ('<tool_call>{"arguments": {"x": 1}, "name": "g"}</tool_call> bye', (" bye", [("g", '{"x":1}')])),
    ('<tool_call>{"name": "f"}</tool_call>', ("", [("f", "{}")])),
    ('<tool_call>{"name": "f", "arguments": {"a": 1}}', ("", [("f", '{"a": 1}')])),
    ('<tool_call>{"name": "f", "arguments": {"a": 1', ("", [("f", '{"a": 1')])),
    ('<tool_call>{"name": "f", "arg', ('<tool_call>{"name": "f", "arg', [])),
    ("<tool_call>no JSON</tool_call>", ("<tool_call>no JSON</tool_call>", [])),
    ('<tool_call>{"x": 1}</tool_call>', ('<tool_call>{"x": 1}</tool_call>', [])),
    ("<tool_call>{]}</tool_call>!", ("<tool_call>{]}</tool_call>!", [])),
    ('<tool_call>{"name": "\\q", "arguments": {}}', ('<tool_call>{"name": "\\q", "arguments": {}}', [])),
    (
        '<tool_call>{"name": "\\ud800", "arguments": {}}',
        ('<tool_call>{"name": "\\ud800", "arguments": {}}', []),
    ),
    ('<tool_call>{"name": "größe", "arguments": {}} text', (" text", [("größe", "{}")])),
]


@pytest.mark.parametrize(("text", "found"), TAGGED)
@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 120), max_size=20))
def test_tagged_calls(text: str, found: Found, cuts: list[int]) -> None:
    assert read(TaggedCalls(), text, cuts) == found
    assert read(TaggedCalls(), text, list(range(len(text)))) == found, "one character at a time"


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 90), max_size=20))
def test_listed_calls(cuts: list[int]) -> None:
    text = '[ {"name": "f", "arguments": {"a": [1]}},\n {"name": "g", "arguments": {}} ]'
    assert read(ListedCalls(), text, cuts) == ("", [("f", '{"a": [1]}'), ("g", "{}")])


def test_a_named_call_is_all_of_the_output() -> None:
    assert read(NamedCall("f"), '{"a": 1}', [2, 4]) == ("", [("f", '{"a": 1}')])
    assert read(NamedCall("f"), "", []) == ("", [])


@settings(max_examples=500, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(
            [
                "<tool_call>",
                "</tool_call>",
                "<",
                "{",
                "}",
                '"',
                "\\",
                '"name"',
                ":",
                ",",
                '"f"',
                '"arguments"',
                "\n",
                "x",
            ]
        ),
        max_size=30,
    ).map("".join),
    cuts=st.lists(st.integers(0, 200), max_size=10),
)
def test_any_text_reads_the_same_in_any_pieces(text: str, cuts: list[int]) -> None:
    assert read(TaggedCalls(), text, cuts) == read(TaggedCalls(), text, [])
