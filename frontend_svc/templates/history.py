"""Builds the messages of a conversation from the smaller parts of which agents' APIs make their histories."""

from __future__ import annotations

import json
from collections.abc import Sequence

import orjson

from frontend_svc.templates.conversation import Plain

_FIRST = ("system", "developer")


class History:
    """Messages so far. What one assistant's turn says, thinks and calls is one message."""

    def __init__(self) -> None:
        self.messages: list[Plain] = []
        self._turn: Plain | None = None
        """The assistant's message that may still grow."""

    def say(self, role: str, texts: Sequence[str]) -> None:
        """A message of anybody but the assistant. Those of the system in front of all others become one, as templates
        take one."""
        self._turn = None
        if role in _FIRST and len(self.messages) == 1 and self.messages[0]["role"] in _FIRST:
            first = self.messages[0]
            first["content"] = "\n\n".join([first["content"], *texts])
            first["role"] = "system"
            return
        joined = "\n\n".join(texts) if role in _FIRST else _content(texts)
        self.messages.append({"role": role, "content": joined})

    def think(self, text: str) -> None:
        """Reasoning, which comes in front of text and calls."""
        turn = self._turn
        if turn is None or turn["content"] is not None or "tool_calls" in turn:
            turn = self._begin()
        turn["reasoning"] = turn.get("reasoning", "") + text

    def speak(self, texts: Sequence[str]) -> None:
        """Text of the assistant, which comes in front of calls."""
        turn = self._turn
        if turn is None or turn["content"] is not None or "tool_calls" in turn:
            turn = self._begin()
        turn["content"] = _content(texts)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """A call of the assistant."""
        turn = self._turn or self._begin()
        function = {"name": name, "arguments": as_object(arguments)}
        turn.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})

    def answer(self, call_id: str, text: str) -> None:
        """What a call has given."""
        self._turn = None
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def end_turn(self) -> None:
        """What the assistant says next is another message."""
        self._turn = None

    def _begin(self) -> Plain:
        self._turn = {"role": "assistant", "content": None}
        self.messages.append(self._turn)
        return self._turn


def as_object(arguments: str) -> str:
    """`arguments` if that is a JSON object, as templates read it: numbers may be NaN or Infinity. What a model wrote
    wrongly or only half is told as one string: a refusal would end the conversation, as it stays in the history."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return arguments or "{}"
    return orjson.dumps({"arguments": arguments}).decode()


def _content(texts: Sequence[str]) -> str | list[Plain]:
    """One text as itself, several as parts."""
    if len(texts) < 2:
        return "".join(texts)
    return [{"type": "text", "text": text} for text in texts]
