"""The Responses API: items in, items out, as OpenAI's SDK reads them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from frontend_svc.text.opaque_reasoning import pack_reasoning, unpack_reasoning
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import generation_pb2
from tests.frontend_svc.api.test_tools import CALL, PARAMETERS, prompt_of
from tests.frontend_svc.helpers import STOP, serve_text
from tests.frontend_svc.scripted_cluster import Cluster, Row

LENGTH = generation_pb2.FINISH_REASON_LENGTH
TOOLS: list[Any] = [{"type": "function", "name": "weather", "parameters": PARAMETERS}]
JSON_TEXT = {"format": {"type": "json_object"}}


# ---- text


async def test_a_response(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    count = serve_text(cluster, tokenizer, "größe 🚂")
    answer = await sdk.responses.create(
        model="toy", instructions="be brief", input="hi", metadata={"k": "v"}, store=False
    )
    assert (answer.output_text, answer.status, answer.metadata) == ("größe 🚂", "completed", {"k": "v"})
    assert answer.usage is not None
    assert answer.usage.output_tokens == count
    submit = await cluster.scheduler.next("submit")
    prompt = "<bos><|system|>be brief\n<|user|>hi\n<|assistant|>"
    assert submit.meta.num_prompt_tokens == len(tokenizer.fast.encode(prompt).ids)
    assert answer.usage.input_tokens == submit.meta.num_prompt_tokens


async def test_a_response_that_was_cut(http: httpx.AsyncClient, cluster: Cluster) -> None:
    cluster.serve(lambda payload: [9], LENGTH)
    body = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}
    answer = (await http.post("/v1/responses", json=body | {"max_output_tokens": 1})).json()
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


async def test_a_streamed_response(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_text(cluster, tokenizer, "größe 🚂")
    async with sdk.responses.stream(model="toy", input="hi") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "größe 🚂"
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_a_streamed_response_that_fails(sdk: openai.AsyncOpenAI, cluster: Cluster) -> None:
    answering = asyncio.create_task(sdk.responses.create(model="toy", input="hi", stream=True))
    ref = (await cluster.scheduler.next("submit")).ref
    error = generation_pb2.Error(code="InternalError", message="the model failed")
    cluster.worker.emit(Row(ref.attempt, 0, [9], generation_pb2.FINISH_REASON_ERROR, error))
    events = [event async for event in await answering]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.message == "the model failed"


async def test_a_response_with_a_schema(http: httpx.AsyncClient, cluster: Cluster) -> None:
    cluster.serve(lambda payload: [9])
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
    answer = await http.post("/v1/responses", json={"input": "hi", "text": {"format": form}})
    assert answer.json()["text"]["format"] == form
    submit = await cluster.scheduler.next("submit")
    payload = generation_pb2.RequestPayload.FromString(submit.payload)
    assert json.loads(payload.sampling.structured_output.json_schema) == {"type": "object"}


BAD_RESPONSES: list[tuple[dict[str, Any], str]] = [
    ({"input": ""}, "input"),
    ({"input": []}, "input"),
    ({}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "function_call_output"}]}, "input[0].call_id"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
    ({"input": [7]}, "input[0]"),
    ({"input": [{"type": ["message"]}]}, "input[0]"),
    ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input"),
    ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
    ({"input": "x", "store": True}, "store"),
    ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
    ({"input": "x", "tools": TOOLS * 2}, "tools"),
    ({"input": "x", "tools": TOOLS, "tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
    ({"input": "x", "tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ({"input": "x", "tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ({"input": "x", "tools": TOOLS, "tool_choice": "required", "text": JSON_TEXT}, "text.format"),
    ({"input": "x", "reasoning": {"effort": "low"}}, "reasoning.effort"),
    ({"input": "x", "include": ["message.output_text.logprobs"]}, "include"),
    ({"input": "x", "background": True}, "background"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
    ({"input": "x", "temperature": 101}, "temperature"),
    ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format"),
    ({"input": "x", "text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
    ({"input": "x", "n": 2}, "n"),
]


async def test_bad_responses_name_their_field(http: httpx.AsyncClient) -> None:
    for body, param in BAD_RESPONSES:
        answer = await http.post("/v1/responses", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), (body, answer.text)


# ---- tools


def serve_slowly(cluster: Cluster, tokenizer: Tokenizer, text: str) -> None:
    """Answers every request with this text, a character in each step."""
    ids = [token for character in text for token in tokenizer.fast.encode(character).ids]
    cluster.serve(lambda payload: ids, STOP)


async def told(cluster: Cluster, tokenizer: Tokenizer) -> str:
    """The prompt of the next request."""
    return prompt_of(await cluster.scheduler.next("submit"), tokenizer)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("auto", CALL),
        ("required", '[{"name": "weather", "arguments": {"city": "Bonn"}}]'),
        ({"type": "function", "name": "weather"}, '{"city": "Bonn"}'),
        (
            {"type": "allowed_tools", "mode": "required", "tools": TOOLS},
            '[{"name": "weather", "arguments": {"city": "Bonn"}}]',
        ),
    ],
)
async def test_a_call(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, choice: Any, text: str
) -> None:
    serve_text(cluster, tokenizer, text)
    answer = await sdk.responses.create(model="toy", input="hi", tools=TOOLS, tool_choice=choice)
    (call,) = answer.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments), call.status) == ("weather", {"city": "Bonn"}, "completed")
    assert call.call_id and call.id
    assert answer.status == "completed"


async def test_a_streamed_call(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_slowly(cluster, tokenizer, "Well. " + CALL.replace("\n", ""))
    async with sdk.responses.stream(model="toy", input="hi", tools=TOOLS) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    kinds = [event.type for event in events]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert list(dict.fromkeys(kinds)) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.completed",
    ]
    arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    assert json.loads(arguments) == {"city": "Bonn"}
    message, call = final.output
    assert final.output_text.strip() == "Well."
    assert (message.type, call.type) == ("message", "function_call")
    items = [e.item.id for e in events if e.type == "response.output_item.done"]
    assert items == [message.id, call.id]


async def test_a_whole_history_comes_back(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """What we answered is input as it is."""
    serve_text(cluster, tokenizer, "Well. " + CALL)
    first = await sdk.responses.create(model="toy", input="hi", tools=TOOLS)
    await cluster.scheduler.next("submit")
    call = first.output[-1]
    assert call.type == "function_call"
    history: list[Any] = [
        {"role": "user", "content": "hi"},
        *[item.model_dump() for item in first.output],
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    await sdk.responses.create(model="toy", input=history, tools=TOOLS)
    prompt = await told(cluster, tokenizer)
    spoken = prompt.partition("<|user|>hi\n")[2]
    assert spoken.startswith("<|assistant|>Well.")
    assert '<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>' in spoken
    assert spoken.endswith("<|tool|>sunny\n<|assistant|>")
    assert spoken.count("<|assistant|>") == 2, "text and call are one turn"


async def test_instructions_and_developer_are_one_message(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """Codex sends both; many templates take one message of the system, and only in front."""
    serve_text(cluster, tokenizer, "x")
    given: list[Any] = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "B"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]
    await sdk.responses.create(model="toy", instructions="A", input=given)
    assert await told(cluster, tokenizer) == "<bos><|system|>A\n\nB\n<|user|>hi\n<|assistant|>"


async def test_tools_as_codex_sends_them(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """A namespace is flattened and told back as one; free text goes through one argument; what OpenAI runs is left
    out, which a header tells."""
    text = (
        '[{"name": "mcp__files__read", "arguments": {"city": "a"}}, '
        '{"name": "apply_patch", "arguments": {"input": "*** x"}}]'
    )
    serve_text(cluster, tokenizer, text)
    namespace = {
        "type": "namespace",
        "name": "mcp__files__",
        "description": "files",
        "tools": [TOOLS[0] | {"name": "read"}],
    }
    custom = {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
    }
    body = {
        "model": "toy",
        "input": "hi",
        "tools": [namespace, custom, {"type": "web_search", "external_web_access": False}],
        "tool_choice": "required",
        "parallel_tool_calls": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"x-codex-installation-id": "1"},
        "reasoning": None,
    }
    answer = await http.post("/v1/responses", json=body)
    read, patch = answer.json()["output"]
    assert (read["type"], read["name"], read["namespace"]) == ("function_call", "read", "mcp__files__")
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", "*** x")
    assert "web_search" in answer.headers["x-signalbox-warning"]
    prompt = await told(cluster, tokenizer)
    assert "start: /.+/" in prompt
    assert "web_search" not in prompt
    output = {"type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "done"}
    again = body | {"input": [{"role": "user", "content": "hi"}, read, patch, output], "tool_choice": "auto"}
    assert (await http.post("/v1/responses", json=again)).status_code == 200
    spoken = await told(cluster, tokenizer)
    assert '{"name": "mcp__files__read", "arguments": {"city": "a"}}' in spoken
    assert '{"name": "apply_patch", "arguments": {"input": "*** x"}}' in spoken


async def test_a_streamed_custom_call(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_slowly(cluster, tokenizer, '{"input": "ls -l"}')
    tools: list[Any] = [{"type": "custom", "name": "shell"}]
    stream = await sdk.responses.create(
        model="toy", input="hi", tools=tools, tool_choice={"type": "custom", "name": "shell"}, stream=True
    )
    events = [event async for event in stream]
    inputs = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert inputs == ["ls -l"]
    (done,) = [event for event in events if event.type == "response.output_item.done"]
    assert (done.item.type, done.item.input) == ("custom_tool_call", "ls -l")


async def test_an_image_that_a_tool_gave(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """As Codex looks at files: it is named, and does not end the conversation."""
    serve_text(cluster, tokenizer, "x")
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "high"}
    given = [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [image]},
    ]
    answer = await http.post("/v1/responses", json={"input": given, "tools": TOOLS})
    assert answer.status_code == 200, answer.text
    assert "not shown the image" in answer.headers["x-signalbox-warning"]
    assert "<|tool|>[image: it cannot be shown here]\n" in await told(cluster, tokenizer)
    refused = await http.post("/v1/responses", json={"input": [{"role": "user", "content": [image]}]})
    assert refused.status_code == 400


async def test_a_call_that_was_cut_and_its_history(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """Half of a call is told as it is, and does not end the conversation."""
    ids = tokenizer.fast.encode('{"city": "Bo').ids
    cluster.serve(lambda payload: ids, LENGTH)
    body = {
        "model": "toy",
        "input": "hi",
        "tools": TOOLS,
        "tool_choice": {"type": "function", "name": "weather"},
    }
    answer = (await http.post("/v1/responses", json=body)).json()
    assert (answer["status"], answer["output"][0]["status"]) == ("incomplete", "incomplete")
    await cluster.scheduler.next("submit")
    again = await http.post(
        "/v1/responses", json={"input": [{"role": "user", "content": "hi"}, *answer["output"]]}
    )
    assert again.status_code == 200, again.text
    told_call = (await told(cluster, tokenizer)).partition("<tool_call>")[2].partition("</tool_call>")[0]
    assert json.loads(told_call)["arguments"] == {"arguments": '{"city": "Bo'}


async def test_reasoning_of_the_history(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """As content, or in the form that clients carry unread; what another server has sealed is nothing to us."""
    serve_text(cluster, tokenizer, "x")
    for reasoning in (
        {"content": [{"type": "reasoning_text", "text": "hm"}]},
        {"content": None, "encrypted_content": pack_reasoning("hm")},
        {"encrypted_content": "gAAAAA=="},
    ):
        item = {"type": "reasoning", "id": "rs_1", "summary": []} | reasoning
        given = [
            {"role": "user", "content": "hi"},
            item,
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "so"},
        ]
        answer = await http.post("/v1/responses", json={"input": given})
        assert answer.status_code == 200, answer.text
        assert "<|assistant|>yes\n<|user|>so" in await told(cluster, tokenizer)


def test_reasoning_that_clients_carry() -> None:
    assert unpack_reasoning(pack_reasoning("größe 🚂")) == "größe 🚂"
    for wrong in ("", "x", "signalbox1.", "signalbox1.!", "signalbox1.AA", "signalbox1._w=="):
        assert unpack_reasoning(wrong) == ""


async def test_huge_inputs_are_refused(http: httpx.AsyncClient) -> None:
    items = [{"role": "user", "content": "x"}] * 2000
    answer = await http.post("/v1/responses", json={"input": items * 10})
    assert answer.status_code == 413


async def test_vllms_fields_beside_openais(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """They reach the worker, and the text."""
    ids = tokenizer.fast.encode("<bos>oneENDtwo").ids
    cluster.serve(lambda payload: ids, STOP)
    body = {"model": "toy", "input": "hi", "top_k": 5, "seed": 7, "repetition_penalty": 1.5, "priority": 3}
    body |= {"logit_bias": {"7": -100}, "ignore_eos": True, "stop": "END", "allowed_token_ids": [1, 2]}
    body |= {"skip_special_tokens": False, "include_stop_str_in_output": True, "request_id": "mine"}
    answer = (await http.post("/v1/responses", json=body)).json()
    assert answer["id"] == "mine"
    assert answer["output"][0]["content"][0]["text"] == "<bos>oneEND"
    submit = await cluster.scheduler.next("submit")
    sampling = generation_pb2.RequestPayload.FromString(submit.payload).sampling
    assert (sampling.top_k, sampling.seed, sampling.ignore_eos) == (5, 7, True)
    assert (dict(sampling.logit_bias), list(sampling.allowed_token_ids)) == ({7: -100}, [1, 2])
    for field, value in (("use_beam_search", True), ("previous_response", {}), ("logprob_token_ids", [1])):
        refused = await http.post("/v1/responses", json={"model": "toy", "input": "hi", field: value})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
    both = {"text": {"format": {"type": "json_object"}}, "structured_outputs": {"regex": "a+"}}
    assert (await http.post("/v1/responses", json={"input": "hi"} | both)).status_code == 400
