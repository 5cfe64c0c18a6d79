"""Calls whose arguments are JSON: Hermes, Mistral, Llama, and sections of special tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from frontend_svc.grammars.calls import CallGrammar, Functions
from frontend_svc.grammars.lark import LINE, Lark, Mark, Piece, Text, json_of
from signalbox.grammar.form import GAP

_KEYS = "(name|arguments|parameters|type|id|index)"
"""What the first key of a call that is an object may be."""


def hermes(lark: Lark, functions: Functions) -> CallGrammar:
    """`<tool_call>{"name": ..., "arguments": ...}</tool_call>`."""
    line = Text(LINE)
    end = lark.join("}", line, Mark("</tool_call>"))
    bodies = (
        f"{lark.join(line, _head(name, 'arguments'))} {json_of(schema)} {end}"
        for name, schema in functions.items()
    )
    return CallGrammar("<tool_call>", _one_of(bodies))


def mistral(lark: Lark, functions: Functions) -> CallGrammar:
    """`[TOOL_CALLS]name[ARGS]{...}`, or a list where the vocabulary has no `[ARGS]`."""
    if lark.is_token("[ARGS]"):
        call_id = ""
        if lark.is_token("[CALL_ID]"):
            call_id = f"({lark.join(Mark('[CALL_ID]'), Text('[A-Za-z0-9]{9}'))})?"
        args = lark.token("[ARGS]")
        bodies = (
            f"{lark.join(name)} {call_id} {args} {json_of(schema)}" for name, schema in functions.items()
        )
        return CallGrammar("[TOOL_CALLS]", _one_of(bodies))
    calls = [
        f"{lark.join(_head(name, 'arguments'))} {json_of(schema)} {lark.join('}')}"
        for name, schema in functions.items()
    ]
    one = lark.rule(_one_of(calls))
    body = f"{lark.join('[')} {one} ({lark.join(', ')} {one})* {lark.join(']')}"
    return CallGrammar("[TOOL_CALLS]", body)


def llama(lark: Lark, functions: Functions) -> CallGrammar:
    """`{"name": ..., "parameters": ...}` as the whole message, several separated by semicolons."""
    arguments = {name: lark.rule(json_of(schema)) for name, schema in functions.items()}
    first, other = (
        lark.rule(
            _one_of(
                f"{lark.join(*before, _head(name, 'parameters'))} {arguments[name]} {lark.join('}')}"
                for name in functions
            )
        )
        for before in ([Text(LINE)], ["; "])
    )
    body = f"{first} {other}*"
    in_pieces = _one_of(f"{_pieces(lark, name)} {arguments[name]} {lark.join('}')}" for name in functions)
    return CallGrammar(
        "<|python_tag|>",
        body,
        initial=rf'\s*\{{\s*"{_KEYS}"',
        untagged=body,
        beside_json=f"{in_pieces} {other}*",
    )


def _pieces(lark: Lark, name: str) -> str:
    """The head of a call, piece by piece as JSON is read."""
    pieces = ("{", '"name"', ":", json.dumps(name), ",", '"parameters"', ":")
    gap = lark.terminal(f"/({GAP})?/")
    return " ".join(f"{lark.join(piece)} {gap}" for piece in pieces)


Named = Callable[[str], list[Piece | str]]
"""What stands between the tag that begins a call and its arguments."""


def _sections(
    marks: tuple[str, str, str, str], named: Named, behind: str, lark: Lark, functions: Functions
) -> CallGrammar:
    section, call, call_end, end = marks
    bodies = [
        f"{lark.join(Mark(call), *named(name))} {json_of(schema)}" for name, schema in functions.items()
    ]
    one = lark.rule(f"{_one_of(bodies)} {lark.join(behind, Mark(call_end))}")
    between = f"{lark.terminal(f'/{LINE}/')} " if behind else ""
    return CallGrammar(section, f"{one} ({between}{one})* {lark.join(Mark(end))}", hidden=(call,))


def _head(name: str, word: str) -> str:
    return f'{{"name": {json.dumps(name)}, "{word}": '


def _one_of(bodies: object) -> str:
    return f"({' | '.join(bodies)})"  # type: ignore[arg-type]


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>")
_KIMI = (
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
)
_SEPARATOR, _ARGUMENTS = Mark("<｜tool▁sep｜>"), Mark("<|tool_call_argument_begin|>")


def _fenced(name: str) -> list[Piece | str]:
    return ["function", _SEPARATOR, f"{name}\n```json\n"]


def _bare(name: str) -> list[Piece | str]:
    return [name, _SEPARATOR]


def _numbered(name: str) -> list[Piece | str]:
    return [f"functions.{name}:", Text("[0-9]{1,3}"), _ARGUMENTS]


deepseek_v3 = partial(_sections, _DEEPSEEK, _fenced, "\n```")
deepseek_v31 = partial(_sections, _DEEPSEEK, _bare, "")
kimi_k2 = partial(_sections, _KIMI, _numbered, "")
