"""What a template does with messages that can be told in several ways. It is tried, not guessed: each way is rendered
and looked for in the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from jinja2 import nodes

from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.conversation import Plain
from signalbox.errors import InvalidRequestError

ONE, TWO = "needle-one", "needle-two"
"""Texts that no template has."""
REASONING = ("reasoning", "reasoning_content", "thinking")
"""Names under which templates look for what an assistant thought; it is told under all of them."""
PROBE_CHARS = 1 << 20
CALL_ID = "call12345"
"""Nine letters and digits: Mistral's templates take no other."""
ARGUMENTS = {"needle_key": ONE}
ARGUMENTS_TEXT = '{"needle_key": "needle-one"}'
USER: Plain = {"role": "user", "content": "hi"}
TOOL: Plain = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "looks",
        "parameters": {
            "type": "object",
            "properties": {"needle_key": {"type": "string", "description": "key"}},
        },
    },
}


_SYSTEM: Plain = {"role": "system", "content": ONE}
BLANK: tuple[Plain, ...] = ({"content": ""}, {"content": None}, {})
"""The ways to tell that a message has calls and no text."""


class NullContent(Enum):
    """How an assistant's message with calls and no content is told."""

    LEFT_OUT = auto()
    """Without the key, as transformers has it."""
    NONE = auto()
    """As none, for which the template looks."""
    EMPTY = auto()
    """As an empty string."""


@dataclass(frozen=True)
class Traits:
    """What one template does."""

    takes_parts: frozenset[str]
    """Roles whose content may be a list of parts, all of which are written."""
    needs_parts: frozenset[str]
    """Roles of which nothing is written when their content is a string."""
    arguments_as_text: bool
    """Arguments of calls are wanted as JSON text, not as an object."""
    null_content: NullContent
    empty_hides_calls: bool
    """Calls are written only where the content is none: an empty string is told as that."""
    knows_developer: bool
    """The role is named in the template."""
    behind_answer: str
    """What is written behind the text of an answer that nothing follows."""
    inside_answer: str
    """What is written between the reasoning and the text of an answer, and between its text and its calls."""
    refuses_both: bool
    """A message with calls may have content or reasoning, not both."""
    takes_system: bool
    """A message of the system in front is written."""
    takes_later_system: bool
    """So are those behind others, wherever they stand."""
    alternates: bool
    """The template refuses two messages of the user in a row."""
    short_ids: bool
    """Calls have ids of nine letters and digits: the template refuses others."""
    needs_descriptions: bool
    """A tool without a description is refused: an empty one will do."""


def find_traits(template: ChatTemplate) -> Traits:
    """Renders about a dozen small conversations."""
    as_text = _wants_text(template)
    arguments: Any = ARGUMENTS_TEXT if as_text else ARGUMENTS
    roles = ("system", "user", "assistant", "tool")
    ways = {role: _parts_of(template, role, arguments) for role in roles}
    return Traits(
        takes_parts=frozenset(role for role, (parts, _) in ways.items() if parts),
        needs_parts=frozenset(role for role, (parts, string) in ways.items() if parts and not string),
        arguments_as_text=as_text,
        null_content=(null := _null_of(template, arguments)),
        empty_hides_calls=null is NullContent.NONE
        and ONE not in _render(template, _calling(arguments, content="")),
        knows_developer="developer" in template.source,
        behind_answer=_behind_answer(template),
        inside_answer=_inside_answer(template, as_text),
        refuses_both=_refuses_both(template, arguments),
        takes_system=ONE in _render(template, [_SYSTEM, USER]),
        takes_later_system=_takes_later_system(template),
        alternates=not _render(template, [USER, USER]),
        short_ids=_wants_short_ids(template, arguments),
        needs_descriptions=_needs_descriptions(template),
    )


def _render(template: ChatTemplate, messages: Sequence[Plain]) -> str:
    """Empty when the template refuses."""
    try:
        return template.render(messages, [TOOL] if template.takes_tools else [], max_chars=PROBE_CHARS)
    except InvalidRequestError:
        return ""


def _calling(arguments: Any, call_id: str = CALL_ID, **rest: Any) -> list[Plain]:
    """A conversation in which the assistant has called a tool."""
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}
    return [
        USER,
        {"role": "assistant", **rest, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "name": "look", "content": "seen"},
    ]


def _behind_answer(template: ChatTemplate) -> str:
    answer: Plain = {"role": "assistant", "content": ONE}
    try:
        text = template.render([USER, answer], add_generation_prompt=False, max_chars=PROBE_CHARS)
    except InvalidRequestError:
        return ""
    return text.rpartition(ONE)[2] if ONE in text else ""


def _inside_answer(template: ChatTemplate, as_text: bool) -> str:
    """Where the template writes both; the one that it tells last is looked for behind the other."""
    arguments = {"key": TWO} if not as_text else f'{{"key": "{TWO}"}}'
    thinking = {"role": "assistant", "content": ONE} | dict.fromkeys(REASONING, TWO)
    inside = ""
    for messages in ([USER, thinking], _calling(arguments, content=ONE)):
        text = _render(template, messages)
        if ONE in text and TWO in text:
            places = sorted((text.index(ONE), text.index(TWO)))
            inside += text[places[0] : places[1]]
    return inside


def _parts_of(template: ChatTemplate, role: str, arguments: Any) -> tuple[bool, bool]:
    """Whether parts are written, all of them and as text; whether a string is."""
    parts = [{"type": "text", "text": ONE}, {"type": "text", "text": TWO}]
    as_parts = _render(template, _saying(role, parts, arguments))
    takes = ONE in as_parts and TWO in as_parts and "'text'" not in as_parts and '"text"' not in as_parts
    return takes, ONE in _render(template, _saying(role, ONE, arguments))


def _saying(role: str, content: Any, arguments: Any) -> list[Plain]:
    """A conversation in which somebody of this role says `content`."""
    match role:
        case "system":
            return [{"role": role, "content": content}, USER]
        case "user":
            return [{"role": role, "content": content}]
        case "assistant":
            return [USER, {"role": role, "content": content}, USER]
    arguments = {"a": 1} if isinstance(arguments, dict) else '{"a": 1}'
    return [*_calling(arguments, content="")[:2], {"role": role, "tool_call_id": CALL_ID, "content": content}]


def _wants_text(template: ChatTemplate) -> bool:
    """An object is the better way where both work: what is written is then the template's own JSON."""
    as_object = [_render(template, _calling(ARGUMENTS, **rest)) for rest in BLANK]
    if any(ONE in text and "{'" not in text for text in as_object):
        return False
    return any(ARGUMENTS_TEXT in _render(template, _calling(ARGUMENTS_TEXT, **rest)) for rest in BLANK)


def _null_of(template: ChatTemplate, arguments: Any) -> NullContent:
    none = _render(template, _calling(arguments, content=None))
    if ONE not in none or none.count("None") > _render(template, _calling(arguments, content="")).count(
        "None"
    ):
        none = ""
    if none and _looks_for_none(template):
        return NullContent.NONE
    if ONE in _render(template, _calling(arguments)):
        return NullContent.LEFT_OUT
    return NullContent.NONE if none else NullContent.EMPTY


def _looks_for_none(template: ChatTemplate) -> bool:
    """`content is none`, or `is not none`."""
    for test in template.tree.find_all(nodes.Test):
        if test.name != "none":
            continue
        match test.node:
            case nodes.Name(name="content") | nodes.Getattr(attr="content"):
                return True
            case nodes.Getitem(arg=nodes.Const(value="content")):
                return True
    return False


def _wants_short_ids(template: ChatTemplate, arguments: Any) -> bool:
    short, long = (
        _render(template, _calling(arguments, name, content="")) for name in (CALL_ID, CALL_ID * 2)
    )
    return bool(short and not long)


def _needs_descriptions(template: ChatTemplate) -> bool:
    function = {key: value for key, value in TOOL["function"].items() if key != "description"}
    try:
        template.render([USER], [{"type": "function", "function": function}], max_chars=PROBE_CHARS)
    except InvalidRequestError:
        return bool(_render(template, [USER]))
    return False


def _takes_later_system(template: ChatTemplate) -> bool:
    """Behind the user, behind an answer, and between both."""
    answer: Plain = {"role": "assistant", "content": "hm"}
    places = ([USER, _SYSTEM], [USER, answer, _SYSTEM, USER], [USER, answer, USER, _SYSTEM, answer, USER])
    return all(ONE in _render(template, messages) for messages in places)


def _refuses_both(template: ChatTemplate, arguments: Any) -> bool:
    thought = dict.fromkeys(REASONING, TWO)
    if _render(template, _calling(arguments, content="said", **thought)):
        return False
    return TWO in _render(template, _calling(arguments, **thought))
