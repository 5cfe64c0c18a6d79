"""Bodies as agents send them, a few values of each replaced by odd ones, left out or doubled."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.contract.fuzz_inputs import ODD

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
ARGUMENTS = '{"a": "x"}'
FUNCTION = {"name": "f", "description": "does", "parameters": SCHEMA, "strict": False}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "you"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "hm",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning_effort": "low",
    "max_tokens": 20,
    "stream": True,
    "stream_options": {"include_usage": True},
    "stop": ["zz"],
}
RESPONSES: dict[str, Any] = {
    "instructions": "be brief",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "message", "role": "user", "content": "hi"},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": ARGUMENTS, "id": "i"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "b"}]},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "done"},
    ],
    "tools": [
        {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False},
        {
            "type": "custom",
            "name": "g",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
        },
        {
            "type": "namespace",
            "name": "n",
            "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        },
        {"type": "web_search", "external_web_access": True},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "include": ["reasoning.encrypted_content"],
    "store": False,
    "max_output_tokens": 20,
    "stream": True,
}
MESSAGES: dict[str, Any] = {
    "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "system", "content": "late"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "well"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "is_error": True,
                    "content": [
                        {"type": "tool_reference", "tool_name": "g"},
                        {"type": "image", "source": {}},
                    ],
                }
            ],
        },
    ],
    "tools": [
        {"name": "f", "description": "does", "input_schema": SCHEMA},
        {"name": "g", "input_schema": SCHEMA, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "thinking": {"type": "adaptive", "display": "omitted"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": []},
    "stop_sequences": ["zz"],
    "max_tokens": 20,
    "stream": True,
}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": {
        name: MESSAGES[name] for name in ("system", "messages", "tools", "thinking")
    },
}
CHOICES: dict[str, list[Any]] = {
    "/v1/chat/completions": ["none", "auto", "required", {"type": "function", "function": {"name": "f"}}],
    "/v1/responses": [
        "none",
        "auto",
        "required",
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "g"},
    ],
    "/v1/messages": [{"type": kind} for kind in ("none", "auto", "any")] + [{"type": "tool", "name": "f"}],
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in `value`, with each key or index in it."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


@st.composite
def agent_requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """Path and body; one of four is as it should be."""
    path = draw(st.sampled_from(list(BODIES)))
    body = copy.deepcopy(BODIES[path])
    if path in CHOICES:
        body["tool_choice"] = copy.deepcopy(draw(st.sampled_from(CHOICES[path])))
        body["stream"] = draw(st.booleans())
    for _ in range(draw(st.integers(0, 3))):
        holder, key = draw(st.sampled_from(list(places(body))))
        match draw(st.sampled_from(["odd", "gone", "null", "twice"])):
            case "odd":
                holder[key] = draw(ODD)
            case "null":
                holder[key] = None
            case "twice" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case _:
                del holder[key]
    return path, json.dumps(body).encode()
