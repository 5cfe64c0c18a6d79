"""Reasoning over the chat endpoint: told apart, streamed, counted, and ahead of what a form binds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import StartupError
from signalbox.v1 import generation_pb2
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.helpers import STOP, choices_of, make_logprobs, serve_text
from tests.frontend_svc.scripted_cluster import Cluster, Row

USER: list[Any] = [{"role": "user", "content": "hi"}]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>'
THOUGHT = f"I could {CALL} but STOP."


@pytest.fixture
async def thinker(start: Start) -> Frontend:
    return await start(reasoning_parser="qwen3", key_file=None)


@pytest.fixture
async def client(thinker: Frontend) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"http://127.0.0.1:{thinker.http_port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=5) as client:
        yield client


async def test_an_answer(client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    """LM1, LM4, LM7: no call out of reasoning, no stop string in it, and its tokens are counted."""
    serve_text(cluster, tokenizer, f"<think>\n{THOUGHT}\n</think>\n\nwell.\n{CALL}")
    answer = await client.chat.completions.create(model="toy", messages=USER, tools=TOOLS, stop=["STOP"])
    (choice,) = answer.choices
    assert getattr(choice.message, "reasoning") == THOUGHT  # noqa: B009
    assert (choice.message.content, choice.finish_reason) == ("well.", "tool_calls")
    assert [call.function.arguments for call in choice.message.tool_calls or []] == ['{"city": "Bonn"}']  # type: ignore[union-attr]
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    counted = answer.usage.completion_tokens_details.reasoning_tokens or 0
    assert 0 < counted < answer.usage.completion_tokens


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (STOP, "tool_calls"),
        (generation_pb2.FINISH_REASON_LENGTH, "length"),
    ],
)
async def test_a_call_in_reasoning_that_is_never_closed(
    thinker: Frontend, cluster: Cluster, tokenizer: Tokenizer, finish: int, reason: str, stream: bool
) -> None:
    """LM4: a call if the model ended itself there, reasoning if it was cut off."""
    ids = tokenizer.fast.encode(f"<think>So I look.\n{CALL}").ids
    cluster.serve(lambda payload: ids, finish)
    body = {"model": "toy", "messages": USER, "tools": TOOLS, "stream": stream}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{thinker.http_port}") as http:
        told = choices_of(await http.post("/v1/chat/completions", json=body))
    parts = [choice["delta" if stream else "message"] for choice in told]
    thought = "".join(part.get("reasoning") or "" for part in parts)
    arguments = "".join(c["function"]["arguments"] for p in parts for c in p.get("tool_calls") or [])
    if reason == "length":
        assert (thought, arguments) == (f"So I look.\n{CALL}", "")
    else:
        assert (thought, arguments) == ("So I look.", '{"city": "Bonn"}')
    assert told[-1]["finish_reason"] == reason


async def test_reasoning_can_be_left_out(
    client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "<think>hm</think>yes")
    answer = await client.chat.completions.create(
        model="toy", messages=USER, extra_body={"include_reasoning": False}
    )
    assert answer.choices[0].message.content == "yes" and not hasattr(answer.choices[0].message, "reasoning")
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_of_reasoning_that_is_left_out_are_not_told(
    thinker: Frontend, cluster: Cluster, tokenizer: Tokenizer, stream: bool
) -> None:
    """Also where log-probabilities name each token."""
    ids = tokenizer.fast.encode("<think>hm</think>yes").ids
    body = {"model": "toy", "messages": USER, "logprobs": True, "stream": stream}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{thinker.http_port}") as http:
        for leaves_out in (False, True):
            cluster.serve(lambda payload: ids, STOP, [make_logprobs(token) for token in ids])
            answer = await http.post(
                "/v1/chat/completions", json=body | {"include_reasoning": not leaves_out}
            )
            told = [
                token["token"]
                for choice in choices_of(answer)
                for token in (choice.get("logprobs") or {}).get("content", [])
            ]
            assert ("hm" in "".join(told)) is not leaves_out and "".join(told).endswith("yes")


async def test_a_stream(client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    """LM3: told as it comes, one token at a time."""
    answering = asyncio.create_task(
        client.chat.completions.create(model="toy", messages=USER, tools=TOOLS, stream=True)
    )
    ref = (await cluster.scheduler.next("submit")).ref
    ids = tokenizer.fast.encode(f"<think>{THOUGHT}</think>well.{CALL}").ids
    cluster.scheduler.place(ref)
    stream = await answering
    for start, token in enumerate(ids):
        cluster.worker.emit(Row(ref.attempt, start, [token], STOP if start == len(ids) - 1 else 0))
        await asyncio.sleep(0)
    thought, text, arguments, reason = "", "", "", None
    async for chunk in stream:
        (choice,) = chunk.choices
        thought += getattr(choice.delta, "reasoning", "") or ""
        text += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            assert call.function is not None
            arguments += call.function.arguments or ""
        reason = choice.finish_reason or reason
    assert (thought, text, json.loads(arguments), reason) == (
        THOUGHT,
        "well.",
        {"city": "Bonn"},
        "tool_calls",
    )


async def test_a_form_binds_behind_reasoning(
    client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """LM9: one grammar for both, and the answer is told without what was thought."""
    serve_text(cluster, tokenizer, '<think>hm</think>{"a": 1}')
    schema = {"name": "a", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    answer = await client.chat.completions.create(
        model="toy",
        messages=USER,
        response_format={"type": "json_schema", "json_schema": schema},  # type: ignore[arg-type, typeddict-item]
    )
    assert answer.choices[0].message.content == '{"a": 1}'
    submit = await cluster.scheduler.next("submit")
    form = generation_pb2.RequestPayload.FromString(submit.payload).sampling.structured_output
    assert "thought" in form.grammar and '"integer"' in form.grammar


async def test_a_bound_that_cannot_be_kept_is_refused(client: openai.AsyncOpenAI) -> None:
    """LM14: this vocabulary spells its tags, so that nobody could count between them."""
    with pytest.raises(openai.BadRequestError, match="no tokens of the model's vocabulary") as caught:
        await client.chat.completions.create(
            model="toy", messages=USER, extra_body={"thinking_token_budget": 5}
        )
    assert caught.value.param == "thinking_token_budget"


async def test_a_parser_that_nobody_knows_is_an_error_at_the_start(start: Start) -> None:
    with pytest.raises(StartupError, match="--reasoning-parser 'qwen33' is not known"):
        await start(reasoning_parser="qwen33")
