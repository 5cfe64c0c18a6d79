"""Messages of blocks to the messages that templates take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import orjson

from frontend_svc.api.anthropic.blocks import (
    AnyBlock,
    InputMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from frontend_svc.templates.history import History
from frontend_svc.text.opaque_reasoning import unpack_reasoning
from signalbox.errors import InvalidRequestError

BILLING = "x-anthropic-billing-header:"
"""Begins a block of the system's that Claude Code makes anew for each call: it tells the model nothing, and no prefix
would be found in the cache behind it."""


def make_history(system: str | Sequence[TextBlock] | None, messages: Sequence[InputMessage]) -> History:
    """All that the model is told. Raises InvalidRequestError, which names what does not fit."""
    history = History()
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    if told := [text for text in texts if text and not text.startswith(BILLING)]:
        history.say("system", told)
    for index, message in enumerate(messages):
        _add(history, message, f"messages[{index}].content")
    if not history.messages:
        raise InvalidRequestError("messages have nothing that the model can be told", field="messages")
    return history


def _add(history: History, message: InputMessage, path: str) -> None:
    history.end_turn()
    content = message.content
    if isinstance(content, str):
        history.speak([content]) if message.role == "assistant" else history.say(message.role, [content])
        return
    start = 0
    for kind, group in groupby(content, type):
        blocks = list(group)
        if kind is TextBlock:
            texts = [block.text for block in blocks if isinstance(block, TextBlock)]
            history.speak(texts) if message.role == "assistant" else history.say(message.role, texts)
        else:
            for index, block in enumerate(blocks, start):
                _add_block(history, message.role, block, f"{path}[{index}]")
        start += len(blocks)


def _add_block(history: History, role: str, block: AnyBlock, path: str) -> None:
    wanted = {ThinkingBlock: "assistant", ToolUseBlock: "assistant", ToolResultBlock: "user"}.get(type(block))
    if wanted is not None and role != wanted:
        raise InvalidRequestError(f"{path} is for messages of the role {wanted}", field=path)
    match block:
        case ThinkingBlock():
            if text := block.thinking or unpack_reasoning(block.signature or ""):
                history.think(text)
        case ToolUseBlock():
            history.call(block.id, block.name, _to_json(block.input, f"{path}.input"))
        case ToolResultBlock():
            history.answer(block.tool_use_id, _result_of(block))


def _result_of(block: ToolResultBlock) -> str:
    """A failure that does not say so itself is called one."""
    content = block.content or ""
    text = content if isinstance(content, str) else "\n".join(part.text for part in content)
    if block.is_error and "error" not in text[:100].lower():
        return f"Error: {text}" if text else "Error"
    return text


def _to_json(value: object, field: str) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise InvalidRequestError(f"{field} cannot be written as JSON: {error}", field=field) from None
