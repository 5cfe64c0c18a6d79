"""Calls through real processes: a grammar has the demo model write them, the openai SDK reads them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import openai
import pytest

from tests.e2e.conftest import RunningRing

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
USER: list[Any] = [{"role": "user", "content": "def read(path):"}]


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
async def test_forced_calls_are_streamed(ring: RunningRing, choice: Any) -> None:
    """LM9: the demo model has no language of calls, and its template no place for tools."""
    async with openai.AsyncOpenAI(base_url=f"{ring.url}/v1", api_key="none", timeout=90) as client:
        arguments, names, reason = "", [], None
        stream = await client.chat.completions.create(
            model="demo",
            messages=USER,
            tools=TOOLS,
            tool_choice=choice,
            parallel_tool_calls=False,
            stream=True,
            max_tokens=400,
        )
        async for chunk in stream:
            (part,) = chunk.choices
            reason = part.finish_reason or reason
            assert not part.delta.content
            for call in part.delta.tool_calls or []:
                assert call.function is not None
                names += [call.function.name] if call.id else []
                arguments += call.function.arguments or ""
    assert (names, reason) == (["weather"], "tool_calls" if choice == "required" else "stop")
    jsonschema.validate(json.loads(arguments), SCHEMA)


async def test_auto_is_refused_where_nobody_knows_how_it_calls(ring: RunningRing) -> None:
    """LM8."""
    async with openai.AsyncOpenAI(base_url=f"{ring.url}/v1", api_key="none", timeout=90) as client:
        with pytest.raises(openai.BadRequestError, match="--tool-parser"):
            await client.chat.completions.create(model="demo", messages=USER, tools=TOOLS)
