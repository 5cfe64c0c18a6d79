"""What agents' SDKs do with a whole ring: OpenAI's responses and Anthropic's messages, with calls that are forced, as
the demo model knows of no tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.contract.test_openai_sdk import PROMPT, SCHEMA, assert_empty
from tests.e2e.conftest import RunningRing, StartRing
from tests.e2e.test_ring import openai_client

FUNCTIONS: list[Any] = [{"type": "function", "name": "switch", "parameters": SCHEMA}]
TOOLS: list[Any] = [{"name": "switch", "description": "Switches it.", "input_schema": SCHEMA}]
USER: list[Any] = [{"role": "user", "content": PROMPT}]


@pytest.fixture
def ring(start_ring: StartRing) -> RunningRing:
    return start_ring()


@pytest.fixture
def sdk(ring: RunningRing) -> Iterator[openai.OpenAI]:
    with openai_client(ring) as client:
        yield client


@pytest.fixture
def claude(ring: RunningRing) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=ring.url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def ask(claude: anthropic.Anthropic, **options: Any) -> Any:
    return claude.messages.create(**({"model": "demo", "messages": USER, "max_tokens": 12} | options))


# ---- messages


def test_a_streamed_message_is_the_whole_one(claude: anthropic.Anthropic) -> None:
    greedy: Any = {"extra_body": {"temperature": 0}}
    whole = ask(claude, system="x", **greedy)
    with claude.messages.stream(model="demo", system="x", messages=USER, max_tokens=12, **greedy) as stream:
        final = stream.get_final_message()
    assert [block.text for block in final.content] == [block.text for block in whole.content]  # type: ignore[union-attr]
    assert (final.stop_reason, whole.stop_reason) == ("max_tokens", "max_tokens")
    assert whole.usage.output_tokens == final.usage.output_tokens == 12
    counted = claude.messages.count_tokens(model="demo", system="x", messages=USER)
    read = whole.usage.cache_read_input_tokens or 0
    assert counted.input_tokens == whole.usage.input_tokens + read


def test_a_loop_of_forced_calls(claude: anthropic.Anthropic) -> None:
    """A call, its result, and the next call: each is well formed."""
    messages: list[Any] = list(USER)
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "switch"}):
        answer = ask(claude, messages=messages, tools=TOOLS, tool_choice=choice, max_tokens=200)
        (call,) = answer.content
        assert (call.type, call.name, answer.stop_reason) == ("tool_use", "switch", "tool_use")
        assert isinstance(call.input["ok"], bool)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "done"}
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    with claude.messages.stream(
        model="demo", messages=messages, tools=TOOLS, tool_choice={"type": "any"}, max_tokens=200
    ) as stream:
        final = stream.get_final_message()
    assert all(block.type == "tool_use" for block in final.content)


def test_more_tokens_than_fit_are_cut_and_errors_are_anthropics(
    claude: anthropic.Anthropic, ring: RunningRing
) -> None:
    answer = ask(claude, max_tokens=1_000_000, stop_sequences=["\n"])
    assert answer.stop_reason in ("stop_sequence", "end_turn", "max_tokens")
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        ask(claude, messages=[{"role": "user", "content": "x " * 20_000}])
    with pytest.raises(anthropic.NotFoundError):
        ask(claude, model="claude-9")
    with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
        ask(claude, tools=TOOLS)
    assert httpx.head(ring.url).status_code == 200


def test_a_message_that_is_left(claude: anthropic.Anthropic, ring: RunningRing) -> None:
    with claude.messages.stream(model="demo", messages=USER, max_tokens=1000) as stream:
        next(iter(stream))
    assert_empty(ring)


# ---- responses


def test_a_loop_of_forced_responses(sdk: openai.OpenAI) -> None:
    """The output is the next input as it is, streamed or not."""
    history: list[Any] = [{"role": "developer", "content": "be brief"}, *USER]
    for choice in ("required", {"type": "function", "name": "switch"}):
        answer = sdk.responses.create(
            model="demo",
            input=history,
            tools=FUNCTIONS,
            tool_choice=choice,  # type: ignore[arg-type]
            parallel_tool_calls=False,
            max_output_tokens=200,
            store=False,
            include=["reasoning.encrypted_content"],
        )
        (call,) = answer.output
        assert call.type == "function_call"
        assert isinstance(json.loads(call.arguments)["ok"], bool)
        history += answer.output
        history.append({"type": "function_call_output", "call_id": call.call_id, "output": "done"})
    with sdk.responses.stream(
        model="demo", input=history, tools=FUNCTIONS, tool_choice="required", parallel_tool_calls=False
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    assert [item.type for item in final.output] == ["function_call"]


def test_errors_of_responses_name_their_field(sdk: openai.OpenAI) -> None:
    for options, param in (
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"tools": FUNCTIONS}, "tool_choice"),
        ({"max_output_tokens": 1_000_000}, "max_output_tokens"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            sdk.responses.create(**({"model": "demo", "input": PROMPT} | options))  # type: ignore[arg-type]
        assert caught.value.param == param
