"""Models that call within their reasoning and never close it."""

from __future__ import annotations

import time

import pytest

from frontend_svc.text.parsing.events import Event, Reasoning
from frontend_svc.text.parsing.language import Calls, Language
from tests.parsing.reading import Found, collect, plan_of, read
from tests.parsing.writers import FAMILIES, TOOLS, Call, Family, Unit

CALLS: list[Call] = [("weather", {"city": "Bonn", "days": 3}), ("now", {})]
TAGGED = {way: family for way, family in FAMILIES.items() if not family.leads and family.tools != "openai"}
"""Families with a tag in front of calls. Harmony has messages in place of reasoning that is closed."""
THOUGHT = "I need the weather.\n"
EACH_CUT: tuple[list[int] | None, ...] = ([], None, [30, 31, 60])


def read_thought(
    family: Family,
    behind: str = "",
    *,
    is_whole: bool = True,
    cuts: list[int] | None = None,
    num_calls: int = 2,
) -> Found:
    """An output that begins within reasoning and has calls there."""
    written = THOUGHT + family.write(CALLS[:num_calls]) + behind
    return read(plan_of(family, within=True), family.units(written), cuts, is_whole=is_whole)


@pytest.mark.parametrize("way", TAGGED)
@pytest.mark.parametrize("num_calls", [1, 2])
@pytest.mark.parametrize("behind", ["", "\n"])
def test_calls_that_end_an_output_within_reasoning_are_calls(way: str, num_calls: int, behind: str) -> None:
    """LM4, vllm 39056, 46040 and 53246: models that lead into their call from a thought, and stop."""
    for cuts in EACH_CUT:
        found = read_thought(TAGGED[way], behind, cuts=cuts, num_calls=num_calls)
        assert found.parsed == CALLS[:num_calls]
        assert (found.reasoning, found.content) == (THOUGHT.strip(), "")


@pytest.mark.parametrize("way", TAGGED)
@pytest.mark.parametrize(
    ("behind", "is_whole"),
    [("", False), (" But no.", True), ("{end}", True), ("{end}It rains.", True), (" x {end}", True)],
    ids=["cut off", "text behind them", "closed", "closed, and an answer", "text, and closed"],
)
def test_calls_that_were_thought_are_reasoning(way: str, behind: str, is_whole: bool) -> None:
    """LM4: cut by length or cancelled, or with more behind them."""
    family = TAGGED[way]
    end = family.think[1]
    for cuts in EACH_CUT:
        found = read_thought(family, behind.format(end=end), is_whole=is_whole, cuts=cuts)
        assert not found.calls
        text, _, content = behind.partition("{end}")
        assert found.reasoning == THOUGHT + family.write(CALLS) + text.rstrip("\n")
        assert found.content == content


@pytest.mark.parametrize("way", TAGGED)
def test_half_a_call_or_no_tool_is_reasoning(way: str) -> None:
    """LM4, LM6."""
    family = TAGGED[way]
    units = family.units(THOUGHT + family.write(CALLS[:1]))
    half = units[: len(units) * 6 // 10]
    unknown = family.units(THOUGHT + family.write([("no_such_tool", {"a": "b"})]))
    for written in (half, unknown):
        found = read(plan_of(family, within=True), written, is_whole=True)
        assert not found.calls and not found.content
        assert found.reasoning.startswith(THOUGHT)
        assert text_of(written).startswith(found.reasoning)


def text_of(units: list[Unit]) -> str:
    return "".join(unit if isinstance(unit, str) else unit.text for unit in units)


@pytest.mark.parametrize("calls", [None, Calls.LISTED, Calls.NAMED])
def test_no_call_where_none_may_be_or_a_form_binds(calls: Calls | None) -> None:
    """LM4: without tools, with `tool_choice: none`, and where a form binds behind the reasoning."""
    family = TAGGED["hermes"]
    language = Language(family.reasoning, family.tools, family.vocabulary)
    tools = {} if calls is None else {"now": TOOLS["now"]}
    plan = language.plan("", tools, calls=calls or Calls.AUTO, reasons=True)
    assert plan is not None
    found = read(plan, family.units(THOUGHT + family.write([("now", {})])), is_whole=True)
    assert not found.calls and found.reasoning.endswith("</tool_call>")


def test_a_call_that_reasoning_quotes_is_none() -> None:
    """LM4: neither is anything held."""
    family = TAGGED["hermes"]
    parser = plan_of(family, within=True).make()
    written = family.units(f"I would write `{family.write(CALLS[:1])}")
    events = parser.push(written)
    assert collect(events).reasoning == text_of(written)
    assert not collect(parser.flush(is_whole=True)).calls


def test_what_is_held_is_told_once_it_is_no_call() -> None:
    """LM4: streaming goes on with the first character behind a call, and with the first that no call has."""
    family = TAGGED["hermes"]
    call = family.write(CALLS[:1])
    for written, behind in ((call, " b"), ("<tool_call>", "x")):
        parser = plan_of(family, within=True).make()
        held: list[Event] = parser.push(["Hm. "])
        held += parser.push(family.units(written))
        assert held == [Reasoning("Hm. ")]
        assert parser.in_reasoning
        assert collect(parser.push([behind])).reasoning == written + behind
        assert collect(parser.push(["c"])).reasoning == "c"


def test_one_call_at_most() -> None:
    """LM10: also of such that were held."""
    family = TAGGED["hermes"]
    language = Language(family.reasoning, family.tools, family.vocabulary)
    plan = language.plan("", TOOLS, reasons=True, max_calls=1)
    assert plan is not None
    parser = plan.make()
    events = parser.push(family.units(THOUGHT + family.write(CALLS))) + parser.flush(is_whole=True)
    assert [name for name, _ in collect(events).calls] == ["weather"]


@pytest.mark.parametrize("end", ["", "</think>"])
def test_held_calls_cost_time_in_proportion(end: str) -> None:
    """LM3: a long argument, and very many calls that turn out to be thoughts."""
    family = TAGGED["hermes"]
    began = time.process_time()
    for written in (
        family.write([("write_file", {"path": "a", "content": "x" * 200_000})]),
        family.write([("now", {})] * 3_000),
        (family.write([("now", {})]) + "x") * 3_000,
    ):
        units = family.units(written + end)
        found = read(plan_of(family, within=True), units, is_whole=True)
        assert bool(found.calls) == (not end and not written.endswith("x"))
    assert time.process_time() - began < 30
