"""Families are found by the templates of real models (LM8), and what a template writes of an answer its parser reads:
the way in which a history tells reasoning, text and calls is the way in which the model was taught to write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.fitting import fit_messages
from frontend_svc.templates.traits import find_traits
from frontend_svc.text.parsing.detection import (
    REASONING_EVIDENCE,
    TOOL_EVIDENCE,
    choose_reasoning,
    choose_tools,
)
from frontend_svc.text.parsing.language import Language, ParserPlan
from frontend_svc.text.parsing.pieces import Tag
from tests.downloads import chat_templates
from tests.parsing.reading import read
from tests.parsing.writers import TOOLS, Unit

FAMILIES = {
    "Qwen-Qwen2.5-7B-Instruct": ("", "hermes"),
    "Qwen-Qwen3-0.6B": ("qwen3", "hermes"),
    "Qwen-QwQ-32B": ("qwen3", "hermes"),
    "Qwen3-Coder": ("", "qwen3_coder"),
    "Qwen3.5-4B": ("qwen3", "qwen3_coder"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": ("", "hermes"),
    "openai-gpt-oss-120b": ("openai_gptoss", "openai"),
    "deepseek-ai-DeepSeek-V3.1": ("qwen3", "deepseek_v31"),
    "deepseek-ai-DeepSeek-V3.2": ("qwen3", "deepseek_v4"),
    "deepseek-ai-DeepSeek-V4": ("qwen3", "deepseek_v4"),
    "GLM-4.6": ("qwen3", "glm45"),
    "GLM-4.7-Flash": ("qwen3", "glm45"),
    "Kimi-K2-Instruct": ("", "kimi_k2"),
    "Kimi-K2-Thinking": ("qwen3", "kimi_k2"),
    "moonshotai-Kimi-K2": ("", "kimi_k2"),
    "MiniMax-M2": ("qwen3", "minimax_m2"),
    "google-gemma-4-31B-it": ("gemma4", "gemma4"),
    "meta-llama-Llama-3.1-8B-Instruct": ("", "llama3_json"),
    "meta-llama-Llama-3.2-3B-Instruct": ("", "llama3_json"),
    "meta-llama-Llama-3.3-70B-Instruct": ("", "llama3_json"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("", "mistral"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral", "mistral"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("", "mistral"),
    "unsloth-mistral-Devstral-Small-2507": ("", "mistral"),
}
"""By template: families of reasoning and of calls. Which `<think>` family it is makes no difference."""
VOCABULARIES = {"meta-llama": ("<|python_tag|>",)}
"""Tokens of the vocabulary that the template does not name."""
TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<turn|>", "<｜end▁of▁sentence｜>", "</s>", "[e~[", "<|endoftext|>",
    "<|return|>", "<|user|>", "<|observation|>", "<|tool_response>",
)  # fmt: skip
USER = {"role": "user", "content": "How is it?"}
THOUGHT, TEXT = "I look it up.", "One moment."
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("weather", {"city": "Köln", "days": 3}),
    ("compute", {"values": [1, "a"], "exact": True}),
]


def language_of(name: str, source: str) -> Language:
    evidence = (*REASONING_EVIDENCE, *TOOL_EVIDENCE)
    marks = {token for item in evidence for token in item.tokens if token in source}
    for prefix, tokens in VOCABULARIES.items():
        marks |= set(tokens) if name.startswith(prefix) else set()
    ids = {mark: index for index, mark in enumerate(sorted(marks))}
    return Language(choose_reasoning("auto", ids, source), choose_tools("auto", ids, source), ids)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_family_of_a_real_template(name: str) -> None:
    """LM8."""
    language = language_of(name, chat_templates()[name])
    assert (language.reasoning, language.tools) == FAMILIES[name]


def answer_of(source: str, message: dict[str, Any]) -> tuple[str, str]:
    """The prompt, and what the template writes of an assistant's message behind it."""
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    tools = [
        {"type": "function", "function": {"name": n, "description": n, "parameters": p}}
        for n, p in TOOLS.items()
    ]
    traits = find_traits(template)
    before = template.render(
        fit_messages([USER], traits), tools, add_generation_prompt=False, max_chars=1 << 20
    )
    prompt = template.render(fit_messages([USER], traits), tools, max_chars=1 << 20)
    whole = template.render(
        fit_messages([USER, message], traits), tools, add_generation_prompt=False, max_chars=1 << 20
    )
    header, written = prompt.removeprefix(before), whole.removeprefix(before)
    begun = next((i for i, (a, b) in enumerate(zip(header, written, strict=False)) if a != b), len(header))
    while begun and header[begun - 1] == "<":
        begun -= 1
    if header[begun:].strip():
        prompt = prompt[: len(prompt) - len(header) + begun]
    written = written[begun:]
    end = min((written.find(mark) for mark in TURN_ENDS if mark in written), default=len(written))
    return prompt, written[:end]


def units_of(text: str, plan: ParserPlan) -> list[Unit]:
    units: list[Unit] = []
    while text:
        mark = next((mark for mark in plan.tags.values() if text.startswith(mark)), "")
        units.append(Tag(mark) if mark else text[0])
        text = text[len(mark or "x") :]
    return units


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("num_calls", [1, 2])
def test_what_a_template_writes_its_parser_reads(name: str, num_calls: int) -> None:
    """LM5, LM8."""
    source = chat_templates()[name]
    if num_calls > 1 and ("gpt-oss" in name or "meta-llama" in name):
        pytest.skip("the template takes one call at a time")
    if name.startswith("Kimi-K2"):
        pytest.skip("the template changes a list, which the sandbox refuses, as transformers does")
    language = language_of(name, source)
    calls = [
        {"id": f"call0000{i}", "type": "function", "function": {"name": n, "arguments": as_json(a)}}
        for i, (n, a) in enumerate(CALLS[:num_calls])
    ]
    message: dict[str, Any] = {"role": "assistant", "content": TEXT, "tool_calls": calls}
    if language.reasoning and "mistral" not in name:
        message["reasoning"] = THOUGHT
    prompt, written = answer_of(source, message)
    plan = language.plan(prompt, TOOLS)
    assert plan is not None
    found = read(plan, units_of(written, plan), [])
    assert found.parsed == CALLS[:num_calls], written
    assert found.content in (TEXT, ""), "some templates leave text beside calls out"
    assert found.reasoning in (THOUGHT, "", f"{THOUGHT}\n\n{TEXT}"), "some leave reasoning of a history out"


def as_json(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)
