"""Conversations as agents keep them, drawn from a seed: turns, tools, calls, reasoning, nulls, parts, odd text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

TEXTS = (
    "hello", "What is 2 + 2?", "  spaces around  ", "two\nlines", "größe 🚂 東京", "<b>&\"quotes\"'</b>",
    "{% raw %} {{ x }}", "a </think> in the middle", "\n\nends\n", "[1, 2]", '{"a": 1}', "x",
)  # fmt: skip
NAMES = ("get_weather", "search", "run")
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {}},
    {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Where <it> is"}},
        "required": ["city"],
    },
    {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "description": "how many", "default": 3},
            "kind": {"type": "string", "enum": ["a", "b"], "description": "of what"},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "ümlaute"},
        },
        "required": ["n", "kind"],
        "additionalProperties": False,
    },
)
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"city": "Zürich"},
    {"n": 3, "kind": "a", "tags": ["x", "<y>"]},
    {"deep": {"list": [1, 2.5, None, True], "text": 'say "hi"\n'}},
)


@dataclass
class Drawn:
    """One conversation, as a client would send it."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    variables: dict[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True


def draw_conversation(random: Random) -> Drawn:
    """Of one to about ten messages."""
    tools = [_tool(random, name) for name in NAMES[: random.randint(1, 3)]] if random.random() < 0.6 else []
    messages = []
    if random.random() < 0.5:
        messages.append({"role": "system", "content": _content(random)})
    for turn in range(random.randint(1, 3)):
        messages.append({"role": "user", "content": _content(random)})
        if tools and random.random() < 0.6:
            messages += _calling(random, turn)
        if turn < 2 and random.random() < 0.8:
            messages.append(_answer(random))
    if messages[-1]["role"] == "assistant" and random.random() < 0.7:
        messages.append({"role": "user", "content": _content(random)})
    variables: dict[str, Any] = {}
    if random.random() < 0.3:
        variables["enable_thinking"] = random.random() < 0.5
    if random.random() < 0.2:
        variables["reasoning_effort"] = random.choice(["low", "medium", "high"])
    return Drawn(messages, tools, variables, random.random() < 0.9)


def _content(random: Random) -> Any:
    if random.random() < 0.7:
        return random.choice(TEXTS)
    return [{"type": "text", "text": random.choice(TEXTS)} for _ in range(random.randint(1, 3))]


def _answer(random: Random) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": _content(random)}
    if random.random() < 0.4:
        message["reasoning"] = random.choice(TEXTS)
    return message


def _calling(random: Random, turn: int) -> list[dict[str, Any]]:
    """A message with calls, and what they gave."""
    calls = []
    for number in range(random.choice([1, 1, 2])):
        arguments = json.dumps(random.choice(ARGUMENTS), ensure_ascii=False)
        function = {"name": random.choice(NAMES), "arguments": arguments}
        calls.append({"id": f"call{turn:03}{number:02}", "type": "function", "function": function})
    message: dict[str, Any] = {"role": "assistant", "content": random.choice([None, None, "", "I look."])}
    message["tool_calls"] = calls
    if random.random() < 0.4:
        message["reasoning"] = random.choice(TEXTS)
    return [
        message,
        *(
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "name": call["function"]["name"],
                "content": random.choice(TEXTS),
            }
            for call in calls
        ),
    ]


def _tool(random: Random, name: str) -> dict[str, Any]:
    function = {"name": name, "description": random.choice(TEXTS), "parameters": random.choice(SCHEMAS)}
    return {"type": "function", "function": function}
