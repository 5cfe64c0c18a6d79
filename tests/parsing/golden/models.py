"""One model for each family: its template, its vocabulary, and how it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from frontend_svc.config import Limits
from frontend_svc.templates.library import ChatTemplates
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.parsing.language import Language
from tests.downloads import chat_templates
from tests.parsing.writers import FAMILIES, Family

NOW = datetime(2026, 3, 14, 15, 9, 26)
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}


@dataclass(frozen=True)
class Model:
    """A family of tests.parsing.writers, with the template of a model that writes so."""

    way: str
    template: str = ""
    """Name of its file in llama.cpp; empty: none has this family's template, and its prompts are not shown."""
    vocabulary: str = ""
    """Name in tests.downloads; empty: none is at hand."""
    special_tokens: Mapping[str, str] = field(default_factory=lambda: SPECIALS)
    reasons: bool = True

    @property
    def family(self) -> Family:
        return FAMILIES[self.way]

    @property
    def language(self) -> Language:
        reasoning = self.family.reasoning if self.reasons else ""
        return Language(reasoning, self.family.tools, self.family.vocabulary)

    @cached_property
    def prompts(self) -> ChatPrompts:
        """Skips the test where the template cannot be had."""
        source = chat_templates()[self.template]
        return ChatPrompts(
            ChatTemplates({"default": source}, self.special_tokens, lambda: NOW), Limits(max_template_s=600)
        )


QWEN = {"eos_token": "<|im_end|>"}
LLAMA = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
DEEPSEEK = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
_MODELS = (
    Model("hermes", "Qwen-Qwen3-0.6B", "qwen3", QWEN),
    Model("qwen3_coder", "Qwen3.5-4B", "qwen3", QWEN),
    Model("llama3_json", "meta-llama-Llama-3.1-8B-Instruct", "llama3_1", LLAMA, reasons=False),
    Model("pythonic", reasons=False),
    Model("llama4_pythonic", reasons=False),
    Model("mistral list", "mistralai-Mistral-Nemo-Instruct-2407", reasons=False),
    Model("mistral", "mistralai-Ministral-3-14B-Reasoning-2512"),
    Model("deepseek_v3"),
    Model("deepseek_v31", "deepseek-ai-DeepSeek-V3.1", "deepseek_v3", DEEPSEEK),
    Model("deepseek_v32", "deepseek-ai-DeepSeek-V3.2", special_tokens=DEEPSEEK),
    Model("deepseek_v4", "deepseek-ai-DeepSeek-V4", special_tokens=DEEPSEEK),
    Model("minimax_m2", "MiniMax-M2"),
    Model("glm45", "GLM-4.6"),
    Model("glm47", "GLM-4.7-Flash"),
    Model("kimi_k2", "Kimi-K2-Thinking"),
    Model("gemma4", "google-gemma-4-31B-it"),
    Model("openai", "openai-gpt-oss-120b", "gptoss"),
)
MODELS = {model.way: model for model in _MODELS}
