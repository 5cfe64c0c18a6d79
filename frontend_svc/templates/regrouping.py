"""Conversations in which anybody may speak at any time, made into such as a template takes.

The APIs that agents speak have messages of the system between others, several of the user in a row, and words of the
user right behind a result. Many templates refuse that, and some leave out without a word what the system says late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2s
from typing import Any

from frontend_svc.templates.conversation import Plain
from frontend_svc.templates.traits import REASONING, Traits

SHORT_ID = 9
"""Characters of an id as Mistral's templates want it."""
_SYSTEM = ("system", "developer")


def regroup(messages: Sequence[Plain], traits: Traits) -> list[Plain]:
    """Messages with the same words in the same order.

    What the system says where the template does not hear it is said by the user; where turns have to alternate,
    neighbours of one role are one message, and what the user says behind a result is part of that. Ids of calls that
    the template refuses, which are those of another server, get others.
    """
    told = [_place(message, index, traits) for index, message in enumerate(messages)]
    if traits.short_ids:
        told = [_shorten_ids(message) for message in told]
    return _alternate(told) if traits.alternates else told


def _place(message: Plain, index: int, traits: Traits) -> Plain:
    is_heard = traits.takes_later_system if index else traits.takes_system
    return message if is_heard or message["role"] not in _SYSTEM else message | {"role": "user"}


def _shorten_ids(message: Plain) -> Plain:
    if "tool_call_id" in message:
        return message | {"tool_call_id": _short(message["tool_call_id"])}
    if calls := message.get("tool_calls"):
        return message | {"tool_calls": [call | {"id": _short(call["id"])} for call in calls]}
    return message


def _short(call_id: str) -> str:
    is_short = len(call_id) == SHORT_ID and call_id.isascii() and call_id.isalnum()
    return call_id if is_short else blake2s(call_id.encode(errors="replace")).hexdigest()[:SHORT_ID]


def _alternate(messages: Iterable[Plain]) -> list[Plain]:
    told: list[Plain] = []
    for message in messages:
        if told and _goes_on(told[-1], message):
            told[-1] = _join(told[-1], message)
        else:
            told.append(message)
    return told


def _goes_on(before: Plain, message: Plain) -> bool:
    if message["role"] == "user":
        return before["role"] in ("user", "tool")
    return message["role"] == before["role"] == "assistant" and not before.get("tool_calls")


def _join(before: Plain, message: Plain) -> Plain:
    """`before` with what `message` has more."""
    joined = before | {"content": _text_of([before.get("content"), message.get("content")])}
    for name in REASONING:
        if thoughts := [part[name] for part in (before, message) if part.get(name)]:
            joined[name] = "\n\n".join(thoughts)
    return joined | ({"tool_calls": message["tool_calls"]} if message.get("tool_calls") else {})


def _text_of(contents: Iterable[Any]) -> str | None:
    """None: nobody said anything."""
    texts: list[str] = []
    for content in contents:
        parts = [content] if isinstance(content, str) else [part["text"] for part in content or ()]
        texts += [text for text in parts if text]
    return "\n\n".join(texts) if texts else None
