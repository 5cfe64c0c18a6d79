"""Items to the messages that templates take."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from frontend_svc.api.responses.items import (
    AnyItem,
    CallItem,
    CallOutputItem,
    CustomCallItem,
    MessageItem,
    ReasoningItem,
    texts_of,
)
from frontend_svc.api.responses.tools import CUSTOM_INPUT, flat_name
from frontend_svc.templates.conversation import Plain
from frontend_svc.templates.history import History
from frontend_svc.text.opaque_reasoning import unpack_reasoning
from signalbox.errors import InvalidRequestError


def make_messages(instructions: str | None, source: str | Sequence[AnyItem]) -> list[Plain]:
    """All that the model is told. Raises InvalidRequestError when there is nothing."""
    if not source:
        raise InvalidRequestError("input is empty", field="input")
    history = History()
    if instructions is not None:
        history.say("system", [instructions])
    if isinstance(source, str):
        history.say("user", [source])
    else:
        for item in source:
            _add(history, item)
    if not history.messages:
        raise InvalidRequestError("input has nothing that the model can be told", field="input")
    return history.messages


def _add(history: History, item: AnyItem) -> None:
    match item:
        case MessageItem(role="assistant"):
            history.speak(texts_of(item.content))
        case MessageItem():
            history.say(item.role, texts_of(item.content))
        case ReasoningItem():
            if text := _thought(item):
                history.think(text)
        case CallItem():
            history.call(item.call_id, flat_name(item.namespace, item.name), item.arguments)
        case CustomCallItem():
            arguments = orjson.dumps({CUSTOM_INPUT: item.input}).decode()
            history.call(item.call_id, flat_name(item.namespace, item.name), arguments)
        case CallOutputItem():
            history.answer(item.call_id, "\n".join(texts_of(item.output)))


def _thought(item: ReasoningItem) -> str:
    """The reasoning of an item; empty: nobody here can read it."""
    if item.content:
        return "".join(part.text for part in item.content)
    return unpack_reasoning(item.encrypted_content or "")
