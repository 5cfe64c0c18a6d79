"""A form of the answer where the model may call tools (LM15): each face tells calls, or the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pydantic
import pytest

from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import generation_pb2
from tests.frontend_svc.api.test_tools import CALL, PARAMETERS, TOOLS, USER
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster

SCHEMA = {
    "type": "object",
    "properties": {"said": {"type": "string"}},
    "required": ["said"],
    "additionalProperties": False,
}
ANSWER = json.dumps({"said": f"I would say {CALL}"})
"""It quotes a call, which makes it none."""
CHAT = {"type": "json_schema", "json_schema": {"name": "said", "schema": SCHEMA, "strict": True}}
OUTPUTS = [(CALL, {"city": "Bonn"}), (ANSWER, json.loads(ANSWER))]
both_outputs = pytest.mark.parametrize(("output", "expected"), OUTPUTS, ids=["call", "answer"])


@pytest.fixture
async def cluster(tokenizer: Tokenizer) -> AsyncIterator[Cluster]:
    """With room for the schemas of several tools."""
    cluster = Cluster(tokenizer.fingerprint, tokenizer.fast.get_vocab_size())
    cluster.model.max_model_len = cluster.model.max_request_tokens = 2000
    await cluster.start()
    yield cluster
    await cluster.stop()


class Said(pydantic.BaseModel):
    said: str


async def form_of(cluster: Cluster) -> str:
    """The grammar that workers were given."""
    payload = generation_pb2.RequestPayload.FromString((await cluster.scheduler.next("submit")).payload)
    return payload.sampling.structured_output.grammar


@both_outputs
async def test_in_chat(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, output: str, expected: Any
) -> None:
    serve_text(cluster, tokenizer, output)
    options: dict[str, Any] = {"model": "toy", "messages": USER, "tools": TOOLS, "response_format": CHAT}
    answer = await sdk.chat.completions.create(**options)
    message = answer.choices[0].message
    calls = [json.loads(call.function.arguments) for call in message.tool_calls or []]
    assert [*calls, *([json.loads(message.content)] if message.content else [])] == [expected]
    assert answer.choices[0].finish_reason == ("tool_calls" if calls else "stop")
    assert "said" in (form := await form_of(cluster)) and "weather" in form
    options["tools"] = [{"type": "function", "function": TOOLS[0]["function"] | {"strict": True}}]
    options["tools"][0]["function"]["parameters"] = PARAMETERS | {"additionalProperties": False}
    async with sdk.chat.completions.stream(**options | {"response_format": Said}) as stream:
        (choice,) = (await stream.get_final_completion()).choices
    if calls:
        assert [call.function.parsed_arguments for call in choice.message.tool_calls or []] == [expected]
    else:
        assert choice.message.parsed == Said(**expected) and not choice.message.tool_calls


@both_outputs
async def test_in_responses(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, output: str, expected: Any
) -> None:
    serve_text(cluster, tokenizer, output)
    function = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
    chosen = {"format": {"type": "json_schema", "name": "said", "schema": SCHEMA, "strict": True}}
    options: dict[str, Any] = {"model": "toy", "input": USER, "tools": [function], "text": chosen}
    whole = await sdk.responses.create(**options)
    async with sdk.responses.stream(**options) as stream:
        streamed = await stream.get_final_response()
    for answer in (whole, streamed):
        (item,) = answer.output
        told = item.arguments if item.type == "function_call" else answer.output_text
        assert json.loads(told) == expected
    assert "said" in (form := await form_of(cluster)) and "weather" in form


@both_outputs
async def test_in_messages(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer, output: str, expected: Any
) -> None:
    serve_text(cluster, tokenizer, output)
    body = {
        "model": "toy",
        "messages": USER,
        "max_tokens": 500,
        "tools": [{"name": "weather", "input_schema": PARAMETERS}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }
    (block,) = (await http.post("/v1/messages", json=body)).json()["content"]
    assert (block["input"] if block["type"] == "tool_use" else json.loads(block["text"])) == expected
    events = (await http.post("/v1/messages", json=body | {"stream": True})).text
    assert ("input_json_delta" in events) == (output is CALL) != ("text_delta" in events)
    assert "said" in (form := await form_of(cluster)) and "weather" in form


@pytest.mark.parametrize(
    "form",
    [{"guided_regex": "a+"}, {"guided_choice": ["a"]}, {"structured_outputs": {"grammar": 'root ::= "a"'}}],
)
async def test_other_forms_are_refused(http: httpx.AsyncClient, form: dict[str, Any]) -> None:
    body = {"model": "toy", "messages": USER, "tools": TOOLS, **form}
    answer = await http.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"].startswith(next(iter(form)))
    assert "tools" in error["message"]


async def test_nothing_is_called_where_no_tool_may_be(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """The form binds alone."""
    serve_text(cluster, tokenizer, ANSWER)
    options: dict[str, Any] = {"messages": USER, "tools": TOOLS, "tool_choice": "none"}
    answer = await sdk.chat.completions.create(model="toy", response_format=CHAT, **options)
    assert answer.choices[0].message.content == ANSWER
    assert "weather" not in await form_of(cluster)


async def test_forced_calls_may_have_schemas_with_references(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """LM9: each into its own definitions, though one form has them all."""
    serve_text(cluster, tokenizer, '[{"name": "g", "arguments": {"at": {"x": 1}}}]')
    tools: list[Any] = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {"at": {"$ref": "#/$defs/At"}},
                    "$defs": {"At": {"type": "object", "properties": {"x": {"type": kind}}}},
                },
            },
        }
        for name, kind in (("f", "string"), ("g", "integer"))
    ]
    answer = await sdk.chat.completions.create(
        model="toy", messages=USER, tools=tools, tool_choice="required"
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function" and json.loads(call.function.arguments) == {"at": {"x": 1}}
