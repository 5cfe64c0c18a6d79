"""Chat templates of real models, rendered by us and by transformers: the same bytes."""

from __future__ import annotations

import copy
import json
from datetime import datetime
from random import Random
from typing import Any

import jinja2
import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.fitting import fit_messages
from frontend_svc.templates.traits import NullContent, Traits, find_traits
from signalbox.errors import InvalidRequestError
from tests.downloads import chat_templates
from tests.frontend_svc.templates.conversations import Drawn, draw_conversation

NOW = datetime(2026, 2, 3, 4, 5, 6)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
FAMILIES = (
    "openai-gpt-oss-120b", "Qwen-Qwen3-0.6B", "Qwen3-Coder", "Qwen3.5-4B", "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct", "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407",
    "Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Ministral-3-14B-Reasoning-2512",
    "unsloth-mistral-Devstral-Small-2507", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4", "GLM-4.6", "GLM-4.7-Flash", "Kimi-K2-Instruct", "Kimi-K2-Thinking",
    "moonshotai-Kimi-K2", "google-gemma-2-2b-it", "google-gemma-4-31B-it", "MiniMax-M2",
    "HuggingFaceTB-SmolLM3-3B", "ibm-granite-granite-4.0", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "CohereForAI-c4ai-command-r-plus-tool_use",
)  # fmt: skip


class _FrozenClock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return NOW


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", _FrozenClock)


@pytest.fixture(scope="module")
def reference() -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=FastTokenizer(models.BPE()), **TOKENS)


def as_transformers_wants(drawn: Drawn, traits: Traits) -> list[dict[str, Any]]:
    """What somebody who calls transformers would hand over: parts where the template takes them, arguments as it
    writes them."""
    messages = copy.deepcopy(drawn.messages)
    for message in messages:
        if isinstance(message["content"], list) and message["role"] not in traits.takes_parts:
            message["content"] = "\n".join(part["text"] for part in message["content"])
        for call in message.get("tool_calls", ()):
            if not traits.arguments_as_text:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            if not message["content"] and traits.empty_hides_calls:
                message["content"] = None
    return messages


def theirs(reference: Any, source: str, drawn: Drawn, traits: Traits) -> str:
    messages = as_transformers_wants(drawn, traits)
    if traits.null_content is NullContent.NONE:
        # apply_chat_template drops what is None; a template that looks for it was written for when it did not.
        rendered, _ = chat_template_utils.render_jinja_template(
            [messages],
            drawn.tools or None,
            chat_template=source,
            add_generation_prompt=drawn.add_generation_prompt,
            **TOKENS,
            **drawn.variables,
        )
        return str(rendered[0])
    rendered = reference.apply_chat_template(
        messages,
        drawn.tools or None,
        chat_template=source,
        tokenize=False,
        add_generation_prompt=drawn.add_generation_prompt,
        **drawn.variables,
    )
    return str(rendered)


def ours(template: ChatTemplate, drawn: Drawn, traits: Traits) -> str:
    return template.render(
        fit_messages(drawn.messages, traits),
        drawn.tools,
        variables=drawn.variables,
        add_generation_prompt=drawn.add_generation_prompt,
    )


def may_do_more(drawn: Drawn, traits: Traits) -> bool:
    """Where transformers fails and we need not: null content, and both of what only one may be."""
    calling = [message for message in drawn.messages if message.get("tool_calls")]
    return any(
        message["content"] is None or (traits.refuses_both and message["content"] and "reasoning" in message)
        for message in calling
    )


def compare(reference: Any, name: str, count: int) -> int:
    """How many of `count` conversations the template takes; all of them are compared."""
    source = chat_templates()[name]
    template = ChatTemplate(source, TOKENS, lambda: NOW)
    traits = find_traits(template)
    num_taken = 0
    for seed in range(count):
        drawn = draw_conversation(Random(f"{name} {seed}"))
        try:
            expected = theirs(reference, source, drawn, traits)
        except (jinja2.TemplateError, TypeError, ValueError, AttributeError, KeyError):
            if not may_do_more(drawn, traits):
                with pytest.raises(InvalidRequestError):
                    ours(template, drawn, traits)
            continue
        assert ours(template, drawn, traits) == expected, (name, seed)
        num_taken += 1
    return num_taken


@pytest.mark.parametrize("name", FAMILIES)
def test_a_few_conversations(reference: Any, name: str) -> None:
    assert compare(reference, name, 6) or name == "Kimi-K2-Instruct"  # it calls list.append


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_two_hundred_conversations(reference: Any, name: str) -> None:
    assert (
        compare(reference, name, 200) or name == "Kimi-K2-Instruct"
    )  # no sandbox takes it: it calls list.append


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_other_templates(reference: Any) -> None:
    others = chat_templates().keys() - set(FAMILIES)
    num_taken = {name: compare(reference, name, 40) for name in others}
    assert sum(taken > 0 for taken in num_taken.values()) > len(others) / 2, num_taken


@pytest.mark.parametrize("name", FAMILIES)
def test_the_final_message_goes_on(reference: Any, name: str) -> None:
    source = chat_templates()[name]
    template = ChatTemplate(source, TOKENS, lambda: NOW)
    for text in ("The answer is", "Trailing space ", "line\n"):
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": text}]
        try:
            expected = reference.apply_chat_template(
                messages, chat_template=source, tokenize=False, continue_final_message=True
            )
        except (jinja2.TemplateError, TypeError, ValueError):
            with pytest.raises(InvalidRequestError):
                template.continue_final(messages)
        else:
            assert template.continue_final(messages) == expected
