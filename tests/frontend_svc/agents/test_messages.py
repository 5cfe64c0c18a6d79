"""The Messages API, as Anthropic's SDK and Claude Code speak it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import httpx
import pytest

from frontend_svc.text.opaque_reasoning import pack_reasoning
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import generation_pb2
from tests.frontend_svc.api.test_tools import CALL, PARAMETERS, prompt_of
from tests.frontend_svc.guarded import KeyRing, Start, http_of
from tests.frontend_svc.helpers import STOP, serve_text
from tests.frontend_svc.scripted_cluster import Cluster, Row

LENGTH = generation_pb2.FINISH_REASON_LENGTH
TOOLS: list[Any] = [{"name": "weather", "input_schema": PARAMETERS}]
USER: list[Any] = [{"role": "user", "content": "hi"}]


def serve_slowly(cluster: Cluster, tokenizer: Tokenizer, text: str) -> None:
    """Answers every request with this text, a character in each step."""
    ids = [token for character in text for token in tokenizer.fast.encode(character).ids]
    cluster.serve(lambda payload: ids, STOP)


async def told(cluster: Cluster, tokenizer: Tokenizer) -> str:
    """The prompt of the next request."""
    return prompt_of(await cluster.scheduler.next("submit"), tokenizer)


async def create(claude: anthropic.AsyncAnthropic, **options: Any) -> Any:
    asked: dict[str, Any] = {"model": "toy", "messages": USER, "max_tokens": 64}
    return await claude.messages.create(**(asked | options))


# ---- text


async def test_a_message(claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer) -> None:
    count = serve_text(cluster, tokenizer, "größe 🚂")
    answer = await create(claude, system="be brief", metadata={"user_id": "u"})
    (block,) = answer.content
    assert (block.type, block.text, answer.stop_reason) == ("text", "größe 🚂", "end_turn")
    assert (answer.role, answer.type, answer.model) == ("assistant", "message", "toy")
    prompt = "<bos><|system|>be brief\n<|user|>hi\n<|assistant|>"
    assert await told(cluster, tokenizer) == prompt
    assert answer.usage.input_tokens == len(tokenizer.fast.encode(prompt).ids)
    assert answer.usage.output_tokens == count


async def test_a_stream_is_the_whole_message(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "größe 🚂")
    asked: Any = {"model": "toy", "messages": USER, "max_tokens": 64}
    async with claude.messages.stream(**asked) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_message()
    assert list(dict.fromkeys(kinds)) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "text",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    whole = await create(claude)
    assert [block.text for block in final.content] == [block.text for block in whole.content]
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", whole.usage.output_tokens)
    assert final.usage.input_tokens == whole.usage.input_tokens


async def test_more_tokens_than_there_is_room_for(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """Claude Code asks for 32000 whatever the model has."""
    serve_text(cluster, tokenizer, "x")
    await create(claude, max_tokens=32_000)
    meta = (await cluster.scheduler.next("submit")).meta
    assert meta.max_tokens == 4096 - meta.num_prompt_tokens


async def test_why_it_stopped(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    cluster.serve(lambda payload: [9], LENGTH)
    assert (await create(claude, max_tokens=1)).stop_reason == "max_tokens"
    serve_text(cluster, tokenizer, "one END two")
    answer = await create(claude, stop_sequences=["END"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "END")
    assert answer.content[0].text == "one "


async def test_a_last_message_of_the_assistant_is_written_on(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "x")
    await create(claude, messages=[*USER, {"role": "assistant", "content": "The answer is"}])
    assert await told(cluster, tokenizer) == "<bos><|user|>hi\n<|assistant|>The answer is"


async def test_counted_tokens_are_those_of_the_prompt(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "x")
    asked: dict[str, Any] = {"system": "be brief", "tools": TOOLS, "messages": USER}
    counted = await claude.messages.count_tokens(model="toy", **asked)
    assert counted.input_tokens == (await create(claude, **asked)).usage.input_tokens


# ---- tools and histories


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"type": "auto"}, CALL),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            '[{"name": "weather", "arguments": {"city": "Bonn"}}]',
        ),
        ({"type": "tool", "name": "weather"}, '{"city": "Bonn"}'),
    ],
)
async def test_a_call(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer, choice: Any, text: str
) -> None:
    """Whole and streamed."""
    serve_slowly(cluster, tokenizer, text)
    answer = await create(claude, tools=TOOLS, tool_choice=choice)
    (call,) = answer.content
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Bonn"})
    assert answer.stop_reason == "tool_use"
    asked: Any = {"model": "toy", "messages": USER, "max_tokens": 64, "tools": TOOLS, "tool_choice": choice}
    async with claude.messages.stream(**asked) as stream:
        kinds = {event.delta.type async for event in stream if event.type == "content_block_delta"}
        final = await stream.get_final_message()
    assert kinds == {"input_json_delta"}
    (streamed,) = final.content
    assert (streamed.type, streamed.input, final.stop_reason) == ("tool_use", {"city": "Bonn"}, "tool_use")


async def test_a_whole_history(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """What we answered is input as it is; results come before what the user says."""
    serve_text(cluster, tokenizer, "Well. " + CALL)
    first = await create(claude, tools=TOOLS)
    await cluster.scheduler.next("submit")
    result = {
        "type": "tool_result",
        "tool_use_id": first.content[-1].id,
        "content": [{"type": "text", "text": "no such city", "cache_control": {"type": "ephemeral"}}],
        "is_error": True,
    }
    history: list[Any] = [
        *USER,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result, {"type": "text", "text": "and now?"}]},
    ]
    await create(claude, tools=TOOLS, messages=history)
    spoken = (await told(cluster, tokenizer)).partition("<|user|>hi\n")[2]
    assert spoken.startswith("<|assistant|>Well.")
    assert '<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>' in spoken
    assert spoken.endswith("<|tool|>Error: no such city\n<|user|>and now?\n<|assistant|>")


async def test_what_claude_code_sends(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """The block that changes with each call would undo the prefix cache: it is left out, as are hosted tools."""
    serve_text(cluster, tokenizer, "x")
    cached = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body: dict[str, Any] = {
        "model": "toy",
        "max_tokens": 32_000,
        "stream": True,
        "system": [
            {
                "type": "text",
                "text": "x-anthropic-billing-header: cc_version=2.0; cc_entrypoint=cli; cch=a1;",
            },
            {"type": "text", "text": "You are Claude Code."} | cached,
        ],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"} | cached]}],
        "tools": [TOOLS[0] | cached, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        "metadata": {"user_id": "user_1"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    headers = {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
        "x-api-key": "none",
    }
    prompts = []
    for mark in ("a1", "b2"):
        body["thinking"]["display"] = {"a1": "updates", "b2": "omitted"}[mark]
        body["system"][0]["text"] = body["system"][0]["text"].replace("a1", mark)
        answer = await http.post("/v1/messages?beta=true", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        assert "web_search_20250305" in answer.headers["x-signalbox-warning"]
        prompts.append(await told(cluster, tokenizer))
    assert prompts[0] == prompts[1]
    assert "<|system|>You are Claude Code.\n" in prompts[0]
    assert (await http.head("/")).status_code == 200


async def test_thoughts_of_the_history(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "x")
    for block in (
        {"type": "thinking", "thinking": "hm", "signature": "EqQBCg=="},
        {"type": "thinking", "thinking": "", "signature": pack_reasoning("hm")},
        {"type": "redacted_thinking", "data": "x"},
    ):
        spoken = {"role": "assistant", "content": [block, {"type": "text", "text": "yes"}]}
        body = {"max_tokens": 5, "messages": [*USER, spoken, *USER]}
        answer = await http.post("/v1/messages", json=body)
        assert answer.status_code == 200, answer.text
        assert "<|assistant|>yes\n<|user|>hi" in await told(cluster, tokenizer)


async def test_tools_that_are_found_later(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """As Claude Code searches for them: the template is not told of them, so that the prefix cache goes on; the place
    where they were found is. Before that they cannot be called."""
    later = [
        {"name": name, "description": name, "input_schema": PARAMETERS, "defer_loading": True}
        for name in "fg"
    ]
    found = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "tool_reference", "tool_name": "f"}],
    }
    history = [
        *USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [found]},
    ]
    serve_text(cluster, tokenizer, CALL.replace("weather", "f"))
    asked = {"max_tokens": 64, "tools": [*TOOLS, *later]}
    for messages, stop in ((USER, "end_turn"), (history, "tool_use")):
        answer = await http.post("/v1/messages", json=asked | {"messages": messages})
        assert (answer.status_code, answer.json()["stop_reason"]) == (200, stop), answer.text
        front, _, spoken = (await told(cluster, tokenizer)).partition("<|user|>")
        assert '"f"' not in front and '"g"' not in front
    assert '<functions>\n<function>{"description":"f","name":"f","parameters":{' in spoken
    assert '"g"' not in spoken


async def test_what_a_tool_gave_and_the_model_cannot_see(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """An image in a result is named, and does not end the conversation; one of the user's is refused."""
    serve_text(cluster, tokenizer, "x")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "a.png"}, image],
    }
    history = [
        *USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [result]},
    ]
    answer = await http.post("/v1/messages", json={"max_tokens": 5, "messages": history, "tools": TOOLS})
    assert answer.status_code == 200, answer.text
    assert "not shown the image" in answer.headers["x-signalbox-warning"]
    assert "<|tool|>a.png\n[image: it cannot be shown here]\n" in await told(cluster, tokenizer)


async def test_json_that_fits_a_schema(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "{}")
    form = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    await create(claude, output_config=form)
    submit = await cluster.scheduler.next("submit")
    sampling = generation_pb2.RequestPayload.FromString(submit.payload).sampling
    assert json.loads(sampling.structured_output.json_schema) == {"type": "object"}


# ---- errors


BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [7]}, "messages[0]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        "messages[0].content[0]",
    ),
    ({"messages": [{"role": "user", "content": [{"type": ["text"]}]}]}, "messages[0].content[0]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]},
        "messages[0].content[0]",
    ),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": None}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": TOOLS * 2}, "tools"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
    ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers"),
    ({"maximum": 1}, "maximum"),
    ({"messages": [{"role": "user", "content": "x " * 9000}]}, "prompt is too long"),
]


async def test_errors_have_anthropics_shape(http: httpx.AsyncClient) -> None:
    for body, named in BAD:
        answer = await http.post("/v1/messages", json={"messages": USER, "max_tokens": 5} | body)
        told = answer.json()
        assert (answer.status_code, told["type"]) == (400, "error"), (body, answer.text)
        assert told["error"]["type"] == "invalid_request_error", answer.text
        assert told["error"]["message"].startswith(named), (body, answer.text)


async def test_the_sdk_knows_our_errors(claude: anthropic.AsyncAnthropic, http: httpx.AsyncClient) -> None:
    with pytest.raises(anthropic.BadRequestError):
        await create(claude, stop_sequences=[""])
    with pytest.raises(anthropic.NotFoundError) as missing:
        await create(claude, model="claude-9")
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.NotFoundError):
        await claude.messages.batches.list()
    answer = await http.get("/v1/messages")
    assert (answer.status_code, answer.json()["type"]) == (405, "error")
    answer = await http.post(
        "/v1/messages", content=b"{" * 200_000, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")


async def test_a_stream_that_fails(claude: anthropic.AsyncAnthropic, cluster: Cluster) -> None:
    answering = asyncio.create_task(create(claude, stream=True))
    ref = (await cluster.scheduler.next("submit")).ref
    cluster.worker.emit(Row(ref.attempt, 0, [9]))
    error = generation_pb2.Error(code="InternalError", message="the model failed")
    cluster.worker.emit(Row(ref.attempt, 1, [9], generation_pb2.FINISH_REASON_ERROR, error))
    with pytest.raises(anthropic.APIStatusError, match="the model failed"):
        async for _ in await answering:
            pass


async def test_keys_as_anthropics_clients_send_them(start: Start, ring: KeyRing) -> None:
    guarded = await start()
    text = ring.keys["acme"].text
    async with http_of(guarded) as http:
        for headers in ({"x-api-key": text}, {"authorization": f"Bearer {text}"}):
            answer = await http.post("/v1/messages", json={"messages": USER}, headers=headers)
            assert answer.status_code == 400, answer.text
        for headers in ({}, {"x-api-key": "sk-ant-1"}):
            answer = await http.post("/v1/messages", json={"messages": USER}, headers=headers)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")


# ---- models


async def test_models_in_anthropics_shape(claude: anthropic.AsyncAnthropic, http: httpx.AsyncClient) -> None:
    """Callers who say its version read it; all others read OpenAI's."""
    page = await claude.models.list()
    assert [(model.id, model.type, model.lifecycle) for model in page.data] == [("toy", "model", "active")]
    assert page.data[0].max_input_tokens and page.data[0].created_at.year > 2000
    assert not page.has_more and (page.first_id, page.last_id) == ("toy", "toy")
    assert [model.id async for model in claude.models.list(limit=1)] == ["toy"]
    assert not (await claude.models.list(after_id="toy")).data
    assert (await claude.models.retrieve("toy")).display_name == "toy"
    with pytest.raises(anthropic.NotFoundError) as caught:
        await claude.models.retrieve("opus")
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index,call-overload]
    with pytest.raises(anthropic.BadRequestError, match="limit"):
        await claude.models.list(limit=0)
    assert (await http.get("/v1/models")).json()["object"] == "list"
    assert (await http.get("/v1/models/toy")).json()["object"] == "model"


async def test_many_tools(claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer) -> None:
    """Claude Code brings those of all its MCP servers."""
    serve_text(cluster, tokenizer, "ok")
    tools: list[Any] = [{"name": f"t{i}", "input_schema": {"type": "object"}} for i in range(300)]
    answer = await create(claude, tools=tools, tool_choice={"type": "none"})
    assert answer.content[0].text == "ok"
