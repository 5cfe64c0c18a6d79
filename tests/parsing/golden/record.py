"""Makes and reads the files."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from frontend_svc.api.openai.chat_prompt import make_chat_prompt
from frontend_svc.text.model_language import find_language
from frontend_svc.text.parsed_stream import ParsedStream
from frontend_svc.text.parsing.events import CallArguments, CallStart, Event, Reasoning, Text
from frontend_svc.text.parsing.language import Language, ParserPlan
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import SignalboxError
from tests.downloads import vocabulary
from tests.parsing.golden.features import Feature
from tests.parsing.golden.models import Model
from tests.parsing.reading import Found, collect, pieces_of

FILES = Path(__file__).parent / "files"
NUM_UNITS = 12
"""Characters and tags of one piece of the stream."""
REFUSED = "No prompt: "
_SECTION = re.compile(r"^=== ([a-z ]+)\n(.*?)(?=^=== |\Z)", re.MULTILINE | re.DOTALL)
_MADE_ID = re.compile(r"call_[0-9a-f]{24}|[A-Za-z0-9]{9}")


@dataclass(frozen=True)
class Golden:
    """One file."""

    prompt: str
    """Empty: no template is at hand."""
    prompt_tokens: Sequence[int]
    """Empty: no vocabulary is at hand."""
    output: str
    streamed: str
    message: str

    def write(self) -> str:
        tokens = textwrap.fill(" ".join(map(str, self.prompt_tokens)), 100)
        parts = {
            "prompt": self.prompt,
            "tokens of the prompt": tokens,
            "output": self.output,
            "streamed": self.streamed,
            "message": self.message,
        }
        return "".join(f"=== {name}\n{text}\n" for name, text in parts.items() if text)


def path_of(model: Model, name: str) -> Path:
    """Where the file of one feature is."""
    return FILES / model.way.replace(" ", "_") / f"{name.replace(' ', '_')}.txt"


def read_golden(path: Path) -> Golden:
    parts = {name: text[:-1] for name, text in _SECTION.findall(path.read_text())}
    return Golden(
        parts.get("prompt", ""),
        [int(token) for token in parts.get("tokens of the prompt", "").split()],
        parts.get("output", ""),
        parts["streamed"],
        parts["message"],
    )


async def make_prompt(model: Model, feature: Feature) -> tuple[str, Sequence[int]]:
    """What the model's template makes, or the error that the client gets, and the tokens of it. Skips the test where
    these cannot be had."""
    if not model.template:
        return "", ()
    toolbox = feature.toolbox()
    try:
        prompt = await make_chat_prompt(
            feature.conversation(), toolbox, toolbox.form(), model.prompts, model.language
        )
    except SignalboxError as error:
        return f"{REFUSED}{error}", ()
    if not model.vocabulary:
        return prompt.text, ()
    tokens = await tokenizer_of(model.vocabulary).encode(prompt.text, add_special_tokens=False)
    return prompt.text, tokens


def make_golden(model: Model, feature: Feature, prompt: str, tokens: Sequence[int]) -> Golden:
    """All but the prompt follows from that."""
    within = model.language.opens_reasoning(prompt)
    output = feature.written(model, within=within)
    streamed, found = _stream(
        plan_of(model.language, feature, within=within), model, output, is_whole=feature.is_whole
    )
    return Golden(prompt, tokens, output, streamed, json.dumps(_message(found), indent=1, ensure_ascii=False))


def plan_of(language: Language, feature: Feature, *, within: bool) -> ParserPlan | None:
    toolbox = feature.toolbox()
    return language.plan("", toolbox.callable, calls=toolbox.calls, reasons=within)


def read_tokens(model: Model, feature: Feature, golden: Golden) -> str:
    """The message, of the output as tokens of the model's vocabulary that come one by one."""
    tokenizer = tokenizer_of(model.vocabulary)
    language = find_language(tokenizer, model.language.reasoning or "none", model.language.tools)
    plan = plan_of(language, feature, within=language.opens_reasoning(golden.prompt))
    if plan is None:
        return json.dumps(_message(Found(golden.output)), indent=1, ensure_ascii=False)
    stream = ParsedStream(tokenizer, (), plan)
    events: list[Event] = []
    for token in tokenizer.fast.encode(golden.output, add_special_tokens=False).ids:
        events += stream.push((token,)).events
    events += stream.flush(is_whole=feature.is_whole).events
    return json.dumps(_message(collect(events)), indent=1, ensure_ascii=False)


@cache
def tokenizer_of(name: str) -> Tokenizer:
    source = vocabulary(name)
    return Tokenizer(FastTokenizer.from_buffer(source), source, {}, None)


def _stream(plan: ParserPlan | None, model: Model, output: str, *, is_whole: bool) -> tuple[str, Found]:
    if plan is None:
        return f"text {json.dumps(output, ensure_ascii=False)}", Found(output)
    parser, units = plan.make(), model.family.units(output)
    told: list[Event] = []
    lines: list[str] = []
    for start in range(0, len(units) + NUM_UNITS, NUM_UNITS):
        is_end = start >= len(units)
        events = (
            parser.flush(is_whole=is_whole)
            if is_end
            else parser.push(pieces_of(units[start : start + NUM_UNITS]))
        )
        told += events
        if events:
            lines.append("; ".join(map(_line, events)))
    return "\n".join(lines), collect(told)


def _line(event: Event) -> str:
    match event:
        case CallStart(index, name, call_id):
            return f"call {index} {name} {_shown(call_id)}"
        case CallArguments(index, text):
            return f"arguments {index} {json.dumps(text, ensure_ascii=False)}"
        case Text(text):
            return f"text {json.dumps(text, ensure_ascii=False)}"
        case Reasoning(text):
            return f"reasoning {json.dumps(text, ensure_ascii=False)}"


def _message(found: Found) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    if found.reasoning:
        message["reasoning"] = found.reasoning
    message["content"] = found.content or None
    if found.calls:
        message["tool_calls"] = [
            {"id": _shown(call_id), "name": name, "arguments": arguments}
            for call_id, (name, arguments) in zip(found.ids, found.calls, strict=True)
        ]
    return message


def _shown(call_id: str) -> str:
    """One that was made is another one each time."""
    return f"({len(call_id)} characters)" if _MADE_ID.fullmatch(call_id) else call_id
