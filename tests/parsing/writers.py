"""How each family writes reasoning and calls: the other way round than its parser, and apart from it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from frontend_svc.text.parsing.pieces import Tag

Unit = str | Tag
"""One character or one token that is a tag."""
Arguments = dict[str, Any]
Call = tuple[str, Arguments]

TOOLS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    },
    "write_file": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    },
    "compute": {
        "type": "object",
        "properties": {
            "values": {"type": "array"},
            "options": {"type": "object"},
            "exact": {"type": "boolean"},
            "ratio": {"type": "number"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    },
    "now": {"type": "object", "properties": {}},
}


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def bare(value: Any) -> str:
    """As text between tags."""
    return value if isinstance(value, str) else dump(value)


def gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma_value, value)) + "]"
    return dump(value)


def hermes(calls: Sequence[Call]) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {dump(arguments)}}}\n</tool_call>'
        for name, arguments in calls
    )


def hermes_list(calls: Sequence[Call]) -> str:
    written = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return f"<tool_call>\n{dump(written)}\n</tool_call>"


def hermes_wrapped(calls: Sequence[Call]) -> str:
    written = [
        {"type": "function", "function": {"name": name, "parameters": arguments}} for name, arguments in calls
    ]
    return "\n".join(f"<tool_call>{dump(one)}</tool_call>" for one in written)


def qwen3_coder(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: Arguments) -> str:
        inner = "".join(
            f"<parameter={key}>\n{bare(value)}\n</parameter>\n" for key, value in arguments.items()
        )
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"

    return "\n".join(one(*call) for call in calls)


def llama3_json(calls: Sequence[Call]) -> str:
    return "; ".join(f'{{"name": "{name}", "parameters": {dump(arguments)}}}' for name, arguments in calls)


def pythonic(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: Arguments) -> str:
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

    return f"[{', '.join(one(*call) for call in calls)}]"


def pythonic_by_place(calls: Sequence[Call]) -> str:
    """Without names, as long as none is left out."""

    def one(name: str, arguments: Arguments) -> str:
        places = itertools.takewhile(
            lambda key: key in arguments, TOOLS.get(name, {"properties": {}})["properties"]
        )
        bare_keys = set(places)
        parts = [f"{value!r}" if key in bare_keys else f"{key}={value!r}" for key, value in arguments.items()]
        return f"{name}({', '.join(parts)})"

    return f"[{', '.join(one(*call) for call in calls)}]"


def mistral_old(calls: Sequence[Call]) -> str:
    return "[TOOL_CALLS]" + dump([{"name": name, "arguments": arguments} for name, arguments in calls])


def mistral_new(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{dump(arguments)}" for name, arguments in calls)


def mistral_ids(calls: Sequence[Call]) -> str:
    return "".join(
        f"[TOOL_CALLS]{name}[CALL_ID]abcdefgh{index % 10}[ARGS]{dump(arguments)}"
        for index, (name, arguments) in enumerate(calls)
    )


def deepseek_v3(calls: Sequence[Call]) -> str:
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dump(arguments)}\n```<｜tool▁call▁end｜>"
        for name, arguments in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dump(arguments)}<｜tool▁call▁end｜>"
        for name, arguments in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def dsml(section: str) -> Callable[[Sequence[Call]], str]:
    def one(name: str, arguments: Arguments) -> str:
        inner = "".join(
            f'<｜DSML｜parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
            f"{bare(value)}</｜DSML｜parameter>\n"
            for key, value in arguments.items()
        )
        return f'<｜DSML｜invoke name="{name}">\n{inner}</｜DSML｜invoke>\n'

    def write(calls: Sequence[Call]) -> str:
        inner = "".join(one(*call) for call in calls)
        return f"<｜DSML｜{section}>\n{inner}</｜DSML｜{section}>"

    return write


def minimax(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: Arguments) -> str:
        inner = "".join(
            f'<parameter name="{key}">{bare(value)}</parameter>\n' for key, value in arguments.items()
        )
        return f'<invoke name="{name}">\n{inner}</invoke>\n'

    return "<minimax:tool_call>\n" + "".join(one(*call) for call in calls) + "</minimax:tool_call>"


def glm(line: str) -> Callable[[Sequence[Call]], str]:
    def one(name: str, arguments: Arguments) -> str:
        inner = line.join(
            f"<arg_key>{key}</arg_key>{line}<arg_value>{bare(value)}</arg_value>"
            for key, value in arguments.items()
        )
        return f"<tool_call>{name}{line}{inner}{line}</tool_call>"

    return lambda calls: "\n".join(one(*call) for call in calls)


def kimi_k2(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{dump(arguments)}<|tool_call_end|>"
        for index, (name, arguments) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def gemma4(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: Arguments) -> str:
        inner = ",".join(f"{key}:{gemma_value(value)}" for key, value in arguments.items())
        return f"<|tool_call>call:{name}{{{inner}}}<tool_call|>"

    return "".join(one(*call) for call in calls)


def harmony_calls(calls: Sequence[Call]) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{dump(arguments)}<|call|>"
        for name, arguments in calls
    )


@cache
def _splitter(tags: tuple[str, ...]) -> re.Pattern[str]:
    """Finds the tags, the longest first; its `split` has each at an odd place."""
    return re.compile(f"({'|'.join(map(re.escape, sorted(tags, key=len, reverse=True)))})")


@dataclass(frozen=True)
class Family:
    """One language and what is special about it."""

    tools: str
    """Name of its parser."""
    write: Callable[[Sequence[Call]], str]
    reasoning: str = "qwen3"
    tokens: tuple[str, ...] = ()
    """Tags that are tokens of the real vocabularies."""
    leads: bool = False
    """Calls are calls only where nothing stands before them."""
    think: tuple[str, str] = ("<think>\n", "\n</think>\n\n")
    token_ids: dict[str, int] = field(default_factory=dict)

    def units(self, text: str, *, spelled: bool = False) -> list[Unit]:
        """The text as characters and tags; spelled: as characters alone."""
        if spelled or not self.tokens:
            return list(text)
        units: list[Unit] = []
        for index, part in enumerate(_splitter((*self.tokens, *self._think_tokens)).split(text)):
            units += [Tag(part)] if index % 2 else part
        return units

    @property
    def _think_tokens(self) -> tuple[str, ...]:
        if self.reasoning == "openai_gptoss":
            return ()
        return tuple(part.strip().removesuffix("thought").strip() for part in self.think if self.tokens)

    @property
    def vocabulary(self) -> dict[str, int]:
        """Ids of the tags that are tokens."""
        return {tag: index for index, tag in enumerate(dict.fromkeys((*self.tokens, *self._think_tokens)))}


T = ("<tool_call>", "</tool_call>")
M = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
D = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
)
G = (*T, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
K = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
H = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
MISTRAL = ("[THINK]", "[/THINK]")

FAMILIES: dict[str, Family] = {
    "hermes": Family("hermes", hermes, tokens=T),
    "hermes in text": Family("hermes", hermes),
    "hermes as a list": Family("hermes", hermes_list, tokens=T),
    "hermes wrapped": Family("hermes", hermes_wrapped, tokens=T),
    "qwen3_coder": Family("qwen3_coder", qwen3_coder, tokens=T),
    "qwen3_coder in text": Family("qwen3_coder", qwen3_coder),
    "llama3_json": Family("llama3_json", llama3_json, leads=True),
    "llama3_json tagged": Family(
        "llama3_json", lambda calls: "<|python_tag|>" + llama3_json(calls), tokens=("<|python_tag|>",)
    ),
    "pythonic": Family("pythonic", pythonic, leads=True),
    "pythonic by place": Family("pythonic", pythonic_by_place, leads=True),
    "llama4_pythonic": Family(
        "llama4_pythonic",
        lambda calls: f"<|python_start|>{pythonic(calls)}<|python_end|>",
        tokens=("<|python_start|>", "<|python_end|>"),
    ),
    "mistral list": Family("mistral", mistral_old, "mistral", M, think=MISTRAL),
    "mistral": Family("mistral", mistral_new, "mistral", M, think=MISTRAL),
    "mistral in text": Family("mistral", mistral_new, "mistral", think=MISTRAL),
    "mistral with ids": Family("mistral", mistral_ids, "mistral", M, think=MISTRAL),
    "deepseek_v3": Family("deepseek_v3", deepseek_v3, "deepseek_r1", D),
    "deepseek_v31": Family("deepseek_v31", deepseek_v31, "deepseek_v3", D),
    "deepseek_v32": Family("deepseek_v32", dsml("function_calls"), "deepseek_v3"),
    "deepseek_v4": Family("deepseek_v4", dsml("tool_calls"), "deepseek_v4"),
    "minimax_m2": Family("minimax_m2", minimax, "minimax_m2"),
    "glm45": Family("glm45", glm("\n"), "glm45", G),
    "glm47": Family("glm47", glm(""), "glm45", G),
    "glm45 in text": Family("glm45", glm("\n"), "glm45"),
    "kimi_k2": Family("kimi_k2", kimi_k2, "kimi_k2", K),
    "gemma4": Family(
        "gemma4",
        gemma4,
        "gemma4",
        ("<|tool_call>", "<tool_call|>", '<|"|>'),
        think=("<|channel>thought\n", "\n<channel|>"),
    ),
    "openai": Family(
        "openai",
        harmony_calls,
        "openai_gptoss",
        H,
        think=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    ),
}
