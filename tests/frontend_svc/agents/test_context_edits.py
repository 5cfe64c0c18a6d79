"""What a request has taken out of its own history: results of old calls, old thoughts, each told in the answer."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import pytest

from frontend_svc.api.anthropic.context_edits import PLACEHOLDER
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.api.test_tools import PARAMETERS, prompt_of
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster

TOOLS: list[Any] = [{"name": name, "input_schema": PARAMETERS} for name in ("weather", "memory")]
TOOL_USES, THINKING = "clear_tool_uses_20250919", "clear_thinking_20251015"
BETAS = ["context-management-2025-06-27"]


def history(num_calls: int) -> list[Any]:
    """A turn of so many calls, each with a thought; every third is of the tool `memory`."""
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for i in range(num_calls):
        name = "weather" if i % 3 else "memory"
        call = {"type": "tool_use", "id": f"c{i}", "name": name, "input": {"city": f"town{i}"}}
        messages.append(
            {"role": "assistant", "content": [{"type": "thinking", "thinking": f"think{i}"}, call]}
        )
        result = {"type": "tool_result", "tool_use_id": f"c{i}", "content": f"result{i}"}
        messages.append({"role": "user", "content": [result]})
    return messages


def talk(num_turns: int) -> list[Any]:
    """Turns of the assistant with a thought each, between words of the user."""
    messages: list[Any] = []
    for i in range(num_turns):
        thought = {"type": "thinking", "thinking": f"think{i}", "signature": "s"}
        messages += [
            {"role": "user", "content": f"ask{i}"},
            {"role": "assistant", "content": [thought, {"type": "text", "text": f"answer{i}"}]},
        ]
    return [*messages, {"role": "user", "content": "and now"}]


async def ask(claude: anthropic.AsyncAnthropic, messages: list[Any], *edits: Any, **options: Any) -> Any:
    asked: dict[str, Any] = {"model": "toy", "messages": messages, "max_tokens": 64, "tools": TOOLS}
    asked |= {"tool_choice": {"type": "none"}, "context_management": {"edits": list(edits)}, "betas": BETAS}
    return await claude.beta.messages.create(**(asked | options))


async def told(cluster: Cluster, tokenizer: Tokenizer) -> str:
    return prompt_of(await cluster.scheduler.next("submit"), tokenizer)


async def test_results_of_old_calls_are_cleared(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "ok")
    plain = await ask(claude, history(6))
    whole = await told(cluster, tokenizer)
    assert plain.context_management.applied_edits == []
    edit = {"type": TOOL_USES, "trigger": {"type": "tool_uses", "value": 5}, "exclude_tools": ["memory"]}
    answer = await ask(claude, history(6), edit)
    prompt = await told(cluster, tokenizer)
    (applied,) = answer.context_management.applied_edits
    assert (applied.type, applied.cleared_tool_uses) == (TOOL_USES, 2)
    assert [i for i in range(6) if f"result{i}" in prompt] == [0, 3, 4, 5], "0 and 3 are of another tool"
    assert prompt.count(PLACEHOLDER) == 2 and all(f"town{i}" in prompt for i in range(6))
    lost = len(tokenizer.fast.encode(whole).ids) - len(tokenizer.fast.encode(prompt).ids)
    assert applied.cleared_input_tokens == max(0, lost)
    assert answer.usage.input_tokens == plain.usage.input_tokens - lost


@pytest.mark.parametrize(
    ("edit", "num_cleared"),
    [
        ({"trigger": {"type": "tool_uses", "value": 5}}, 3),
        ({"trigger": {"type": "tool_uses", "value": 6}}, 0),
        ({"trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 1}}, 5),
        ({"trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 0}}, 6),
        ({"trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 6}}, 0),
        ({"trigger": {"type": "input_tokens", "value": 50}}, 3),
        ({"trigger": {"type": "input_tokens", "value": 4000}}, 0),
        ({}, 0),
    ],
)
async def test_when_and_how_many(
    claude: anthropic.AsyncAnthropic,
    cluster: Cluster,
    tokenizer: Tokenizer,
    edit: dict[str, Any],
    num_cleared: int,
) -> None:
    serve_text(cluster, tokenizer, "ok")
    answer = await ask(claude, history(6), {"type": TOOL_USES} | edit)
    prompt = await told(cluster, tokenizer)
    assert prompt.count(PLACEHOLDER) == num_cleared
    assert [each.cleared_tool_uses for each in answer.context_management.applied_edits] == (
        [num_cleared] if num_cleared else []
    )


async def test_arguments_of_old_calls_are_cleared_where_that_is_wanted(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "ok")
    for wanted, left in ((True, [2, 3]), (["memory"], [1, 2, 3]), (False, [0, 1, 2, 3])):
        edit = {"type": TOOL_USES, "trigger": {"type": "tool_uses", "value": 1}, "clear_tool_inputs": wanted}
        await ask(claude, history(4), edit | {"keep": {"type": "tool_uses", "value": 2}})
        prompt = await told(cluster, tokenizer)
        assert [i for i in range(4) if f"town{i}" in prompt] == left


async def test_too_little_is_not_cleared(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "ok")
    messages = history(6)
    messages[2]["content"][0]["content"] = "a long result " * 20
    for least, is_cleared in ((20, True), (1000, False)):
        edit = {"type": TOOL_USES, "trigger": {"type": "tool_uses", "value": 1}}
        edit |= {"clear_at_least": {"type": "input_tokens", "value": least}}
        answer = await ask(claude, messages, edit)
        assert (PLACEHOLDER in await told(cluster, tokenizer)) == is_cleared
        assert len(answer.context_management.applied_edits) == is_cleared


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ("all", 3),
        ({"type": "all"}, 3),
        ({"type": "thinking_turns", "value": 2}, 2),
        ({"type": "thinking_turns", "value": 9}, 3),
        (None, 1),
    ],
)
async def test_old_thoughts_are_cleared(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer, keep: Any, left: int
) -> None:
    """The template of these tests tells no thoughts, so what is gone is counted in turns."""
    serve_text(cluster, tokenizer, "ok")
    edit = {"type": THINKING} | ({"keep": keep} if keep else {})
    body = {"model": "toy", "max_tokens": 9, "messages": talk(3), "context_management": {"edits": [edit]}}
    answer = (await http.post("/v1/messages", json=body)).json()
    applied = answer["context_management"]["applied_edits"]
    assert [each["cleared_thinking_turns"] for each in applied] == ([3 - left] if left < 3 else [])


async def test_the_thoughts_of_one_turn_stay_together(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "ok")
    edit = {"type": THINKING, "keep": {"type": "thinking_turns", "value": 1}}
    answer = await ask(claude, history(4), edit)
    assert answer.context_management.applied_edits == [], "calls and their results are one turn"
    answer = await ask(claude, [*history(4), {"role": "assistant", "content": "ok"}, *talk(1)], edit)
    (applied,) = answer.context_management.applied_edits
    assert applied.cleared_thinking_turns == 1


async def test_a_stream_tells_edits_at_its_end(
    claude: anthropic.AsyncAnthropic, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, "ok")
    edit = {"type": TOOL_USES, "trigger": {"type": "tool_uses", "value": 1}}
    stream = await ask(claude, history(5), {"type": THINKING, "keep": "all"}, edit, stream=True)
    told = [event.context_management async for event in stream if event.type == "message_delta"]
    assert [each.cleared_tool_uses for each in told[0].applied_edits] == [2]


async def test_tokens_are_counted_after_the_edits(claude: anthropic.AsyncAnthropic) -> None:
    messages = history(5)
    messages[2]["content"][0]["content"] = "a long result " * 20
    asked: dict[str, Any] = {"model": "toy", "messages": messages, "tools": TOOLS, "betas": BETAS}
    plain = await claude.beta.messages.count_tokens(**asked)
    edit = {"type": TOOL_USES, "trigger": {"type": "tool_uses", "value": 1}}
    edited = await claude.beta.messages.count_tokens(**asked, context_management={"edits": [edit]})
    assert plain.context_management is None and edited.context_management is not None
    assert edited.context_management.original_input_tokens == plain.input_tokens > edited.input_tokens


async def test_an_edit_that_is_not_done_is_told_and_changes_nothing(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """Claude Code sends what its server knows: a 400 would end the session."""
    serve_text(cluster, tokenizer, "ok")
    body = {"model": "toy", "max_tokens": 9, "messages": history(2), "tools": TOOLS}
    body |= {"context_management": {"edits": [{"type": "compact_20260112", "trigger": {"x": 1}}]}}
    answer = await http.post("/v1/messages", json=body | {"tool_choice": {"type": "none"}})
    assert answer.json()["context_management"] == {"applied_edits": []}
    assert "compact_20260112" in answer.headers["x-signalbox-warning"]
    wrong = body | {"context_management": {"edits": [{"type": TOOL_USES, "keeps": 3}]}}
    refused = await http.post("/v1/messages", json=wrong)
    assert refused.status_code == 400 and "context_management.edits[0].keeps" in refused.text


async def test_more_edits_than_anybody_needs_are_refused(claude: anthropic.AsyncAnthropic) -> None:
    """Each of them may have the prompt rendered and counted."""
    edits = [{"type": TOOL_USES, "trigger": {"type": "tool_uses", "value": 0}}] * 17
    with pytest.raises(anthropic.BadRequestError, match="edits"):
        await ask(claude, history(4), *edits)
