"""Several choices under one call: n, best_of, lists of prompts, and what usage says of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import httpx
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import frontend_pb2, generation_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from tests.frontend_svc.helpers import STOP, character_ids, choices_of, make_logprobs, until
from tests.frontend_svc.scripted_cluster import Cluster, Row

COMPLETION = {"model": "toy", "prompt": "the fox"}
CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}


def payload_of(submit: Any) -> generation_pb2.RequestPayload:
    return generation_pb2.RequestPayload.FromString(submit.payload)


def serve_letters(cluster: Cluster, tokenizer: Tokenizer) -> None:
    """Choice i of each prompt answers with i + 1 times its own letter."""
    ids = character_ids(tokenizer, "abcdefgh")
    cluster.serve(lambda payload: [ids[payload.choice_index]] * (payload.choice_index + 1), STOP)


@pytest.mark.parametrize("stream", [False, True])
async def test_n(http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer, stream: bool) -> None:
    """L18."""
    serve_letters(cluster, tokenizer)
    body = CHAT | {"n": 3, "stream": stream, "seed": 7}
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    answer = await http.post("/v1/chat/completions", json=body)
    texts = {0: "", 1: "", 2: ""}
    for choice in choices_of(answer):
        message = choice["delta"] if stream else choice["message"]
        texts[choice["index"]] += message.get("content", "")
    assert texts == {0: "a", 1: "bb", 2: "ccc"}
    usage = answer.json()["usage"] if not stream else json.loads(answer.text.split("data: ")[-2])["usage"]
    submits = [await cluster.scheduler.next("submit") for _ in range(3)]
    assert [payload_of(submit).choice_index for submit in submits] == [0, 1, 2]
    assert {payload_of(submit).sampling.seed for submit in submits} == {7}
    assert len({submit.ref.request_id for submit in submits}) == 3
    count = submits[0].meta.num_prompt_tokens
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (
        count,
        6,
        count + 6,
    )


async def test_choices_without_a_seed_share_a_drawn_one(http: httpx.AsyncClient, cluster: Cluster) -> None:
    cluster.serve(lambda payload: [9])
    await http.post("/v1/completions", json=COMPLETION | {"n": 2})
    first, second = [payload_of(await cluster.scheduler.next("submit")) for _ in range(2)]
    assert first.sampling.seed == second.sampling.seed
    assert (first.choice_index, second.choice_index) == (0, 1)


async def test_a_list_of_prompts(http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_letters(cluster, tokenizer)
    body = COMPLETION | {"prompt": ["the", "quick brown"], "n": 2}
    answer = (await http.post("/v1/completions", json=body)).json()
    made = [(choice["index"], choice["text"]) for choice in answer["choices"]]
    assert made == [(0, "a"), (1, "bb"), (2, "a"), (3, "bb")]
    counts = [len(tokenizer.fast.encode(prompt).ids) for prompt in ("the", "quick brown")]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (sum(counts), 6)


async def test_best_of_returns_the_likeliest(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    ids = character_ids(tokenizer, "abc")
    answering = asyncio.create_task(http.post("/v1/completions", json=COMPLETION | {"n": 2, "best_of": 3}))
    for index, logprob in enumerate((-3.0, -1.0, -2.0)):
        submit = await cluster.scheduler.next("submit")
        assert payload_of(submit).sampling.HasField("logprobs")
        logprobs = generation_pb2.TokenLogprobs(logprob=logprob, rank=1)
        cluster.worker.emit(Row(submit.ref.attempt, 0, [ids[index]], STOP, logprobs=[logprobs]))
    answer = (await answering).json()
    assert [(c["index"], c["text"], c["logprobs"]) for c in answer["choices"]] == [
        (0, "b", None),
        (1, "c", None),
    ]
    assert answer["usage"]["completion_tokens"] == 3, "all that were made count"


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_cancels_all_choices(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend, stream: bool
) -> None:
    answering = asyncio.create_task(
        http.post("/v1/completions", json=COMPLETION | {"n": 3, "stream": stream})
    )
    refs = [(await cluster.scheduler.next("submit")).ref for _ in range(3)]
    cluster.worker.emit(Row(refs[1].attempt, 0, [9]))
    await asyncio.sleep(0.05)
    answering.cancel()
    cancelled = [(await cluster.scheduler.next("cancel")).ref.attempt for _ in range(3)]
    assert sorted(cancelled) == sorted(ref.attempt for ref in refs)
    assert len(frontend.table) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_one_choice_that_fails_fails_the_call(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend, stream: bool
) -> None:
    answering = asyncio.create_task(
        http.post("/v1/completions", json=COMPLETION | {"n": 2, "stream": stream})
    )
    refs = [(await cluster.scheduler.next("submit")).ref for _ in range(2)]
    cluster.worker.emit(Row(refs[0].attempt, 0, [9]))
    error = generation_pb2.Error(code="InternalError", message="the model failed")
    cluster.worker.emit(Row(refs[1].attempt, 0, [9], generation_pb2.FINISH_REASON_ERROR, error))
    answer = await answering
    assert "the model failed" in answer.text
    assert answer.status_code == (200 if stream else 500)
    assert (await cluster.scheduler.next("cancel")).ref == refs[0]
    await until(lambda: len(frontend.table) == 0)


async def test_too_many_open_requests_open_none(
    cluster: Cluster, frontend: Frontend, http: httpx.AsyncClient
) -> None:
    frontend.table._max_open_requests = 2
    answer = await http.post("/v1/completions", json=COMPLETION | {"n": 3})
    assert answer.status_code == 429
    assert len(frontend.table) == 0
    assert cluster.scheduler.operations.empty()


async def test_usage_in_every_chunk(http: httpx.AsyncClient, cluster: Cluster) -> None:
    body = COMPLETION | {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    answering = asyncio.create_task(http.post("/v1/completions", json=body))
    ref = (await cluster.scheduler.next("submit")).ref
    for start in range(3):
        await asyncio.sleep(0.05)
        cluster.worker.emit(Row(ref.attempt, start, [9], STOP if start == 2 else 0))
    *lines, done, _ = (await answering).text.split("\n\n")
    assert done == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 3, 3]
    assert [bool(event["choices"]) for event in events] == [True, True, True, False]


# ---- the prompt


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_with_logprobs(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer, stream: bool
) -> None:
    a, b, c, d = character_ids(tokenizer, "abcd")
    body = COMPLETION | {"prompt": [a, b, c], "echo": True, "logprobs": 1, "stream": stream}
    answering = asyncio.create_task(http.post("/v1/completions", json=body))
    submit = await cluster.scheduler.next("submit")
    assert payload_of(submit).sampling.prompt_logprobs == 1
    assert submit.meta.wants_prompt_logprobs
    attempt = submit.ref.attempt
    # In two chunks, the second of which repeats what the first had.
    cluster.worker.emit(Row(attempt, 0, prompt_logprobs=[make_logprobs(b)]))
    both = [make_logprobs(b), make_logprobs(c)]
    cluster.worker.emit(Row(attempt, 0, [d], STOP, logprobs=[make_logprobs(d)], prompt_logprobs=both))
    choices = choices_of(await answering)
    assert "".join(choice["text"] for choice in choices) == "abcd"
    made = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert [token for item in made for token in item["tokens"]] == ["a", "b", "c", "d"]
    assert [value for item in made for value in item["token_logprobs"]] == [None, -0.5, -0.5, -0.5]
    assert [offset for item in made for offset in item["text_offset"]] == [0, 1, 2, 3]


async def test_echo_of_nothing_but_the_prompt(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    cluster.serve(lambda payload: character_ids(tokenizer, "x"))
    body = COMPLETION | {"echo": True, "max_tokens": 0}
    answer = (await http.post("/v1/completions", json=body)).json()
    assert (answer["choices"][0]["text"], answer["usage"]["completion_tokens"]) == ("the fox", 0)


async def test_prompt_logprobs(http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer) -> None:
    a, b, c = character_ids(tokenizer, "abc")
    body = COMPLETION | {"prompt": [a, b], "prompt_logprobs": 1}
    answering = asyncio.create_task(http.post("/v1/completions", json=body))
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    item = generation_pb2.TokenLogprobs(logprob=-2, rank=5, top_token_ids=[c], top_logprobs=[-0.5])
    cluster.worker.emit(Row(attempt, 0, [c], STOP, prompt_logprobs=[item]))
    assert (await answering).json()["choices"][0]["prompt_logprobs"] == [
        None,
        {
            str(b): {"logprob": -2, "rank": 5, "decoded_token": "b"},
            str(c): {"logprob": -0.5, "rank": 1, "decoded_token": "c"},
        },
    ]


async def test_tokens_without_the_prompts_logprobs_are_made_anew(
    http: httpx.AsyncClient, cluster: Cluster
) -> None:
    """F4: the chunks before them have been lost."""
    answering = asyncio.create_task(http.post("/v1/completions", json=COMPLETION | {"prompt_logprobs": 0}))
    first = (await cluster.scheduler.next("submit")).ref
    cluster.worker.emit(Row(first.attempt, 0, [9], STOP))
    assert (await cluster.scheduler.next("cancel")).ref == first
    again = await cluster.scheduler.next("submit")
    cluster.scheduler.reject(again.ref, "UnavailableError", "enough")
    assert (await answering).status_code == 503


async def test_bad_words_are_tokenized_with_and_without_a_space(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    cluster.serve(lambda payload: [9])
    await http.post("/v1/completions", json=COMPLETION | {"bad_words": ["fox"]})
    payload = payload_of(await cluster.scheduler.next("submit"))
    sequences = [list(sequence.token_ids) for sequence in payload.bad_token_sequences]
    bare, spaced = (tokenizer.fast.encode(word).ids for word in ("fox", " fox"))
    assert sequences == [bare] if spaced[-len(bare) :] == bare else [bare, spaced]


# ---- gRPC


async def test_n_over_grpc(frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_letters(cluster, tokenizer)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        stub: Any = GenerationServiceStub(channel)
        request = frontend_pb2.GenerateRequest(text="the fox", n=3, request_id="mine")
        responses = [response async for response in stub.Generate(request)]
    assert [response.HasField("accepted") for response in responses] == [True] + [False] * (
        len(responses) - 1
    )
    texts = ["".join(r.text for r in responses if r.index == index) for index in range(3)]
    assert texts == ["a", "bb", "ccc"]
    assert sorted(r.index for r in responses if r.HasField("finished")) == [0, 1, 2]


async def test_the_sdk_sees_all_choices(
    sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_letters(cluster, tokenizer)
    answer = await sdk.chat.completions.create(model="toy", messages=[{"role": "user", "content": "hi"}], n=2)
    assert [choice.message.content for choice in answer.choices] == ["a", "bb"]


async def test_whole_answers_are_never_paused(
    http: httpx.AsyncClient, cluster: Cluster, frontend: Frontend
) -> None:
    most = frontend.table.max_backlog_tokens
    cluster.serve(lambda payload: [9] * (most + 50))
    body = COMPLETION | {"max_tokens": most + 50}
    answer = (await http.post("/v1/completions", json=body)).json()
    assert answer["usage"]["completion_tokens"] == most + 50
    await cluster.scheduler.next("submit")
    assert cluster.scheduler.operations.empty(), "nobody was slow"


async def test_an_answer_leaves_no_timer_behind(http: httpx.AsyncClient, cluster: Cluster) -> None:
    cluster.serve(lambda payload: [9], STOP)
    headers = {"X-Request-Timeout": "3600"}
    for stream in (False, True):
        await http.post("/v1/completions", json=COMPLETION | {"stream": stream}, headers=headers)
    loop: Any = asyncio.get_running_loop()
    live = [handle for handle in loop._scheduled if not handle.cancelled()]
    assert not [handle for handle in live if "Choices" in repr(handle)]
