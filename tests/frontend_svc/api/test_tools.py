"""Tools over the chat endpoint: what the template is told, what comes back, what is refused."""

from __future__ import annotations

import asyncio
import json
from array import array
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.templates.library import ChatTemplates
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import generation_pb2
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.helpers import STOP, character_ids, serve_text
from tests.frontend_svc.scripted_cluster import Cluster, Row

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
USER: list[Any] = [{"role": "user", "content": "hi"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'


def prompt_of(submit: Any, tokenizer: Tokenizer) -> str:
    payload = generation_pb2.RequestPayload.FromString(submit.payload)
    text: str = tokenizer.fast.decode(array("i", payload.token_ids).tolist(), skip_special_tokens=False)
    return text


async def test_the_template_gets_the_tools(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "x")
    tools: list[Any] = [{"type": "function", "function": {"name": "f"}}]
    messages = [
        *USER,
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    await sdk.chat.completions.create(model="toy", messages=messages, tools=tools, max_tokens=5)
    prompt = prompt_of(await cluster.scheduler.next("submit"), tokenizer)
    assert f"<|tools|>{json.dumps(tools)}" in prompt
    assert '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>' in prompt
    assert "<|tool|>sunny" in prompt


async def test_a_call(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_text(cluster, tokenizer, CALL)
    answer = await sdk.chat.completions.create(model="toy", messages=USER, tools=TOOLS)
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Bonn"})
    assert call.id.startswith("call_")


async def test_a_streamed_call(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    answering = asyncio.create_task(
        sdk.chat.completions.create(model="toy", messages=USER, tools=TOOLS, stream=True)
    )
    ref = (await cluster.scheduler.next("submit")).ref
    ids = character_ids(tokenizer, "well.") + tokenizer.fast.encode(CALL + CALL).ids
    cluster.scheduler.place(ref)
    stream = await answering
    for start, token in enumerate(ids):
        cluster.worker.emit(Row(ref.attempt, start, [token], STOP if start == len(ids) - 1 else 0))
        await asyncio.sleep(0)
    text, calls, reasons = "", {}, []
    async for chunk in stream:
        (choice,) = chunk.choices
        text += choice.delta.content or ""
        reasons.append(choice.finish_reason)
        for call in choice.delta.tool_calls or []:
            assert call.function is not None
            if call.id:
                calls[call.index] = [call.id, call.function.name, ""]
            calls[call.index][2] += call.function.arguments or ""
    assert text == "well."
    assert [(name, json.loads(arguments)) for _, name, arguments in calls.values()] == [
        ("weather", {"city": "Bonn"})
    ] * 2
    assert len({call_id for call_id, _, _ in calls.values()}) == 2
    assert [reason for reason in reasons if reason] == ["tool_calls"]


async def test_no_tools_are_called_when_none_are_wanted(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, CALL)
    answer = await sdk.chat.completions.create(model="toy", messages=USER, tools=TOOLS, tool_choice="none")
    assert (answer.choices[0].message.content, answer.choices[0].message.tool_calls) == (CALL, None)
    assert "<|tools|>" not in prompt_of(await cluster.scheduler.next("submit"), tokenizer)


@pytest.mark.parametrize(
    ("choice", "text", "reason"),
    [
        ("required", '[{"name": "weather", "arguments": {"city": "Bonn"}}]', "tool_calls"),
        ({"type": "function", "function": {"name": "weather"}}, '{"city": "Bonn"}', "stop"),
    ],
)
async def test_forced_calls_follow_a_schema(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, choice: Any, text: str, reason: str
) -> None:
    serve_text(cluster, tokenizer, text)
    answer = await sdk.chat.completions.create(model="toy", messages=USER, tools=TOOLS, tool_choice=choice)
    assert answer.choices[0].finish_reason == reason
    assert answer.choices[0].message.tool_calls is not None
    (call,) = answer.choices[0].message.tool_calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Bonn"}')
    submit = await cluster.scheduler.next("submit")
    form = generation_pb2.RequestPayload.FromString(submit.payload).sampling.structured_output
    assert submit.meta.has_grammar
    schema = json.loads(form.json_schema)
    wanted = PARAMETERS | {"additionalProperties": False}  # LM9: a function takes what it declares
    assert schema == wanted or schema["items"]["anyOf"][0]["properties"]["arguments"] == wanted


@pytest.mark.parametrize(
    "more",
    [{"additionalProperties": True}, {"patternProperties": {"^x": {}}}, {"anyOf": [{"required": ["day"]}]}],
)
async def test_a_schema_that_speaks_of_other_parameters_is_left_as_it_is(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, more: dict[str, Any]
) -> None:
    """LM9: only where nothing is said of them, a forced call has no parameters that are not declared."""
    serve_text(cluster, tokenizer, "{}")
    parameters = {"type": "object", "properties": {}} | more
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    await sdk.chat.completions.create(model="toy", messages=USER, tools=tools, tool_choice=choice)
    submit = await cluster.scheduler.next("submit")
    form = generation_pb2.RequestPayload.FromString(submit.payload).sampling.structured_output
    assert json.loads(form.json_schema) == parameters


BAD: list[tuple[dict[str, Any], str]] = [
    ({"tools": TOOLS * 2}, "tools"),
    ({"tools": TOOLS * 129}, "tools"),
    (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
        "tool_choice.function.name",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
    (
        {
            "tools": TOOLS,
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        },
        "tool_choice.allowed_tools.tools",
    ),
    (
        {"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}},
        "response_format",
    ),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"functions": [{"name": "f"}]}, "functions"),
    (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}],
                }
            ]
        },
        "messages[0].tool_calls[0].function.arguments",
    ),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": "x",
                    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
                }
            ]
        },
        "messages[0].tool_calls",
    ),
]


async def test_what_does_not_fit_is_refused_by_name(http: httpx.AsyncClient) -> None:
    for body, param in BAD:
        answer = await http.post("/v1/chat/completions", json={"model": "toy", "messages": USER} | body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), (body, answer.text)


async def test_a_template_without_a_place_for_tools(
    http: httpx.AsyncClient, frontend: Frontend, monkeypatch: pytest.MonkeyPatch, model_directory: Path
) -> None:
    bare = ChatTemplates({"default": "{% for m in messages %}{{ m['content'] }}{% endfor %}"}, {})
    monkeypatch.setattr(frontend.prompts, "templates", bare)
    body = {"model": "toy", "messages": USER, "tools": TOOLS}
    answer = await http.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")


async def test_forced_calls_need_no_place_for_tools(
    sdk: openai.AsyncOpenAI,
    cluster: Cluster,
    tokenizer: Tokenizer,
    frontend: Frontend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LM9: the functions are told in the system's turn, or in the user's where there is no other."""
    weather: Any = {"type": "function", "function": {"name": "weather"}}
    serve_text(cluster, tokenizer, '[{"name": "weather", "arguments": {"city": "Bonn"}}]')
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
    for first, role in (("", "system"), (refusing, "user")):
        source = first + "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
        monkeypatch.setattr(frontend.prompts, "templates", ChatTemplates({"default": source}, {}))
        answer = await sdk.chat.completions.create(
            model="toy", messages=USER, tools=[weather], tool_choice="required"
        )
        assert answer.choices[0].message.tool_calls
        prompt = prompt_of(await cluster.scheduler.next("submit"), tokenizer)
        assert prompt.startswith(f"<{role}>") and '"name":"weather"' in prompt


async def test_one_call_where_several_are_not_wanted(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """LM10: the output ends with the beginning of a second call."""
    serve_text(cluster, tokenizer, f"well.\n{CALL}\n{CALL}\nmore")
    answer = await sdk.chat.completions.create(
        model="toy", messages=USER, tools=TOOLS, parallel_tool_calls=False
    )
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "well.")
    assert len(choice.message.tool_calls or []) == 1


async def test_only_allowed_tools_are_called(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """LM6: of the others what looks like a call is text; the model is told of all."""
    serve_text(cluster, tokenizer, CALL)
    weather: Any = {"type": "function", "function": {"name": "weather"}}
    other: Any = {"type": "function", "function": {"name": "f"}}
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [other]}}
    answer = await sdk.chat.completions.create(
        model="toy", messages=USER, tools=[weather, other], tool_choice=choice
    )
    assert (answer.choices[0].message.content, answer.choices[0].message.tool_calls) == (CALL, None)
    assert '"weather"' in prompt_of(await cluster.scheduler.next("submit"), tokenizer)


async def test_auto_needs_to_know_how_the_model_calls(start: Start) -> None:
    """LM8."""
    frontend = await start(tool_parser="none", key_file=None)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}", timeout=5) as http:
        body = {"model": "toy", "messages": USER, "tools": TOOLS}
        answer = await http.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "tool_choice") and "--tool-parser" in error[
        "message"
    ]
