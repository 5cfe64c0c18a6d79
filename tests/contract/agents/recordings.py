"""Conversations as agents sent them, without the agents' own texts.

What Codex and Claude Code tell the model themselves (instructions, descriptions of tools, reminders) is not kept: a
mark says how many tokens it had, and that many words of ours stand there when a recording is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tests.contract.agents.recorder import Exchange

FOLDER = Path(__file__).parent / "recordings"
STRIPPED = "stripped_tokens"
WORDS = (
    "the",
    "one",
    "that",
    "is",
    "not",
    "for",
    "all",
    "and",
    "can",
    "be",
    "in",
    "no",
    "more",
    "than",
    "it",
)
"""Each is one token of most vocabularies, with a space in front."""
TEXTS = ("text", "description", "content", "instructions")
"""Fields whose texts are stripped, unless the task says them."""
BILLING = "x-anthropic-billing-header:"
HEADERS = {"accept", "content-type", "anthropic-version", "anthropic-beta", "user-agent", "originator"}
"""Those that are kept: the others name sessions and machines."""


@dataclass(frozen=True)
class Call:
    """One call of an agent."""

    method: str
    target: str
    headers: dict[str, str]
    body: dict[str, Any]
    num_prompt_tokens: int
    """As the frontend counted them when it was recorded, with Qwen3's vocabulary and the agent's own texts; 0: it was
    not told."""


def read(name: str) -> list[Call]:
    """A recording with words where texts were."""
    return [Call(**{**each, "body": _fill(each["body"])}) for each in json.loads(_path(name).read_text())]


def names() -> list[str]:
    """Of all recordings."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def write(name: str, exchanges: Iterable[Exchange], ours: Iterable[str], count: Callable[[str], int]) -> None:
    """Keeps what was asked. `ours`: texts that the task has said itself; `count` counts tokens."""
    known = set(ours)
    calls = [
        {
            "method": exchange.method,
            "target": exchange.target,
            "headers": {name: exchange.headers[name] for name in sorted(HEADERS & set(exchange.headers))},
            "body": _strip(exchange.body, known, count),
            "num_prompt_tokens": prompt_tokens(exchange.answer),
        }
        for exchange in exchanges
    ]
    FOLDER.mkdir(exist_ok=True)
    _path(name).write_text(json.dumps(calls, indent=1, ensure_ascii=False) + "\n")


def _path(name: str) -> Path:
    return FOLDER / f"{name}.json"


def _strip(value: Any, ours: set[str], count: Callable[[str], int]) -> Any:
    if isinstance(value, list):
        return [_strip(each, ours, count) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: {STRIPPED: count(each)}
        if name in TEXTS and isinstance(each, str) and _is_theirs(each, ours)
        else _strip(each, ours, count)
        for name, each in value.items()
        if name not in ("metadata", "client_metadata")
    }


def _is_theirs(text: str, ours: set[str]) -> bool:
    return not (text.startswith(BILLING) or any(known in text or text in known for known in ours))


def _fill(value: Any) -> Any:
    if isinstance(value, list):
        return [_fill(each) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {STRIPPED}:
        return " ".join(islice(cycle(WORDS), value[STRIPPED]))
    return {name: _fill(each) for name, each in value.items()}


def prompt_tokens(answer: str) -> int:
    """The largest count that a stream of any of the faces tells; 0: none."""
    found = 0
    for line in answer.splitlines():
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            for holder in (event, event.get("message"), event.get("response")):
                usage = (holder or {}).get("usage") or {}
                counted = usage.get("input_tokens", 0) + usage.get("cache_read_input_tokens", 0)
                found = max(found, counted)
    return found
