"""OpenAI's own SDK against whole rings: real processes, the demo model, and the sim runner."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.e2e.conftest import RunningRing, StartRing
from tests.e2e.test_ring import openai_client, read_status

PROMPT = "def quicksort("
USER: list[Any] = [{"role": "user", "content": PROMPT}]
RINGS = {"demo": (), "sim": ("--worker-set", "runner=sim")}


@pytest.fixture(scope="module", params=["demo", pytest.param("sim", marks=pytest.mark.slow)])
def ring(request: pytest.FixtureRequest, start_ring: StartRing) -> RunningRing:
    return start_ring(*RINGS[request.param])


@pytest.fixture
def demo(start_ring: StartRing) -> RunningRing:
    """For what the sim runner does not do."""
    return start_ring()


@pytest.fixture
def sdk(ring: RunningRing) -> Iterator[openai.OpenAI]:
    with openai_client(ring) as client:
        yield client


@pytest.fixture
def demo_sdk(demo: RunningRing) -> Iterator[openai.OpenAI]:
    with openai_client(demo) as client:
        yield client


@pytest.fixture
async def asdk(ring: RunningRing) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{ring.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def assert_empty(ring: RunningRing) -> None:
    """Sessions and scheduler hold nothing any more."""
    give_up = time.monotonic() + 20
    while True:
        status = read_status(ring)
        busy = status["num_waiting"] or any(worker["num_running"] for worker in status["workers"])
        sessions = "signalbox_frontend_open_sessions 0.0" in httpx.get(f"{ring.url}/metrics").text
        if not busy and sessions:
            return
        assert time.monotonic() < give_up, (status, sessions)
        time.sleep(0.1)


def complete(client: openai.OpenAI, **options: Any) -> Any:
    return client.completions.create(
        **({"model": "demo", "prompt": PROMPT, "max_tokens": 12, "temperature": 0} | options)
    )


def chat(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(
        **({"model": "demo", "messages": USER, "max_tokens": 12, "temperature": 0} | options)
    )


# ---- text


def test_a_stream_is_the_whole_answer(sdk: openai.OpenAI) -> None:
    whole = complete(sdk, extra_body={"ignore_eos": True})
    chunks = list(
        complete(sdk, stream=True, stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
    )
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], whole.usage.completion_tokens)
    assert whole.usage.completion_tokens == 12
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"


def test_a_streamed_chat_is_the_whole_answer(sdk: openai.OpenAI) -> None:
    whole = chat(sdk)
    chunks = list(chat(sdk, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert text == whole.choices[0].message.content


def test_choices_are_the_same_for_the_same_seed(sdk: openai.OpenAI) -> None:
    asked = {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 8}
    first, second = complete(sdk, **asked), complete(sdk, **asked)
    assert [c.index for c in first.choices] == [0, 1, 2]
    assert [c.text for c in first.choices] == [c.text for c in second.choices]
    assert first.usage.completion_tokens <= 24
    assert first.usage.prompt_tokens == complete(sdk).usage.prompt_tokens, "the prompt counts once"


def test_choices_differ(demo_sdk: openai.OpenAI) -> None:
    choices = complete(demo_sdk, n=3, temperature=1, seed=5).choices
    assert len({choice.text for choice in choices}) > 1


def test_streamed_choices_are_the_whole_ones(sdk: openai.OpenAI) -> None:
    asked = {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 8}
    texts = {0: "", 1: "", 2: ""}
    for chunk in chat(sdk, stream=True, **asked):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert list(texts.values()) == [c.message.content for c in chat(sdk, **asked).choices]


def test_a_list_of_prompts(sdk: openai.OpenAI) -> None:
    both = complete(sdk, prompt=[PROMPT, "class A"])
    single = [complete(sdk, prompt=prompt).choices[0].text for prompt in (PROMPT, "class A")]
    assert [choice.text for choice in both.choices] == single


def test_stop_and_bad_words(demo_sdk: openai.OpenAI) -> None:
    free = complete(demo_sdk, max_tokens=24).choices[0].text
    word = "self"
    assert word in free
    cut = complete(demo_sdk, max_tokens=24, stop=[word])
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == (free[: free.index(word)], "stop")
    assert word not in complete(demo_sdk, max_tokens=24, extra_body={"bad_words": [word]}).choices[0].text


def test_logprobs(demo_sdk: openai.OpenAI) -> None:
    answer = chat(demo_sdk, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert "".join(item.token for item in content) == answer.choices[0].message.content
    assert all(item.logprob == item.top_logprobs[0].logprob for item in content), "greedy is the likeliest"
    assert all(len(item.top_logprobs) == 3 for item in content)


def test_echo_scores_the_prompt(demo_sdk: openai.OpenAI) -> None:
    """What lm-eval asks of a server."""
    answer = complete(demo_sdk, echo=True, logprobs=1, max_tokens=1)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text.startswith(PROMPT)
    assert "".join(logprobs.tokens) == answer.choices[0].text
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert len(logprobs.tokens) == answer.usage.prompt_tokens + 1


# ---- forms and tools


SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


def test_a_json_schema(demo_sdk: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    answer = chat(demo_sdk, response_format=form, max_tokens=64)
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(answer.choices[0].message.content)["ok"], bool)


def test_a_schema_of_responses(demo_sdk: openai.OpenAI) -> None:
    form: Any = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
    answer = demo_sdk.responses.create(model="demo", input=PROMPT, text=form, max_output_tokens=64)
    assert isinstance(json.loads(answer.output_text)["ok"], bool)


def test_calls_of_the_models_choice_need_a_language_that_is_known(demo_sdk: openai.OpenAI) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    with pytest.raises(openai.BadRequestError) as caught:
        chat(demo_sdk, tools=tools)
    assert caught.value.param == "tool_choice"


@pytest.fixture(scope="module")
def tool_sdk(
    start_ring: StartRing,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[openai.OpenAI]:
    """The demo model with a template that tells it of tools."""
    directory = tmp_path_factory.mktemp("model")
    for path in DEMO_MODEL.iterdir():
        (directory / path.name).symlink_to(path)
    (directory / "chat_template.jinja").write_text(
        "{{ tools | tojson if tools else '' }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    )
    options = ("--model", str(directory), "--served-model-name", "demo")
    with openai_client(start_ring(*options, "--frontend-set", "tool-parser=hermes")) as client:
        yield client


TOOLS = [
    {"type": "function", "function": {"name": "switch", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "stop"}},
]


@pytest.mark.slow
def test_a_required_tool_is_called(tool_sdk: openai.OpenAI) -> None:
    asked = {"tools": TOOLS[:1], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}
    (choice,) = chat(tool_sdk, **asked).choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name == "switch"
    assert isinstance(json.loads(call.function.arguments)["ok"], bool)
    pieces = [c.choices[0].delta.tool_calls for c in chat(tool_sdk, stream=True, **asked)]
    streamed = "".join(piece.function.arguments or "" for calls in pieces for piece in calls or [])
    assert streamed == call.function.arguments


@pytest.mark.slow
def test_a_named_tool_is_called(tool_sdk: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "switch"}}
    (choice,) = chat(tool_sdk, tools=TOOLS, tool_choice=named, max_tokens=100).choices
    assert choice.finish_reason == "stop"
    (call,) = choice.message.tool_calls
    assert call.function.name == "switch"
    assert isinstance(json.loads(call.function.arguments)["ok"], bool)


@pytest.mark.slow
def test_text_beside_tools_stays_text(tool_sdk: openai.OpenAI) -> None:
    (choice,) = chat(tool_sdk, tools=TOOLS).choices
    assert (choice.finish_reason, choice.message.tool_calls) == ("length", None)
    assert choice.message.content


# ---- the other endpoints


def test_responses(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(model="demo", input=PROMPT, max_output_tokens=8, temperature=0)
    stream = sdk.responses.create(model="demo", input=PROMPT, max_output_tokens=8, temperature=0, stream=True)
    text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert text == answer.output_text


@pytest.mark.slow
def test_embeddings(demo_sdk: openai.OpenAI) -> None:
    answer = demo_sdk.embeddings.create(model="demo", input=["def f(x):", "def f(x):", "import os"])
    one, same, other = [item.embedding for item in answer.data]
    assert sum(value * value for value in one) == pytest.approx(1, abs=1e-3)

    def similarity(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert similarity(one, same) == pytest.approx(1, abs=1e-3)
    assert similarity(one, other) < similarity(one, same)
    short = demo_sdk.embeddings.create(model="demo", input="import os", dimensions=8, encoding_format="float")
    assert len(short.data[0].embedding) == 8


def test_models(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == ["demo"]
    assert sdk.models.retrieve("demo").id == "demo"


# ---- errors, and clients that leave


def test_errors_name_their_field(sdk: openai.OpenAI) -> None:
    for options, param in (
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"temprature": 1}}, "temprature"),
        ({"suffix": "x"}, "suffix"),
        ({"prompt": "x " * 20_000}, "prompt"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            complete(sdk, **options)
        assert caught.value.param == param


@pytest.mark.slow
def test_what_the_sim_runner_does_not_do_is_refused(start_ring: StartRing) -> None:
    with openai_client(start_ring(*RINGS["sim"])) as client:
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="demo", input="x")
        for name in ("logprobs", "prompt_logprobs"):
            with pytest.raises(openai.BadRequestError) as caught:
                complete(client, extra_body={name: 1})
            assert caught.value.param == name


def test_the_largest_top_k_keeps_all(sdk: openai.OpenAI) -> None:
    asked = {"temperature": 1, "seed": 3}
    largest = complete(sdk, extra_body={"top_k": 2**32 - 1}, **asked)
    assert largest.choices[0].text == complete(sdk, **asked).choices[0].text


async def test_many_at_a_time(asdk: openai.AsyncOpenAI, ring: RunningRing) -> None:
    async def one(index: int) -> str:
        stream = await asdk.completions.create(
            model="demo", prompt=f"{PROMPT}{index}", max_tokens=8, temperature=0, stream=True
        )
        return "".join([chunk.choices[0].text async for chunk in stream])

    first = await asyncio.gather(*map(one, range(16)))
    assert first == await asyncio.gather(*map(one, range(16)))
    assert_empty(ring)


async def test_leaving_ends_all_choices(asdk: openai.AsyncOpenAI, ring: RunningRing) -> None:
    stream = await asdk.completions.create(
        model="demo", prompt=PROMPT, n=4, max_tokens=1000, stream=True, extra_body={"ignore_eos": True}
    )
    async for _ in stream:
        break
    await stream.close()
    await asyncio.to_thread(assert_empty, ring)
