"""What Codex and Claude Code have sent, sent again: to a ring with the simulated model and room for 64k tokens, and to
the templates of the models that people serve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from frontend_svc.api.anthropic.body import MessagesBody
from frontend_svc.api.responses.body import ResponsesBody
from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.conversation import Conversation, Plain
from frontend_svc.templates.fitting import fit_messages
from frontend_svc.templates.regrouping import regroup
from frontend_svc.templates.switches import fit_variables
from frontend_svc.templates.traits import find_traits
from tests.contract.agents import recordings
from tests.contract.agents.event_order import check_messages, check_responses
from tests.contract.agents.model import make_directory
from tests.contract.agents.recordings import Call
from tests.contract.agents.scripted import MAX_MODEL_LEN, MODEL
from tests.contract.test_openai_sdk import assert_empty
from tests.downloads import chat_templates
from tests.e2e.conftest import RunningRing, StartRing

NUM_TOKENS = 48
"""Of an answer: the simulated model does not end by itself."""
VOCAB_SIZE = 151_669
LONGEST = {"codex": 8_000, "claude": 11_000}
"""Tokens of a first body at least."""
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
NO_RESULTS = {
    "Kimi-K2-Instruct", "Kimi-K2-Thinking", "fireworks-ai-llama-3-firefunction-v2", "llama-cpp-deepseek-r1",
}  # fmt: skip
"""Templates that refuse any result of a call, or any message, with transformers too."""

WITHOUT_SYSTEM = {"mistralai-Mistral-Nemo-Instruct-2407"}
"""Templates that write the system's first words only ahead of the user's last."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_directory(tmp_path_factory.mktemp("model") / "qwen3")
    (directory / "generation_config.json").write_text(json.dumps({"max_new_tokens": NUM_TOKENS}))
    return directory


@pytest.fixture
def ring(start_ring: StartRing, directory: Path) -> RunningRing:
    options = {"runner": "sim", "sim_base_ms": 0.2, "sim_token_ms": 0, "sim_vocab_size": VOCAB_SIZE}
    options |= {"max_model_len": MAX_MODEL_LEN}
    flags = [flag for name, value in options.items() for flag in ("--worker-set", f"{name}={value}")]
    given = ["--model", str(directory), "--served-model-name", MODEL, "--num-blocks", "8192"]
    return start_ring(*given, *flags)


@pytest.fixture
def http(ring: RunningRing) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=ring.url, timeout=60) as client:
        yield client


def send(http: httpx.Client, call: Call) -> httpx.Response:
    """As it was, but for the 32000 tokens that Claude Code asks for."""
    body = call.body | ({"max_tokens": NUM_TOKENS} if "max_tokens" in call.body else {})
    return http.request(call.method, call.target, json=body, headers=call.headers)


@pytest.mark.sampled
@pytest.mark.parametrize("name", recordings.names())
def test_every_call_is_answered(http: httpx.Client, ring: RunningRing, name: str) -> None:
    """No field is refused, and each stream is what its reader expects."""
    longest = 0
    for call in recordings.read(name):
        answer = send(http, call)
        assert answer.status_code == 200, answer.text
        if call.target.startswith("/v1/messages/count_tokens"):
            assert answer.json()["input_tokens"] > 0
            continue
        assert answer.headers["content-type"].startswith("text/event-stream")
        (check_responses if call.target == "/v1/responses" else check_messages)(answer.text)
        told = recordings.prompt_tokens(answer.text)
        assert not call.num_prompt_tokens or abs(told - call.num_prompt_tokens) < 0.1 * told
        longest = max(longest, told)
    if name != "claude_count":
        assert longest > LONGEST[name.partition("_")[0]]
    assert_empty(ring)


@pytest.mark.slow
def test_later_calls_find_their_beginning_in_the_cache(http: httpx.Client) -> None:
    """What changes with each call (ids, the billing block) is not told to the model."""
    for name in ("codex_loop", "claude_loop", "claude_search"):
        first, second, *_ = recordings.read(name)
        send(http, first)
        usage: dict[str, Any] = {}
        for line in send(http, second).text.splitlines():
            if '"usage":{' in line:
                event = json.loads(line.removeprefix("data: "))
                usage = (event.get("response") or event).get("usage") or usage
        cached = usage.get("input_tokens_details", {}).get("cached_tokens")
        assert (
            usage["cache_read_input_tokens"] if cached is None else cached
        ) > 0.9 * first.num_prompt_tokens


def test_a_head_of_the_root_and_the_models(http: httpx.Client) -> None:
    """Claude Code looks whether somebody is there, and Codex which models there are."""
    assert http.head("/").status_code == 200
    assert http.get("/v1/models?client_version=0.169.0").json()["data"][0]["id"] == MODEL


# ---- templates


def conversations() -> Iterator[tuple[str, Conversation]]:
    """What was said up to a result, and up to what followed it."""
    for name in ("codex_loop", "codex_image", "claude_loop", "claude_search"):
        for call in recordings.read(name)[1:]:
            if call.target == "/v1/responses":
                yield name, ResponsesBody.model_validate(call.body).conversation_of_input()
            else:
                yield name, MessagesBody.model_validate(call.body).conversation()


def texts_of(message: Plain) -> list[str]:
    """All but what the assistant said, which templates may cut."""
    content = message.get("content")
    if message["role"] == "assistant" or not content:
        return []
    return [content] if isinstance(content, str) else [part["text"] for part in content]


@pytest.mark.slow
def test_no_template_refuses_or_loses_what_agents_say() -> None:
    """LM12: of all models in llama.cpp's collection whose template has a place for tools."""
    told = [
        (name, talk, [text for message in talk.messages for text in texts_of(message)])
        for name, talk in conversations()
    ]
    num_templates = 0
    for family, source in chat_templates().items():
        template = ChatTemplate(source, TOKENS)
        if not template.takes_tools or family in NO_RESULTS:
            continue
        num_templates += 1
        traits = find_traits(template)
        for name, talk, texts in told:
            messages = fit_messages(regroup(talk.messages, traits), traits)
            prompt = template.render(messages, talk.tools, variables=fit_variables(talk, template.variables))
            unheard = int(family in WITHOUT_SYSTEM and talk.messages[-1]["role"] == "tool")
            for text in texts[unheard:]:
                words = text.split("\n")[0].strip()
                assert words in prompt or json.dumps(words)[1:-1] in prompt, (family, name, words[:200])
    assert num_templates > 40
