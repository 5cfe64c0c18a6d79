"""Reasoning on the faces that agents speak with: told apart, streamed, counted, and taken back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.switches import fit_variables
from frontend_svc.text.opaque_reasoning import pack_reasoning
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.api.test_reasoning import CALL, THOUGHT
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.helpers import STOP
from tests.frontend_svc.scripted_cluster import Cluster

OUTPUT = f"<think>\n{THOUGHT}\n</think>\n\nwell.\n{CALL}"
FUNCTIONS: list[Any] = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
TOOLS: list[Any] = [{"name": "weather", "input_schema": {"type": "object"}}]
ASKED: dict[str, Any] = {
    "model": "toy",
    "max_tokens": 200,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": TOOLS,
}


@pytest.fixture
async def frontend(start: Start) -> Frontend:
    """It knows how the model reasons."""
    return await start(reasoning_parser="qwen3", key_file=None)


@pytest.fixture(autouse=True)
async def served(frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer) -> AsyncIterator[None]:
    """Every request is answered with a thought, text and a call, a character in each step."""
    ids = [token for character in OUTPUT for token in tokenizer.fast.encode(character).ids]
    cluster.serve(lambda payload: ids, STOP)
    yield


async def test_a_response(sdk: openai.AsyncOpenAI) -> None:
    """LM1, LM7: whole and streamed, with the form that clients carry unread where they want it."""
    asked: dict[str, Any] = {"model": "toy", "input": "hi", "tools": FUNCTIONS}
    answer = await sdk.responses.create(**asked, include=["reasoning.encrypted_content"])
    thought, message, call = answer.output
    assert thought.type == "reasoning" and thought.content is not None
    assert [part.text for part in thought.content] == [THOUGHT]
    assert thought.encrypted_content == pack_reasoning(THOUGHT)
    assert (message.type, answer.output_text, call.type) == ("message", "well.", "function_call")
    assert answer.usage is not None
    assert 0 < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens
    async with sdk.responses.stream(**asked) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    told = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert told == THOUGHT
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output[0].encrypted_content is None  # type: ignore[union-attr]
    done = [event.type for event in events if event.type.startswith("response.reasoning_text.d")]
    assert done[-1] == "response.reasoning_text.done"


async def test_a_message(claude: anthropic.AsyncAnthropic) -> None:
    """LM1, LM7: whole and streamed."""
    answer = await claude.messages.create(**ASKED, stop_sequences=["STOP"])
    thought, text, call = answer.content
    assert (thought.type, thought.thinking) == ("thinking", THOUGHT)  # type: ignore[union-attr]
    assert (text.text, call.name, answer.stop_reason) == ("well.", "weather", "tool_use")  # type: ignore[union-attr]
    assert answer.usage.output_tokens_details is not None
    assert 0 < answer.usage.output_tokens_details.thinking_tokens < answer.usage.output_tokens
    async with claude.messages.stream(**ASKED) as stream:
        kinds = [event.delta.type async for event in stream if event.type == "content_block_delta"]
        final = await stream.get_final_message()
    assert list(dict.fromkeys(kinds)) == [
        "thinking_delta",
        "signature_delta",
        "text_delta",
        "input_json_delta",
    ]
    assert final.content[0].thinking == THOUGHT  # type: ignore[union-attr]
    assert final.content[0].signature == thought.signature  # type: ignore[union-attr]
    assert final.content[2].input == {"city": "Bonn"}  # type: ignore[union-attr]
    history: list[Any] = [
        *ASKED["messages"],
        {"role": "assistant", "content": final.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sun"}]},  # type: ignore[union-attr]
    ]
    assert (await claude.messages.create(**ASKED | {"messages": history})).content


async def test_thoughts_that_are_not_to_be_told(claude: anthropic.AsyncAnthropic) -> None:
    """LM1: omitted ones leave the signature, and those of a model that was to think nothing leave no trace."""
    omitted = await claude.messages.create(**ASKED, thinking={"type": "adaptive", "display": "omitted"})
    thought = omitted.content[0]
    assert (thought.thinking, thought.signature) == ("", pack_reasoning(THOUGHT))  # type: ignore[union-attr]
    disabled = await claude.messages.create(**ASKED, thinking={"type": "disabled"})
    assert [block.type for block in disabled.content] == ["text", "tool_use"]
    async with claude.messages.stream(**ASKED, thinking={"type": "disabled"}) as stream:
        final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert json.loads(CALL.partition(">")[2].partition("<")[0])["arguments"] == final.content[1].input  # type: ignore[union-attr]


def test_wishes_reach_templates_that_know_them() -> None:
    """LM1: a switch is known by either name, and a template without one hears nothing."""
    wishes = {"enable_thinking": False, "reasoning_effort": "high"}
    conversation = Conversation([], wishes=wishes)
    assert fit_variables(conversation, {"thinking"}) == {"thinking": False}
    assert fit_variables(conversation, {"reasoning_effort"}) == {"reasoning_effort": "high"}
    assert fit_variables(conversation, set()) == {}
