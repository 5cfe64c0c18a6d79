"""Outputs made of known reasoning, text and calls; then cut, damaged, quoted, or nested in reasoning."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.families import REASONING
from frontend_svc.text.parsing.families import TOOLS as TABLE
from frontend_svc.text.parsing.pieces import Tag
from tests.parsing.reading import Found, plan_of, read
from tests.parsing.writers import TOOLS, Call, Family, Unit

WORDS = [
    "so",
    "the",
    "weather",
    "größe",
    "東京",
    "🚂",
    "x < y",
    "{",
    "a}",
    "```",
    "`b`",
    '"q"',
    "[1]",
    "to=x",
    "\\n",
]
STRINGS = [
    "Bonn",
    "",
    'say "hi"',
    "a\nb\n",
    "\\",
    "}]{[",
    "größe 🚂",
    "<tool_call>x",
    "y</tool_call> z",
    "p</parameter>q",
    "r</function>s",
    "</arg_value>t",
    "[TOOL_CALLS] u",
    "<think>v</think>w",
    "true",
    "12",
    "null ",
    "it's",
    "a, b=(1)",
]
KINDS = ("clean", "cut", "damaged", "quoted", "nested", "unknown", "unclosed")


@dataclass
class Case:
    """One output and what must come of it."""

    kind: str
    units: list[Unit]
    within: bool
    """The prompt has opened the reasoning."""
    expected: Found
    calls: list[Call]
    whole: int
    """Units up to the place from which on nothing is known."""
    is_whole: bool = False
    """The model ends the output itself."""


class Generator:
    """Draws cases of one family."""

    def __init__(self, family: Family, seed: str) -> None:
        self.family = family
        self.random = random.Random(seed)
        self.is_harmony = family.tools == "openai"

    def case(self, kind: str) -> Case:
        family, draw = self.family, self.random
        if kind == "unclosed" and self.is_harmony:
            kind = "clean"  # there is nothing to close: a message ends where the next one begins
        if kind == "unclosed":
            return self.unclosed()
        reasoning = self.text() if kind == "nested" or draw.random() < 0.5 else ""
        text = "" if family.leads else self.text() if draw.random() < 0.5 else ""
        calls = [self.call() for _ in range(draw.randrange(0 if kind == "clean" else 1, 4))]
        reasoning_units: list[Unit] = list(reasoning)
        if kind == "nested":
            reasoning_units = self.nested(reasoning, calls)
        if kind == "quoted":
            text, calls = self.quote(calls), []
        if kind == "unknown":
            calls = [("no_such_tool", arguments) for _, arguments in calls[:1]]
        within = bool(reasoning_units) and not self.is_harmony and draw.random() < 0.5
        units: list[Unit] = []
        if reasoning_units:
            begin, end = family.think
            units = ([] if within else family.units(begin)) + reasoning_units + family.units(end)
        units += self.content(text)
        if calls:
            if self.is_harmony and text:
                units += family.units("<|start|>assistant")
            elif text:
                units += ["\n"]
            units += family.units(family.write(calls))
        expected = Found(text, "".join(u if isinstance(u, str) else u.text for u in reasoning_units))
        case = Case(kind, units, within, expected, calls, len(units))
        if kind == "cut":
            case.whole = draw.randrange(len(units))
            del units[case.whole :]
        if kind == "damaged":
            case.whole = self.damage(units)
        return case

    def content(self, text: str) -> list[Unit]:
        """Text as this family writes it."""
        if not self.is_harmony or not text:
            return list(text)
        channel = self.random.choice(["final", "commentary"])
        return [*self.family.units(f"<|channel|>{channel}<|message|>"), *text, Tag("<|end|>")]

    def nested(self, reasoning: str, calls: list[Call]) -> list[Unit]:
        """A call within reasoning, with its tags as tokens where a body may hold such."""
        text = self.family.write(calls[:1])
        for mark in self.family.think:
            text = text.replace(mark.strip(), "")
        written = self.family.units(text, spelled=self.is_harmony)
        behind = self.random.choice([" no.", "", "\n\nno"])
        return [*reasoning, " ", *written, *behind]

    def unclosed(self) -> Case:
        """Reasoning that ends with calls and is not closed: calls if the model ends itself behind them, and nothing
        else stands there."""
        family, draw = self.family, self.random
        calls, written = self.calls_without_marks()
        reasoning, within = self.text(), draw.random() < 0.5
        before = f"{reasoning}{draw.choice([chr(10), chr(10) * 2])}"
        is_whole, behind = draw.random() < 0.7, draw.choice(["", "", "\n", " so."])
        units = [] if within else family.units(family.think[0])
        units += [*before, *family.units(written), *behind]
        if not is_whole or behind.strip() or not any(map(written.startswith, self.openers)):
            reasoning, calls = (before + written + behind).strip("\r\n"), []
        return Case("unclosed", units, within, Found("", reasoning), calls, len(units), is_whole)

    def calls_without_marks(self) -> tuple[list[Call], str]:
        """Some, and how they are written: no argument of them has the marks of reasoning."""
        marks = [mark.strip() for mark in self.family.think]
        while True:
            calls = [self.call() for _ in range(self.random.randrange(1, 4))]
            written = self.family.write(calls)
            if not any(mark in written for mark in marks):
                return calls, written

    @property
    def openers(self) -> tuple[str, ...]:
        """Tags that begin a call."""
        entry = TABLE[self.family.tools]
        return entry.make(Context({})).openers if entry is not None else ()

    def quote(self, calls: list[Call]) -> str:
        """Calls in text that are none: spelled by ordinary tokens, or as code where tags are text."""
        written = self.family.write(calls[:1])
        if self.family.leads or (self.family.tokens and not self.has_text_tags):
            return f"like {written} so"
        return self.random.choice([f"like `{written}` so", f"like\n```\n{written}\n```\nso"])

    @property
    def has_text_tags(self) -> bool:
        return self.family.tools == "qwen3_coder"

    def damage(self, units: list[Unit]) -> int:
        """Removes, doubles or puts in a few units; returns where the first one was."""
        first = len(units)
        for _ in range(self.random.randrange(1, 4)):
            if not units:
                return 0
            place = self.random.randrange(len(units))
            first = min(first, place)
            match self.random.randrange(4):
                case 0:
                    del units[place : place + self.random.randrange(1, 4)]
                case 1:
                    units[place:place] = units[place : place + 5]
                case 2:
                    tags = self.family.tokens or ("<tool_call>",)
                    units[place:place] = self.family.units(self.random.choice(tags))
                case _:
                    units[place:place] = self.random.choice(['"', "}", "{", "]", "\\", "\n", ")", "<", "x"])
        return first

    def text(self) -> str:
        draw = self.random
        words = [draw.choice(WORDS[:6] if self.family.leads else WORDS) for _ in range(draw.randrange(1, 8))]
        text = " ".join(words)
        return f"{text} ```." if text.count("```") % 2 else f"{text}."

    def call(self) -> Call:
        draw = self.random
        name = draw.choice(list(TOOLS))
        properties = TOOLS[name]["properties"]
        keys = [key for key in properties if draw.random() < 0.8]
        return name, {key: self.value(properties[key]) for key in keys}

    def value(self, schema: dict[str, Any]) -> Any:
        match schema.get("type", "string"):
            case "string":
                return self.string()
            case "integer":
                return self.random.randrange(-5, 100)
            case "number":
                return self.random.choice([0.5, -2, 1e-7])
            case "boolean":
                return self.random.random() < 0.5
            case "array":
                return [self.string(), 1, {"k": [None, True]}][: self.random.randrange(4)]
        return {"a": self.string(), "b": {"c": [1, 2]}} if self.random.random() < 0.7 else {}

    def string(self) -> str:
        parts = [self.random.choice(STRINGS) for _ in range(self.random.randrange(1, 3))]
        return "-".join(parts)


def check(family: Family, case: Case, draw: random.Random) -> None:
    """Raises AssertionError where a parser lost, invented or leaked something, or minds how it is cut."""
    plan = plan_of(family, within=case.within)
    found = read(plan, case.units, [], is_whole=case.is_whole)
    cuts = [draw.randrange(len(case.units) + 1) for _ in range(6)] if draw.random() < 0.7 else None
    again = read(plan, case.units, cuts, is_whole=case.is_whole)
    assert (again.content, again.reasoning, again.calls) == (found.content, found.reasoning, found.calls)
    assert all(name in TOOLS for name, _ in found.calls), "no such tool"
    if case.kind == "damaged":
        return
    if case.kind == "unknown":
        assert not found.calls
        assert "no_such_tool" in found.content or family.tools == "openai"
        return
    if case.kind == "cut":
        check_cut(found, case, family)
        return
    assert found.parsed == case.calls
    assert found.content == case.expected.content
    assert found.reasoning == case.expected.reasoning


def check_cut(found: Found, case: Case, family: Family) -> None:
    """All that was told is the beginning of what would have come."""
    assert case.expected.reasoning.startswith(found.reasoning.rstrip("\n")) or begins_tag(
        found.reasoning.removeprefix(case.expected.reasoning).strip(), family
    )
    extra = found.content.removeprefix(case.expected.content).strip()
    assert case.expected.content.startswith(found.content) or begins_tag(extra, family), found.content
    assert len(found.calls) <= len(case.calls)
    for index, (name, arguments) in enumerate(found.calls):
        assert name == case.calls[index][0]
        if index < len(found.calls) - 1:
            assert json.loads(arguments) == case.calls[index][1]


def begins_tag(text: str, family: Family) -> bool:
    """What an output ends with where its last mark, which is text, was cut off."""
    tags, entry = REASONING[family.reasoning], TABLE[family.tools]
    marks = {"["} if family.leads else set[str]()
    if entry is not None:
        marks.update(entry.make(Context({})).tags)
    if tags is not None:
        marks |= {tags.begin, tags.end}
    return any(mark.startswith(text) for mark in marks)
