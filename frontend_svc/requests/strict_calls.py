"""A grammar for free text in which each call that begins is one of a tool that there is, with arguments as its schema
has them: what `strict` asks for where the model chooses itself whether to call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from frontend_svc.requests.bound_form import ANYTHING, containing, json_of, mark_of, reasoning_rules
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.language import Language
from signalbox.grammar.form import FormKind

_HEAD = '{"name": %s, "arguments": '
Functions = Mapping[str, Mapping[str, Any]]


def strict_form(language: Language, within: bool, functions: Functions) -> StructuredOutput | None:
    """The form of an output; None: nothing is to be followed, or no grammar is known for the model's calls.

    within: the prompt ends within reasoning. `functions` are the schemas of the arguments, by name; empty: nothing is
    strict.
    """
    write = _FAMILIES.get(language.tools)
    if write is None or not functions:
        return None
    opener, calls = write(language, functions)
    tags = language.reasoning_tags
    if language.is_harmony:
        rules = calls
    else:
        rules, text = ["start: form"], f"TEXT: {ANYTHING} & ~{containing(opener)}"
        if tags is not None:
            # Space in front of free text is part of it; a tag of reasoning is not.
            first, *rest = reasoning_rules(tags, language, within)
            rules = [first.replace("GAP form", "form").replace(r"/\n{0,2}/ ", ""), *rest]
            text += f" & ~{containing(tags.begin)}"
        rules = [*rules, "form: TEXT (calls TEXT)*", text, *calls]
    grammar = "%llguidance {}\n" + "\n".join(rules) + "\n"
    return StructuredOutput(FormKind.GRAMMAR, grammar, field="tools")


Written = tuple[str, list[str]]
"""The tag that begins calls, and the rules of `calls`."""


def _hermes(language: Language, functions: Functions) -> Written:
    opener, end = "<tool_call>", mark_of("</tool_call>", language)
    bodies = (
        f"{_quoted(_HEAD % json.dumps(name))} {json_of(schema)} {_quoted('}')}"
        for name, schema in functions.items()
    )
    return opener, [
        f"calls: {mark_of(opener, language)} LINE ({' | '.join(bodies)}) LINE {end}",
        r"LINE: /\n?/",
    ]


def _mistral(language: Language, functions: Functions) -> Written:
    opener, args = "[TOOL_CALLS]", mark_of("[ARGS]", language)
    bodies = (f"{_quoted(name)} {args} {json_of(schema)}" for name, schema in functions.items())
    if "[ARGS]" not in language.token_ids:
        bodies = (
            f"{_quoted('[' + _HEAD % json.dumps(name))} {json_of(schema)} {_quoted('}]')}"
            for name, schema in functions.items()
        )
    return opener, [f"calls: {mark_of(opener, language)} ({' | '.join(bodies)})"]


def _sections(section: str, call: str, separator: str, end: str, last: str, before: str, behind: str) -> Any:
    def write(language: Language, functions: Functions) -> Written:
        marks = [mark_of(text, language) for text in (section, call, separator, end, last)]
        names = (
            f"{_quoted(before + name + behind)} {'INDEX ' if behind else ''}{marks[2]} {json_of(schema)}"
            for name, schema in functions.items()
        )
        one = f"{marks[1]} ({' | '.join(names)}) {marks[3]}"
        return section, [f"calls: {marks[0]} ({one})+ {marks[4]}", r"INDEX: /[0-9]{1,3}/"]

    return write


def _harmony(language: Language, functions: Functions) -> Written:
    mark = {
        name: mark_of(f"<|{name}|>", language) for name in ("channel", "message", "end", "start", "constrain")
    }
    channel, message = mark["channel"], mark["message"]
    calls = (
        f"{channel} {_quoted(f'commentary to=functions.{name} ')} {mark['constrain']} "
        f'"json" {message} {json_of(schema)}'
        for name, schema in functions.items()
    )
    return "", [
        "start: step* (last | call)",
        f'step: {channel} ("analysis" | "commentary") {message} TEXT {mark["end"]} {mark["start"]} "assistant"',
        f'last: {channel} "final" {message} TEXT',
        f"call: {' | '.join(calls)}",
        f"TEXT: {ANYTHING}",
    ]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_FAMILIES: Mapping[str, Callable[[Language, Functions], Written]] = {
    "hermes": _hermes,
    "mistral": _mistral,
    "openai": _harmony,
    "deepseek_v31": _sections(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "",
        "",
    ),
    "kimi_k2": _sections(
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        "functions.",
        ":",
    ),
}
"""Families whose arguments are JSON between marks, by name."""
