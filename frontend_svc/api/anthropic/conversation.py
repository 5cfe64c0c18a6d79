"""Messages of blocks to the messages that templates take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import orjson

from frontend_svc.api.anthropic.blocks import (
    AnyBlock,
    InputMessage,
    ReferenceBlock,
    ResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnseenBlock,
)
from frontend_svc.api.anthropic.tools import ClientTool
from frontend_svc.templates.history import History
from frontend_svc.text.opaque_reasoning import unpack_reasoning
from signalbox.errors import InvalidRequestError

BILLING = "x-anthropic-billing-header:"
"""Begins a block of the system's that Claude Code makes anew for each call: it tells the model nothing, and no prefix
would be found in the cache behind it."""


def result_blocks(messages: Iterable[InputMessage]) -> list[ResultBlock]:
    """What calls gave, but for results that are one text."""
    return [
        part
        for message in messages
        if not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, ToolResultBlock) and not isinstance(block.content, str)
        for part in block.content or ()
    ]


def make_history(
    system: str | Sequence[TextBlock] | None,
    messages: Sequence[InputMessage],
    tools: Mapping[str, ClientTool] | None = None,
) -> History:
    """All that the model is told; `tools` are those that may be found, by name. Raises InvalidRequestError, which names
    what does not fit."""
    history = History()
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    if told := [text for text in texts if text and not text.startswith(BILLING)]:
        history.say("system", told)
    untold = dict(tools or {})
    for index, message in enumerate(messages):
        _add(history, message, f"messages[{index}].content", untold)
    if not history.messages:
        raise InvalidRequestError("messages have nothing that the model can be told", field="messages")
    return history


def _add(history: History, message: InputMessage, path: str, untold: dict[str, ClientTool]) -> None:
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
                _add_block(history, message.role, block, f"{path}[{index}]", untold)
        start += len(blocks)


def _add_block(
    history: History, role: str, block: AnyBlock, path: str, untold: dict[str, ClientTool]
) -> None:
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
            history.answer(block.tool_use_id, _result_of(block, untold))


def _result_of(block: ToolResultBlock, untold: dict[str, ClientTool]) -> str:
    """A failure that does not say so itself is called one."""
    content = block.content or ""
    text = content if isinstance(content, str) else _text_of(content, untold)
    if block.is_error and "error" not in text[:100].lower():
        return f"Error: {text}" if text else "Error"
    return text


def _text_of(parts: Sequence[ResultBlock], untold: dict[str, ClientTool]) -> str:
    texts: list[str] = []
    for kind, group in groupby(parts, type):
        if kind is ReferenceBlock:
            names = [part.tool_name for part in group if isinstance(part, ReferenceBlock)]
            texts.append(_describe(names, untold))
        else:
            texts += [
                f"[{part.type}: it cannot be shown here]" if isinstance(part, UnseenBlock) else part.text
                for part in group
                if not isinstance(part, ReferenceBlock)
            ]
    return "\n".join(texts)


def _describe(names: Sequence[str], untold: dict[str, ClientTool]) -> str:
    """Tools as they come to be known, in the form in which Claude Code announces them. It stands where they were found,
    so that all in front of it stays as it was, for the prefix cache; where they are found again, by name alone."""
    lines = []
    for name in names:
        tool = untold.pop(name, None)
        told = (
            {"name": name}
            if tool is None
            else {"description": tool.description, "name": name, "parameters": tool.input_schema}
        )
        lines.append(f"<function>{_to_json(told, 'tools')}</function>")
    return "\n".join(["<functions>", *lines, "</functions>"])


def _to_json(value: object, field: str) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise InvalidRequestError(f"{field} cannot be written as JSON: {error}", field=field) from None
