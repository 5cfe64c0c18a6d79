"""What a model's language asks of the whole ring: calls that are strict, forms beside them, and reasoning that is
bounded, with and without drafts. The demo model knows no such language: its last tokens are made into tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.e2e.conftest import MODEL, RunningRing, StartRing

TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
TOLD_TOOLS = "{%- if tools -%}{{- '# ' ~ (tools | tojson) ~ '\\n' -}}{%- endif -%}"
PROMPT = "def read(path):\n"
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS, "strict": True}}]
ANSWER = PARAMETERS | {"properties": {"city": {"enum": ["Bonn", "Rome"]}, "days": {"type": "boolean"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}
METHODS = {"plain": (), "drafts": ("--speculative", "ngram:6")}
NUM_DRAWS = 4


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the demo model with tags as tokens, and a template with a place for tools."""
    directory = tmp_path_factory.mktemp("talker")
    for path in MODEL.iterdir():
        if path.is_file():
            (directory / path.name).symlink_to(path.resolve())
    _rewrite(directory / "tokenizer.json", _with_tags)
    _rewrite(
        directory / "tokenizer_config.json",
        lambda config: config | {"chat_template": TOLD_TOOLS + config["chat_template"]},
    )
    return directory


def _rewrite(path: Path, change: Any) -> None:
    content = change(json.loads(path.read_text()))
    path.unlink()
    path.write_text(json.dumps(content))


def _with_tags(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The last tokens of the vocabulary are the tags; nothing is merged into them."""
    model = tokenizer["model"]
    names = {number: name for name, number in model["vocab"].items()}
    for number, tag in zip(sorted(names)[-len(TAGS) :], TAGS, strict=True):
        replaced = names[number]
        del model["vocab"][replaced]
        model["vocab"][tag] = number
        model["merges"] = [pair for pair in model["merges"] if _joined(pair) != replaced]
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        tokenizer["added_tokens"].append({"id": number, "content": tag, "special": True, **flags})
    return tokenizer


def _joined(pair: Any) -> str:
    return "".join(pair.split(" ") if isinstance(pair, str) else pair)


@pytest.fixture(params=METHODS)
def ring(request: pytest.FixtureRequest, start_ring: StartRing, talker: Path) -> RunningRing:
    families = ("--frontend-set", "reasoning-parser=qwen3", "--frontend-set", "tool-parser=hermes")
    named = ("--model", str(talker), "--served-model-name", "demo", "--dtype", "float32")
    return start_ring(*named, *families, *METHODS[request.param])


def ask(ring: RunningRing, content: str, **options: Any) -> dict[str, Any]:
    body = {"model": "demo", "messages": [{"role": "user", "content": content}], "max_tokens": 200} | options
    response = httpx.post(f"{ring.url}/v1/chat/completions", json=body, timeout=90)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(ring: RunningRing, content: str, **options: Any) -> dict[str, Any]:
    """The texts of all deltas by their names, and the usage."""
    body = {"model": "demo", "messages": [{"role": "user", "content": content}], "stream": True} | options
    told: dict[str, Any] = {"content": "", "reasoning": ""}
    response = httpx.post(
        f"{ring.url}/v1/chat/completions", json=body | {"stream_options": {"include_usage": True}}, timeout=90
    )
    for line in response.text.splitlines():
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line.removeprefix("data: "))
        told["usage"] = chunk.get("usage")
        for choice in chunk["choices"]:
            for name in ("content", "reasoning"):
                told[name] += choice["delta"].get(name) or ""
    return told


def test_a_strict_call_that_begins_is_well_formed(ring: RunningRing, talker: Path) -> None:
    """LM11: also where a bias makes the model call and nothing else speaks for what it writes then."""
    vocabulary = json.loads((talker / "tokenizer.json").read_text())["model"]["vocab"]
    bias = {str(vocabulary["<tool_call>"]): 100}
    options: dict[str, Any] = {"tools": TOOLS, "temperature": 1.5, "parallel_tool_calls": False}
    for seed in range(NUM_DRAWS):
        (choice,) = ask(ring, PROMPT, logit_bias=bias, seed=seed, **options)["choices"]
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "weather"
        jsonschema.validate(json.loads(call["function"]["arguments"]), PARAMETERS)
    (free,) = ask(ring, PROMPT, **options, seed=1, max_tokens=20)["choices"]
    assert free["message"]["content"], "text is free"


def test_calls_or_an_answer_in_its_form(ring: RunningRing, talker: Path) -> None:
    """LM15."""
    vocabulary = json.loads((talker / "tokenizer.json").read_text())["model"]["vocab"]
    for bias in (-100, 100):
        for seed in range(2):
            (choice,) = ask(
                ring,
                PROMPT,
                tools=TOOLS,
                response_format=FORMAT,
                parallel_tool_calls=False,
                temperature=1.5,
                seed=seed,
                logit_bias={str(vocabulary["<tool_call>"]): bias},
            )["choices"]
            if bias > 0:
                assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"]
                (call,) = choice["message"]["tool_calls"]
                jsonschema.validate(json.loads(call["function"]["arguments"]), PARAMETERS)
            else:
                assert choice["finish_reason"] == "stop" and not choice["message"].get("tool_calls")
                jsonschema.validate(json.loads(choice["message"]["content"]), ANSWER)


@pytest.mark.parametrize("budget", [0, 1, 9])
def test_reasoning_ends_where_its_budget_does(ring: RunningRing, budget: int) -> None:
    """LM14: all of it is used, as the model never ends by itself, and the answer goes on."""
    options: dict[str, Any] = {"thinking_token_budget": budget, "temperature": 0, "max_tokens": 40}
    whole = ask(ring, f"{PROMPT}<think>", **options)
    (choice,) = whole["choices"]
    streamed = stream(ring, f"{PROMPT}<think>", **options)
    for usage in (whole["usage"], streamed["usage"]):
        assert usage["completion_tokens_details"]["reasoning_tokens"] == budget
    assert choice["message"]["content"] == streamed["content"] != ""
    assert (choice["message"].get("reasoning") or "") == streamed["reasoning"]
    if budget > 1:
        assert streamed["reasoning"]
