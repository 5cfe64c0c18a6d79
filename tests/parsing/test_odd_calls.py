"""Calls written otherwise than a family's template does it, as real models do at times: none is lost, and the arguments
of one that is closed are JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend_svc.text.parsing.language import Language
from tests.parsing.reading import Found, plan_of, read
from tests.parsing.writers import FAMILIES, TOOLS

CALL = '{"name": "weather", "arguments": {"city": "Bonn"}}'
BONN = ("weather", {"city": "Bonn"})
NOW: tuple[str, dict[str, Any]] = ("now", {})


def read_text(family: str, text: str) -> Found:
    """Each unit alone, and all at once."""
    plan, units = plan_of(FAMILIES[family]), FAMILIES[family].units(text)
    found, whole = read(plan, units), read(plan, units, [])
    assert (found.content, found.calls) == (whole.content, whole.calls)
    return found


@pytest.mark.parametrize("family", ["hermes", "hermes in text"])
@pytest.mark.parametrize(
    ("written", "calls"),
    [
        (f"[{CALL}]", [BONN]),
        (f'[{CALL}, {{"name": "now", "arguments": {{}}}}]', [BONN, NOW]),
        (f"\n[\n{CALL}\n", [BONN]),
        (f'{{"type": "function", "function": {CALL}}}', [BONN]),
        (f'{{"function": {CALL}, "id": "x"}}', [BONN]),
        ('{"function": "weather", "arguments": {"city": "Bonn"}}', [BONN]),
        (CALL.replace("arguments", "parameters"), [BONN]),
        ('{"arguments": {"city": "Bonn"}, "name": "weather"}', [BONN]),
        (f'{CALL[:-1]}, "arguments": {{"city": "Ulm"}}, "name": "now"}}', [BONN]),
    ],
    ids=[
        "list",
        "list of two",
        "open list",
        "wrapped",
        "wrapped first",
        "function",
        "parameters",
        "name last",
        "twice",
    ],
)
def test_variants_of_hermes(family: str, written: str, calls: list[Any]) -> None:
    """LM5."""
    found = read_text(family, f"well\n<tool_call>{written}</tool_call>")
    assert found.parsed == calls and found.content == "well"


def test_text_that_looks_like_a_variant_is_text() -> None:
    """LM6."""
    for written in ('[{"name": "no_such_tool"}]', '{"function": {"name": "no_such_tool"}}', "[1, 2]"):
        found = read_text("hermes", f"<tool_call>{written}</tool_call>")
        assert not found.calls and found.content.startswith(f"<tool_call>{written}"[:20])


def test_llamas_calls_as_a_list() -> None:
    """LM5; and what begins with a bracket and is none is text."""
    written = '[{"name": "weather", "parameters": {"city": "Bonn"}}, {"name": "now", "parameters": {}}]'
    assert read_text("llama3_json", written).parsed == [BONN, NOW]
    assert read_text("llama3_json", "[1] a book").content == "[1] a book"


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("city:,days:1", {"city": None, "days": 1}),
        ("city", {"city": None}),
        ('city:<|"|>Bonn<|"|>,', {"city": "Bonn"}),
        (',,city:<|"|>Bonn<|"|>,,days:3', {"city": "Bonn", "days": 3}),
        ('city:<|"|>Bonn<|"|>,city:<|"|>Ulm<|"|>', {"city": "Bonn"}),
        ("a:{b:1,b:{c:2},d:[1,,2]},a:[3]", {"a": {"b": 1, "d": [1, 2]}}),
        ('city:<|"|>Bonn<|"|> or <|"|>Ulm<|"|>,days:3', {"city": "Bonn", "days": 3}),
        ('{city:<|"|>Bonn<|"|>},days:3', {"days": 3}),
        ("city:Bonn am Rhein,days:10:30", {"city": "Bonn am Rhein", "days": "10:30"}),
        ('<|"|>city<|"|>:<|"|>Bonn<|"|>', {"city": "Bonn"}),
        ("days:[1,2", {"days": [1, 2]}),
        ("", {}),
    ],
)
def test_damaged_arguments_of_gemma_are_json(written: str, arguments: dict[str, Any]) -> None:
    """LM5: a key without a value has null, and of a key that comes twice the first counts."""
    found = read_text("gemma4", f"<|tool_call>call:weather{{{written}}}<tool_call|>")
    assert found.parsed == [("weather", arguments)] and not found.content


@pytest.mark.parametrize(
    ("family", "written"),
    [
        (
            "qwen3_coder",
            "<tool_call>\n<function=weather>\n<parameter=city>\nBonn\n</parameter>\n<parameter=city>\nUlm\n</parameter>"
            "\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "minimax_m2",
            '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Bonn</parameter>\n'
            '<parameter name="city">Ulm</parameter>\n<parameter name="days">3</parameter>\n'
            "</invoke>\n</minimax:tool_call>",
        ),
        (
            "glm45",
            "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bonn</arg_value>\n<arg_key>city</arg_key>\n"
            "<arg_value>Ulm</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        ),
        ("pythonic", "[weather(city='Bonn', city='Ulm', days=3)]"),
        ("pythonic", "[weather('Bonn', city='Ulm', days=3)]"),
    ],
)
def test_of_an_argument_that_comes_twice_the_first_counts(family: str, written: str) -> None:
    """LM5: it has been told by then."""
    (call,) = read_text(family, written).calls
    assert call == ("weather", '{"city": "Bonn", "days": 3}')


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("'Bonn', 3", {"city": "Bonn", "days": 3}),
        ("'Bonn', days=3", {"city": "Bonn", "days": 3}),
        ("'a=b'", {"city": "a=b"}),
        ("city='a==b',", {"city": "a==b"}),
        ("'Bonn', 3, 'too', 'many'", {"city": "Bonn", "days": 3}),
        ("", {}),
    ],
)
def test_arguments_without_names_have_those_of_their_places(written: str, arguments: dict[str, Any]) -> None:
    """LM5."""
    assert read_text("pythonic", f"[weather({written})]").parsed == [("weather", arguments)]


@pytest.mark.parametrize("family", ["deepseek_r1", "qwen3"])
def test_an_end_of_reasoning_that_nothing_has_begun(family: str) -> None:
    """LM8: models that write it are served with the family that says so, as with vLLM; elsewhere it is text, as text
    that was told cannot be taken back."""
    plan = Language(family).plan("<|user|>hi<|assistant|>", TOOLS)
    assert plan is not None
    found = read(plan, "hm</think>\n\nyes")
    if family == "deepseek_r1":
        assert (found.reasoning, found.content) == ("hm", "yes")
    else:
        assert (found.reasoning, found.content) == ("", "hm</think>\n\nyes")


def test_reasoning_that_the_prompt_has_closed_is_closed() -> None:
    """LM8: thinking is off, or a message is written on behind it."""
    language = Language("deepseek_r1")
    assert not language.opens_reasoning("<|assistant|><think>\n\n</think>\n\n")
    assert not language.opens_reasoning("<|assistant|>The answer", "The answer")
    assert language.opens_reasoning("<|assistant|><think>so", "<think>so")
    assert language.opens_reasoning("<|assistant|>") and language.opens_reasoning("<|assistant|><think>\n")


def test_arguments_are_valid_json_one_by_one() -> None:
    """LM5: what was told of the first of two calls does not wait for the second."""
    found = read_text("hermes", f"<tool_call>[{CALL}, {CALL}")
    assert [json.loads(arguments) for _, arguments in found.calls] == [BONN[1], BONN[1]]
