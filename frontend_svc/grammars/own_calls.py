"""Calls in a notation of their own: Python's, Gemma's."""

from __future__ import annotations

import json

from frontend_svc.grammars.calls import CallGrammar, Functions
from frontend_svc.grammars.lark import ANYTHING, LINE, Lark, Mark, Text, containing, literal
from frontend_svc.grammars.notation import Notation, Values
from frontend_svc.grammars.schemas import Schema, arguments_of, string_patterns

START, STOP = "<|python_start|>", "<|python_end|>"
CALL, END_CALL, MARK = "<|tool_call>", "<tool_call|>", '<|"|>'
_SINGLE_QUOTED = r"'([^'\x{5C}\x{0}-\x{1F}]|\x{5C}['\x{22}\x{5C}nrt])*'"


def pythonic(lark: Lark, functions: Functions) -> CallGrammar:
    """`[f(k=1), g()]` as the whole message, or between tags."""
    calls = []
    for name, schema in functions.items():
        scope, *members = arguments_of(schema)
        calls.append((name, Values(lark, PYTHON, scope).arguments(*members)))
    first, other, bare = (
        lark.rule(
            " | ".join(f"{lark.join(*before, name, '(')} {inner} {lark.join(')')}" for name, inner in calls)
        )
        for before in ([Text(LINE), "["], [", "], [])
    )
    # A bracket and a name are one terminal: what begins like them, and is none, is text.
    listed = f"{first} {other}* {lark.join(']')}"
    tagged = f"{listed} {lark.join(Mark(STOP))}"
    beside_json = f"{lark.join('[')} {bare} {other}* {lark.join(']')}"
    initial = r"\s*\[\s*[\w.\-]+\("
    return CallGrammar(START, tagged, initial=initial, untagged=listed, beside_json=beside_json)


def gemma4(lark: Lark, functions: Functions) -> CallGrammar:
    """`call:f{k:v}` between tags."""
    calls = []
    for name, schema in functions.items():
        scope, *members = arguments_of(schema)
        inner = Values(lark, GEMMA, scope).arguments(*members)
        calls.append(f"{lark.join(f'call:{name}{{')} {inner} {lark.join('}', Mark(END_CALL))}")
    return CallGrammar(CALL, f"({' | '.join(calls)})")


def _python_string(lark: Lark, schema: Schema) -> str:
    """In double quotes JSON's strings are Python's."""
    written = f"%json {json.dumps(schema)}"
    is_free = not set(schema) & {"pattern", "minLength", "maxLength", "format"}
    return f"({written} | {lark.join(Text(_SINGLE_QUOTED))})" if is_free else written


def _python_text(lark: Lark, text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return lark.join(Text(f"({literal(quoted)}|{literal(repr(text))})"))


def _marked_string(lark: Lark, schema: Schema) -> str:
    patterns = string_patterns(schema) or [ANYTHING]
    if lark.is_token(MARK):
        wanted = [f"/{pattern}/" for pattern in patterns] + [
            f"~{containing(tag)}" for tag in (MARK, END_CALL)
        ]
        return f"{lark.token(MARK)} {lark.terminal(' & '.join(wanted))} {lark.token(MARK)}"
    wanted = [f"/({pattern}){literal(MARK)}/" for pattern in patterns] + [f"~{containing(END_CALL)}"]
    return f"{lark.join(MARK)} {lark.lazy(' & '.join(wanted))}"


def _marked_text(lark: Lark, text: str) -> str:
    return lark.join(Mark(MARK), text, Mark(MARK))


PYTHON = Notation(
    {"true": "True", "false": "False", "null": "None"},
    _python_string,
    _python_text,
    key=lambda name: f"(\"{name}\"|'{name}'): ",
    keyword=lambda name: f"{name}=",
)
GEMMA = Notation(
    {},
    _marked_string,
    _marked_text,
    key=lambda name: f"{name}:",
    keyword=lambda name: f"{name}:",
    comma=",",
    sorts=True,
)
