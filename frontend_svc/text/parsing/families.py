"""The families: how each writes reasoning and calls. Names are vLLM's where it has the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from frontend_svc.text.parsing.call_reader import MakeReader
from frontend_svc.text.parsing.emitter import make_call_id
from frontend_svc.text.parsing.reasoning import ReasoningTags
from frontend_svc.text.parsing.tools import gemma, glm, pythonic, sections, tagged_json, tagged_parameters


@dataclass(frozen=True)
class ToolFamily:
    """One language of calls."""

    make: MakeReader
    make_id: Callable[[], str] = make_call_id
    kept: tuple[str, ...] = ()
    """Special tokens that are part of its text."""


HARMONY = "openai"
"""The name, in both tables, of the family whose reasoning, text and calls are one language."""

THINK = ReasoningTags("<think>", "</think>")
REASONING: Mapping[str, ReasoningTags | None] = {
    "qwen3": THINK,
    "deepseek_r1": ReasoningTags("<think>", "</think>", is_implied=True),
    "deepseek_v3": THINK,
    "deepseek_v4": THINK,
    "glm45": THINK,
    "kimi_k2": THINK,
    "minimax_m2": THINK,
    "mistral": ReasoningTags("[THINK]", "[/THINK]"),
    "gemma4": ReasoningTags("<|channel>", "<channel|>", label="thought\n"),
    "openai_gptoss": None,
}
"""None: told by the tools' family of the same model, harmony."""

TOOLS: Mapping[str, ToolFamily | None] = {
    "hermes": ToolFamily(tagged_json.HermesReader),
    "qwen3_coder": ToolFamily(tagged_parameters.qwen3_coder),
    "llama3_json": ToolFamily(tagged_json.LlamaJsonReader),
    "llama4_json": ToolFamily(tagged_json.LlamaJsonReader),
    "pythonic": ToolFamily(pythonic.PythonicReader),
    "llama4_pythonic": ToolFamily(pythonic.PythonicReader),
    "mistral": ToolFamily(sections.MistralReader, sections.make_mistral_id),
    "deepseek_v3": ToolFamily(sections.DeepSeekReader),
    "deepseek_v31": ToolFamily(sections.DeepSeekReader),
    "deepseek_v32": ToolFamily(tagged_parameters.dsml, kept=("｜DSML｜",)),
    "deepseek_v4": ToolFamily(tagged_parameters.dsml, kept=("｜DSML｜",)),
    "glm45": ToolFamily(glm.GlmReader),
    "glm47": ToolFamily(glm.GlmReader),
    "kimi_k2": ToolFamily(sections.KimiReader),
    "minimax_m2": ToolFamily(tagged_parameters.minimax),
    "gemma4": ToolFamily(gemma.GemmaReader),
    HARMONY: None,
}
"""None: harmony."""
