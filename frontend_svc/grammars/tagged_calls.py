"""Calls whose arguments stand between tags one by one: Qwen3-Coder's XML, DeepSeek's DSML, MiniMax, GLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from frontend_svc.grammars.calls import CallGrammar, Functions
from frontend_svc.grammars.lark import LINE, SPACE, Lark, Mark, Piece, Text, literal
from frontend_svc.grammars.schemas import Scope, UnboundError, arguments_of
from frontend_svc.grammars.tagged_values import Ending, TaggedValues, key_piece

_LINE = Text(LINE)
_DSML = "｜DSML｜"
Key = str | Text


@dataclass(frozen=True)
class Style:
    """How one language writes."""

    section: str
    section_end: str
    call: Callable[[str], list[Piece | str]]
    """What stands in front of a call's arguments, by its name."""
    call_end: list[Piece | str]
    parameter: Callable[[Key], list[Piece | str]]
    """What stands in front of a value, by its key."""
    ending: Ending
    hidden: tuple[str, ...] = ()
    is_flagged: bool = False
    """A parameter says itself whether its value is a string."""
    repeats: bool = False
    """A section has any number of calls, else one."""


def write(style: Style, lark: Lark, functions: Functions) -> CallGrammar:
    """A section of calls."""
    one = _one(style, lark, functions)
    more = f" {one}*" if style.repeats else ""
    end = lark.join(_LINE, Mark(style.section_end)) if style.section_end else ""
    return CallGrammar(style.section, f"{one}{more} {end}", style.hidden)


def dsml(lark: Lark, functions: Functions) -> CallGrammar:
    """A section of calls, by the name that V3.2 has for it or the one that V4 has."""
    one = _one(DSML, lark, functions)
    sections = (
        f"{_tags(DSML, lark, [f'{name}>'])} {one}+ {_tags(DSML, lark, [_LINE, f'</{_DSML}{name}>'])}"
        for name in _DSML_SECTIONS
    )
    return CallGrammar(DSML.section, f"({' | '.join(sections)})", inner_token=_DSML)


def _one(style: Style, lark: Lark, functions: Functions) -> str:
    values = TaggedValues(lark, style.ending)
    return lark.rule(" | ".join(_call(style, lark, values, *function) for function in functions.items()))


def _call(style: Style, lark: Lark, values: TaggedValues, name: str, schema: Mapping[str, Any]) -> str:
    scope, properties, required, others = arguments_of(schema)
    members = [
        f"{_parameter(style, lark, values, key, value, scope)}{'' if key in required else '?'}"
        for key, value in properties.items()
    ]
    if others is not None:
        key = key_piece(list(properties))
        members.append(f"{_parameter(style, lark, values, key, others, scope)}*")
    return lark.rule(
        " ".join([_tags(style, lark, style.call(name)), *members, _tags(style, lark, style.call_end)])
    )


def _parameter(style: Style, lark: Lark, values: TaggedValues, key: Key, schema: Any, scope: Scope) -> str:
    if isinstance(key, str) and set(key) & set('<>"=\n'):
        raise UnboundError(f"the name {key!r} of an argument cannot be written")
    head = style.parameter(key)
    if not style.is_flagged:
        return lark.rule(f"{_tags(style, lark, head)} {values.of(schema, scope)}")
    strings, others = values.strings_and_others(schema, scope)
    as_text = _tags(style, lark, [*head, ' string="true">'])
    found = [f"{as_text} {values.string(branch)}" for branch in strings]
    if others or {} in strings:
        as_json = _tags(style, lark, [*head, ' string="false">'])
        found.append(f"{as_json} {values.json({'anyOf': others} if others else {}, scope)}")
    return lark.rule(" | ".join(found))


def _tags(style: Style, lark: Lark, pieces: list[Piece | str]) -> str:
    """The pieces, with a token that stands within them as what it is."""
    token = style.ending.inner_token
    if not token or not lark.is_token(token):
        return lark.join(*pieces)
    split: list[Piece | str] = []
    for piece in pieces:
        text = piece.text if isinstance(piece, Mark) else piece
        if isinstance(text, str) and token in text:
            before, _, behind = text.partition(token)
            split += [before, Mark(token), behind]
        else:
            split.append(piece)
    return lark.join(*split)


def _qwen_key(key: Key) -> list[Piece | str]:
    return [_LINE, Mark("<parameter="), key, ">"]


def _quoted_key(prefix: str, end: str) -> Callable[[Key], list[Piece | str]]:
    return lambda key: [_LINE, prefix, ' name="', key, f'"{end}']


def _glm_key(key: Key) -> list[Piece | str]:
    return [_LINE, Mark("<arg_key>"), key, Mark("</arg_key>"), _LINE, Mark("<arg_value>")]


def _closing(call_end: str, call: str, section: str, section_end: str) -> tuple[str, ...]:
    """What ends a value without its own tag."""
    behind = "|".join(map(literal, (call, section, section_end)))
    return (f"{literal(call_end)}{SPACE}({behind})", f"{literal(section_end)}{SPACE}{literal(section)}")


QWEN3_CODER = Style(
    "<tool_call>",
    "</tool_call>",
    lambda name: [_LINE, Mark("<function="), name, ">"],
    [_LINE, Mark("</function>")],
    _qwen_key,
    Ending(
        "</parameter>",
        ("<parameter=", "</function>", "</tool_call>"),
        _closing("</function>", "<function=", "<tool_call>", "</tool_call>"),
        breaks=True,
    ),
    hidden=("<function=",),
)
MINIMAX = Style(
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    lambda name: [_LINE, f'<invoke name="{name}">'],
    [_LINE, "</invoke>"],
    _quoted_key("<parameter", ">"),
    Ending(
        "</parameter>",
        ("<parameter ", "</invoke>", "</minimax:tool_call>"),
        _closing("</invoke>", "<invoke ", "<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    hidden=("<invoke ",),
    repeats=True,
)


_DSML_SECTIONS = ("tool_calls", "function_calls")
DSML = Style(
    f"<{_DSML}",
    "",
    lambda name: [_LINE, f'<{_DSML}invoke name="{name}">'],
    [_LINE, f"</{_DSML}invoke>"],
    _quoted_key(f"<{_DSML}parameter", ""),
    Ending(
        f"</{_DSML}parameter>",
        (f"<{_DSML}parameter ", f"</{_DSML}invoke>", *(f"</{_DSML}{name}>" for name in _DSML_SECTIONS)),
        (
            f"{literal(f'</{_DSML}')}(invoke|{'|'.join(map(literal, _DSML_SECTIONS))})>{SPACE}<\\/?{literal(_DSML)}",
        ),
        inner_token=_DSML,
    ),
    is_flagged=True,
)
GLM = Style(
    "<tool_call>",
    "",
    lambda name: [name],
    [_LINE, Mark("</tool_call>")],
    _glm_key,
    Ending(
        "</arg_value>",
        ("<arg_key>", "</tool_call>"),
        (f"{literal('</tool_call>')}{SPACE}{literal('<tool_call>')}",),
    ),
)
qwen3_coder = partial(write, QWEN3_CODER)
minimax_m2 = partial(write, MINIMAX)
glm = partial(write, GLM)
