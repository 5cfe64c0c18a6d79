"""Outputs that a model writes when it fails or is made to: they cost time in proportion to their length, and what
comes of them can be sent."""

from __future__ import annotations

import time

import orjson
import pytest

from frontend_svc.text.parsing.object_writer import property_kinds
from frontend_svc.text.parsing.pieces import Tag
from tests.parsing.reading import Found, collect, plan_of, read
from tests.parsing.writers import FAMILIES

CALL = Tag("<tool_call>")
NUM_CHARS = 200_000
MOST_S = 15.0
"""CPU seconds: some thirty times what they take, and a fraction of what a quadratic reader takes."""
NOW = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("family", "head", "repeated", "tail", "within"),
    [
        ("hermes", [], " ", "x", False),
        ("hermes", ["x"], "\n", "x", False),
        ("hermes", ["x"], "\n", "x", True),
        ("hermes", [CALL, '{"name": "now"}', Tag("</tool_call>")], "\n", "x", False),
        ("hermes", [CALL, '{"name": "now", "arguments": ', "[" * (NUM_CHARS // 2)], "}", "", False),
        ("hermes", [CALL, "{"], '"id": 1,', "}", False),
        ("gemma4", [Tag("<|tool_call>"), "call:weather{city:"], "a", "}", False),
    ],
    ids=[
        "space",
        "space behind text",
        "space in reasoning",
        "space behind a call",
        "brackets",
        "members",
        "word",
    ],
)
def test_time_is_linear(family: str, head: list[str | Tag], repeated: str, tail: str, within: bool) -> None:
    """LM3. One of these outputs would hold the event loop, and with it all others."""
    parser = plan_of(FAMILIES[family], within=within).make()
    began = time.process_time()
    parser.push(head)
    for _ in range(NUM_CHARS // len(repeated) // 4):
        parser.push([repeated * 4])
    parser.push([tail])
    parser.flush()
    assert time.process_time() - began < MOST_S


def read_text(family: str, text: str) -> Found:
    return read(plan_of(FAMILIES[family]), FAMILIES[family].units(text))


@pytest.mark.parametrize("value", ["1," * 600_000, "-1," * 600_000])
def test_a_value_of_python_holds_nobody_up(value: str) -> None:
    """LM5: what is too long to be read as Python's is JSON where it is that, and else told as it was written."""
    parser = plan_of(FAMILIES["pythonic"]).make()
    written = f"[compute(values=[{value}0], exact=True, note=({value}))]"
    began = time.process_time()
    events = parser.push([written]) + parser.flush()
    assert time.process_time() - began < MOST_S
    (call,) = collect(events).calls
    arguments = orjson.loads(call[1])
    assert len(arguments["values"]) == 600_001 and arguments["exact"] is True
    assert arguments["note"] == f"({value})"


@pytest.mark.parametrize(
    ("written", "told"), [("\\ud83d\\ude82", "🚂"), ("größe", "größe"), ("\\ud83d", None)]
)
def test_half_characters_are_escapes(written: str, told: str | None) -> None:
    """LM5: Python's escapes can write what no text can have, and no answer could be sent with it."""
    (call,) = read_text("pythonic", f'[weather(city="{written}")]').calls
    orjson.dumps(call)
    if told is not None:
        assert orjson.loads(call[1]) == {"city": told}


@pytest.mark.parametrize(
    "before", ['say "Bonn"', "see `main.py`", "the 'b'", "don't", '"a" "b"', "```\na\n```"]
)
def test_a_call_right_behind_the_end_of_a_quotation(before: str) -> None:
    """LM4, LM5: models that write their calls behind the text without a space."""
    found = read_text("hermes", before + NOW)
    assert (found.content, found.calls) == (before, [("now", "{}")])


@pytest.mark.parametrize("before", ['say "', "`", "the '", "('", '"a" "', "使用`", '说"', "```", "``"])
def test_no_call_right_behind_the_beginning_of_a_quotation(before: str) -> None:
    """LM4."""
    assert not read_text("hermes", before + NOW).calls


def test_reasoning_ends_right_behind_the_end_of_a_quotation() -> None:
    """LM4, where tags are text."""
    found = read_text("hermes in text", '<think>say "no"</think>yes')
    assert (found.reasoning, found.content) == ('say "no"', "yes")


@pytest.mark.parametrize(
    ("family", "units"),
    [
        ("hermes", [CALL, '{"name": "now"', Tag("</tool_call>")]),
        ("hermes", [CALL, '{"name": "now", "arguments": ""}', Tag("</tool_call>")]),
        (
            "kimi_k2",
            [
                *(Tag("<|tool_calls_section_begin|>"), Tag("<|tool_call_begin|>"), "functions.now:0"),
                *(Tag("<|tool_call_argument_begin|>"), Tag("<|tool_call_end|>")),
                Tag("<|tool_calls_section_end|>"),
            ],
        ),
        ("mistral", [Tag("[TOOL_CALLS]"), "now", Tag("[ARGS]"), " ", Tag("[TOOL_CALLS]")]),
        ("openai", ["to=functions.now", Tag("<|message|>"), Tag("<|call|>")]),
        ("openai", ["to=functions.now", Tag("<|message|>"), Tag("<|start|>"), "assistant"]),
    ],
)
def test_a_closed_call_without_arguments_takes_none(family: str, units: list[Tag | str]) -> None:
    """LM5: clients read the arguments as JSON."""
    spread = spread_out(units)
    found = read(plan_of(FAMILIES[family]), spread)
    assert (found.calls[0], len(found.calls)) == (("now", "{}"), 1)


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize(
    ("family", "units"),
    [
        ("mistral", [Tag("[TOOL_CALLS]"), "now", Tag("[ARGS]")]),
        ("openai", ["to=functions.now", Tag("<|message|>")]),
        ("glm45", [CALL, "now"]),
        ("hermes", [CALL, '{"name": "now", "arguments":']),
    ],
)
def test_a_call_that_the_model_leaves_without_arguments_takes_none(
    family: str, units: list[Tag | str], is_whole: bool
) -> None:
    """LM5: a stop token may be all that closes a call; one that the length cuts off is told as far as it came."""
    found = read(plan_of(FAMILIES[family]), spread_out(units), is_whole=is_whole)
    assert found.calls == [("now", "{}" if is_whole else "")]


def spread_out(units: list[Tag | str]) -> list[Tag | str]:
    return [unit for part in units for unit in ([part] if isinstance(part, Tag) else part)]


@pytest.mark.timeout(60)
def test_alternatives_of_alternatives_hold_nobody_up() -> None:
    """Types are asked for on the event loop, of a schema that is a client's."""
    itself = [{"$ref": "#/properties/a"}] * 10
    schema = {"properties": {"a": {"anyOf": [*itself, {"type": "integer"}, {"oneOf": [{"type": "null"}]}]}}}
    assert property_kinds(schema, "a") == {"integer", "null"}
