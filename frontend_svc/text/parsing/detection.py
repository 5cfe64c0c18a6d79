"""Chooses a model's families by its own template and vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass

from frontend_svc.text.parsing.families import HARMONY, REASONING, TOOLS
from signalbox.errors import StartupError

AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class Evidence:
    """What has to be there for a family to be chosen: all of it."""

    family: str
    tokens: tuple[str, ...] = ()
    """Tokens of the vocabulary."""
    template: tuple[str, ...] = ()
    """Parts of the template."""

    def holds(self, vocabulary: Container[str], template: str) -> bool:
        """Whether it does."""
        return all(token in vocabulary for token in self.tokens) and all(
            part in template for part in self.template
        )


REASONING_EVIDENCE = (
    Evidence("openai_gptoss", tokens=("<|channel|>", "<|message|>", "<|start|>")),
    Evidence("gemma4", tokens=("<|channel>", "<channel|>")),
    Evidence("mistral", tokens=("[THINK]", "[/THINK]")),
    Evidence("qwen3", template=("</think>",)),
    Evidence("qwen3", tokens=("<think>", "</think>")),
)
"""The first that holds counts. What one family writes with the same marks as another is not told apart."""

TOOL_EVIDENCE = (
    Evidence(HARMONY, tokens=("<|channel|>", "<|message|>", "<|start|>")),
    Evidence("gemma4", tokens=("<|tool_call>", "<tool_call|>")),
    Evidence("kimi_k2", tokens=("<|tool_call_begin|>", "<|tool_call_argument_begin|>")),
    Evidence("deepseek_v4", template=("｜DSML｜",)),
    Evidence("deepseek_v4", tokens=("｜DSML｜",)),
    Evidence("deepseek_v31", template=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>")),
    Evidence("mistral", tokens=("[TOOL_CALLS]",)),
    Evidence("mistral", template=("[TOOL_CALLS]",)),
    Evidence("minimax_m2", template=("<minimax:tool_call>",)),
    Evidence("glm45", template=("<arg_key>", "<arg_value>")),
    Evidence("qwen3_coder", template=("<function=", "<parameter=")),
    Evidence("hermes", template=("<tool_call>",)),
    Evidence("llama4_pythonic", tokens=("<|python_start|>", "<|python_end|>"), template=("tools",)),
    Evidence("pythonic", template=("[func_name1(",)),
    Evidence("llama3_json", tokens=("<|python_tag|>",), template=("tools",)),
)


def detect(evidence: tuple[Evidence, ...], vocabulary: Container[str], template: str) -> str:
    """The name of the family; empty: none is known."""
    return next((item.family for item in evidence if item.holds(vocabulary, template)), "")


def choose_reasoning(name: str, vocabulary: Container[str], template: str) -> str:
    """The reasoning family that a setting names or, for "auto", the model's own. Raises StartupError."""
    if name == AUTO:
        return detect(REASONING_EVIDENCE, vocabulary, template)
    return _known(name, REASONING, "reasoning-parser")


def choose_tools(name: str, vocabulary: Container[str], template: str) -> str:
    """The tools' family that a setting names or, for "auto", the model's own. Raises StartupError."""
    if name == AUTO:
        return detect(TOOL_EVIDENCE, vocabulary, template)
    return _known(name, TOOLS, "tool-parser")


def _known(name: str, table: Collection[str], setting: str) -> str:
    if name == NONE:
        return ""
    if name not in table:
        raise StartupError(
            f"--{setting} {name!r} is not known; use auto, none, or one of {', '.join(sorted(table))}"
        )  # type: ignore[call-overload]
    return name
