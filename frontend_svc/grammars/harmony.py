"""gpt-oss: messages in channels, each with a header."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from frontend_svc.grammars.calls import Functions
from frontend_svc.grammars.lark import ANYTHING, json_of, quoted
from frontend_svc.text.parsing.language import Language


def form_rules(body: str, language: Language, functions: Mapping[str, Any]) -> list[str]:
    """Messages of reasoning, then a form as the answer, if `body` is one, or one of `functions`, if there are any."""
    mark = _marks(language)
    thought = (
        f'{mark["channel"]} "analysis" {mark["message"]} THOUGHT {mark["end"]} {mark["start"]} "assistant"'
    )
    rules = ["start: thought* answer", f"thought: {thought}", f"THOUGHT: /{ANYTHING}/"]
    final = [f'{mark["channel"]} "final" {mark["message"]} {body}'] if body else []
    return [*rules, f"answer: {' | '.join([*final, *_calls(mark, functions)])}"]


def strict_rules(language: Language, functions: Functions) -> list[str]:
    """Messages of any kind, of which those to a function fit its schema."""
    mark = _marks(language)
    channel, message = mark["channel"], mark["message"]
    return [
        "start: step* (last | call)",
        f'step: {channel} ("analysis" | "commentary") {message} TEXT {mark["end"]} {mark["start"]} "assistant"',
        f'last: {channel} "final" {message} TEXT',
        f"call: {' | '.join(_calls(mark, functions))}",
        f"TEXT: /{ANYTHING}/",
    ]


def _marks(language: Language) -> dict[str, str]:
    names = ("channel", "message", "end", "start", "constrain")
    ids = language.token_ids
    return {name: f"<[{ids[tag]}]>" if (tag := f"<|{name}|>") in ids else json.dumps(tag) for name in names}


def _calls(mark: Mapping[str, str], functions: Functions) -> Iterable[str]:
    for name, schema in functions.items():
        recipient = quoted(f"commentary to=functions.{name} ")
        yield f'{mark["channel"]} {recipient} {mark["constrain"]} "json" {mark["message"]} {json_of(schema)}'
