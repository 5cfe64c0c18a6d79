"""Outputs that parsers of other servers were reported to lose, garble or fail on: one line each, with its report."""

from __future__ import annotations

from typing import Any

import pytest

from frontend_svc.text.parsing.pieces import Tag
from tests.parsing.reading import plan_of, read
from tests.parsing.writers import FAMILIES

OPTIONAL = {"type": "object", "properties": {"sender": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
TOOLS: dict[str, Any] = {
    "web-browsing": {"type": "object", "properties": {"url": {"type": "string"}}},
    "set": {"type": "object", "properties": {"volume": {"type": "integer"}}},
    "set_volume": {"type": "object", "properties": {"volume": {"type": "integer"}}},
    "mcp__mail-box__list.all": {"type": "object", "properties": {}},
    "search": OPTIONAL,
}
K, D = "<|tool_calls_section_begin|>", "<｜tool▁calls▁begin｜>"
CODER = "<function=search>\n<parameter=sender>\nSmith\\(\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("family", "written", "calls", "content"),
    [
        pytest.param(
            "openai",
            "<|channel|>commentary to=functions.web-browsing <|constrain|>json<|message|>{\"url\": \"x\"}<|call|>",
            [("web-browsing", '{"url": "x"}')],
            "",
            id="vllm 51977: a name with a hyphen",
        ),
        pytest.param(
            "openai",
            "<|start|>assistant<|start|>assistant<|channel|>final<|message|>hi<|return|>",
            [],
            "hi",
            id="tenstorrent vllm 386: the role twice",
        ),
        pytest.param(
            "openai",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant––commentary<|channel|>commentary "
            'to=functions.set<|message|>{"volume": 3}<|call|>',
            [("set", '{"volume": 3}')],
            "",
            id="harmony 38: words in a header",
        ),
        pytest.param(
            "openai",
            "<|channel|>analysis<|message|>hm<|end|>Hello",
            [],
            "Hello",
            id="harmony 60: a message without its beginning",
        ),
        pytest.param(
            "openai",
            '<|channel|>commentary to=set<|constrain|>json<|message|>{"volume": 3}<|end|>',
            [("set", '{"volume": 3}')],
            "",
            id="vllm 22284: a recipient without a namespace",
        ),
        pytest.param(
            "hermes",
            '<tool_call>\n{"name": "set_volume", "arguments": {"volume": 30}}\n</tool_call>',
            [("set_volume", '{"volume": 30}')],
            "",
            id="Qwen3 1595: the last digit; a name that begins with another's",
        ),
        pytest.param(
            "qwen3_coder in text",
            f"Let me grep.\n\n<tool_call>\n{CODER}",
            [("search", '{"sender": "Smith\\\\("}')],
            "Let me grep.",
            id="vllm 22975: a call behind text",
        ),
        pytest.param(
            "qwen3_coder",
            f"Let me grep.\n\n{CODER}",
            [("search", '{"sender": "Smith\\\\("}')],
            "Let me grep.",
            id="qwen3 coder: no opening tag",
        ),
        pytest.param(
            "glm47",
            "<tool_call>search<arg_key>sender</arg_key><arg_value>Smith</arg_value></tool_call>",
            [("search", '{"sender": "Smith"}')],
            "",
            id="vllm 40195: an optional string",
        ),
        pytest.param(
            "glm47",
            "<tool_call>mcp__mail-box__list.all</tool_call>",
            [("mcp__mail-box__list.all", "{}")],
            "",
            id="vllm 41654: no arguments, and no line break",
        ),
        pytest.param(
            "kimi_k2",
            f"well{K}<|tool_call_begin|>functions.web-browsing:0<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
            '<|tool_call_begin|> set:1 \n<|tool_call_argument_begin|>{"volume": 1}<|tool_call_end|>',
            [("web-browsing", "{}"), ("set", '{"volume": 1}')],
            "well",
            id="vllm 38579, sglang 23363: a name with a hyphen, text ahead, an open section",
        ),
        pytest.param(
            "kimi_k2",
            f"{K}<|tool_call_begin|>functions.set:0<|tool_call_argument_begin|>"
            + '{"volume": "' + "x" * 20_000 + '"}<|tool_call_end|>',
            [("set", '{"volume": "' + "x" * 20_000 + '"}')],
            "",
            id="vllm 37184: long arguments",
        ),
        pytest.param(
            "mistral",
            '[TOOL_CALLS]set[ARGS]{"volume": {"a": [1, {"b": "}"}]}}',
            [("set", '{"volume": {"a": [1, {"b": "}"}]}}')],
            "",
            id="vllm 17585, 20028: nested arguments",
        ),
        pytest.param(
            "deepseek_v31",
            f"{D}<｜tool▁call▁begin｜>nobody<｜tool▁sep｜>{{}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            [],
            None,
            id="vllm 48367: the finish says calls and there are none",
        ),
        pytest.param(
            "deepseek_v31",
            f'{D}<｜tool▁call▁begin｜>set<｜tool▁sep｜>{{"volume": 1}}<｜tool▁call▁end｜>',
            [("set", '{"volume": 1}')],
            "",
            id="deepseek: an open section",
        ),
    ],
)  # fmt: skip
def test_what_others_were_reported_to_lose(
    family: str, written: str, calls: list[tuple[str, str]], content: str | None
) -> None:
    """LM3, LM5: whole, and unit by unit."""
    units = FAMILIES[family].units(written)
    for cuts in ([], None):
        found = read(plan_of(FAMILIES[family], TOOLS), units, cuts)
        assert found.calls == calls
        assert content is None or found.content == content


def test_a_call_within_reasoning_that_goes_on_is_none() -> None:
    """LM4, vllm 39056: what is thought of a call is not done."""
    written = '<think>I could <tool_call>{"name": "set", "arguments": {}}</tool_call> but no.</think>No.'
    found = read(plan_of(FAMILIES["hermes"], TOOLS), FAMILIES["hermes"].units(written))
    assert not found.calls and found.content == "No."


def test_ids_that_name_no_function_are_told_as_text() -> None:
    """LM6, sglang 25358: Kimi repeats ids of a history; without a name there is nothing to call."""
    tags = [Tag(K), Tag("<|tool_call_begin|>"), *"call00003", Tag("<|tool_call_argument_begin|>"), *"{}"]
    found = read(plan_of(FAMILIES["kimi_k2"], TOOLS), [*tags, Tag("<|tool_call_end|>")])
    assert not found.calls and "call00003" in found.content
