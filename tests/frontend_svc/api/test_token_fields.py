"""Fields about tokens: special ones in the text, ids beside it, what the answer begins with."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import generation_pb2
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.helpers import STOP, choices_of, make_logprobs, serve_text
from tests.frontend_svc.scripted_cluster import Cluster

LENGTH = generation_pb2.FINISH_REASON_LENGTH
USER: list[Any] = [{"role": "user", "content": "hi"}]
CHAT: dict[str, Any] = {"model": "toy", "messages": USER}
COMPLETION: dict[str, Any] = {"model": "toy", "prompt": "the fox"}
ENDPOINTS = pytest.mark.parametrize(
    ("path", "body"), [("completions", COMPLETION), ("chat/completions", CHAT)]
)


def text_of(answer: httpx.Response) -> str:
    """Of one choice, whole or streamed."""
    text = ""
    for choice in choices_of(answer):
        told = choice.get("message") or choice.get("delta") or choice
        text += told.get("content") or told.get("text") or ""
    return text


@ENDPOINTS
@pytest.mark.parametrize("stream", [False, True])
async def test_special_tokens_are_text_where_they_are_wanted(
    http: httpx.AsyncClient,
    cluster: Cluster,
    tokenizer: Tokenizer,
    path: str,
    body: dict[str, Any],
    stream: bool,
) -> None:
    """The one that ends the output is none of it, unless that is wanted too."""
    ids = [tokenizer.special_tokens["<bos>"], *tokenizer.fast.encode("oné").ids]
    cluster.serve(lambda payload: [*ids, tokenizer.special_tokens["<eos>"]], STOP)
    for fields, text in (
        ({}, "oné"),
        ({"skip_special_tokens": False}, "<bos>oné"),
        ({"skip_special_tokens": False, "spaces_between_special_tokens": False}, "<bos>oné"),
        ({"skip_special_tokens": False, "include_stop_str_in_output": True}, "<bos>oné<eos>"),
        ({"skip_special_tokens": False, "ignore_eos": True}, "<bos>oné<eos>"),
    ):
        answer = await http.post(f"/v1/{path}", json=body | fields | {"stream": stream})
        assert text_of(answer) == text, fields


@ENDPOINTS
async def test_a_token_that_ends_the_output_is_none_of_its_text(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer, path: str, body: dict[str, Any]
) -> None:
    """As with vLLM, and as a stop string."""
    ids = [tokenizer.fast.encode(letter).ids[0] for letter in "abc"]
    cluster.serve(lambda payload: ids, STOP)
    for keep, text in ((False, "ab"), (True, "abc")):
        fields = {"stop_token_ids": ids[-1:], "include_stop_str_in_output": keep}
        for stream in (False, True):
            answer = await http.post(f"/v1/{path}", json=body | fields | {"stream": stream})
            assert text_of(answer) == text
        (choice,) = choices_of(await http.post(f"/v1/{path}", json=body | fields))
        assert (choice["stop_reason"], choice["finish_reason"]) == (ids[-1], "stop")


async def test_reasoning_and_calls_are_read_with_special_tokens_too(
    start: Start, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """LM2: what a parser reads as a tag is no text; the others are."""
    frontend = await start(reasoning_parser="qwen3", key_file=None)
    ids = tokenizer.fast.encode("<think>a<bos>b</think>c<bos>d<eos>").ids
    cluster.serve(lambda payload: ids, STOP)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        body = CHAT | {"skip_special_tokens": False}
        message = (await http.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("a<bos>b", "c<bos>d")


async def test_ids_of_tokens_in_whole_answers(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.fast.encode("oné<eos>").ids
    cluster.serve(lambda payload: ids, STOP)
    completion = (await http.post("/v1/completions", json=COMPLETION | {"return_token_ids": True})).json()
    (choice,) = completion["choices"]
    assert choice["token_ids"] == ids
    assert choice["prompt_token_ids"] == tokenizer.fast.encode("the fox").ids
    chat = (await http.post("/v1/chat/completions", json=CHAT | {"return_token_ids": True, "n": 2})).json()
    assert [each["token_ids"] for each in chat["choices"]] == [ids, ids]
    assert tokenizer.fast.decode(chat["prompt_token_ids"]).endswith("<|user|>hi\n<|assistant|>")
    plain = (await http.post("/v1/chat/completions", json=CHAT)).json()
    assert "prompt_token_ids" not in plain and "token_ids" not in plain["choices"][0]


async def test_ids_of_tokens_in_streams(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """All of them, also those without text; the prompt's come once."""
    ids = [tokenizer.special_tokens["<bos>"], *tokenizer.fast.encode("oné").ids]
    cluster.serve(lambda payload: ids, LENGTH)
    asked = {"return_token_ids": True, "stream": True}
    chunks = choices_of(await http.post("/v1/completions", json=COMPLETION | asked))
    assert [token for chunk in chunks for token in chunk["token_ids"]] == ids
    prompts = [chunk["prompt_token_ids"] for chunk in chunks if "prompt_token_ids" in chunk]
    assert prompts == [tokenizer.fast.encode("the fox").ids]
    answer = await http.post("/v1/chat/completions", json=CHAT | asked)
    chunks = choices_of(answer)
    assert [token for chunk in chunks for token in chunk.get("token_ids", ())] == ids
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [bool(event.get("prompt_token_ids")) for event in events].count(True) == 1
    assert events[0]["prompt_token_ids"]


async def test_tokens_of_log_probabilities_may_be_called_by_their_ids(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.fast.encode("é").ids
    cluster.serve(lambda payload: ids, LENGTH, logprobs=[make_logprobs(token, 5) for token in ids])
    named = [f"token_id:{token}" for token in ids]
    asked = {"return_tokens_as_token_ids": True}
    chat = await http.post("/v1/chat/completions", json=CHAT | asked | {"logprobs": True, "top_logprobs": 2})
    content = choices_of(chat)[0]["logprobs"]["content"]
    assert [token["token"] for token in content] == named
    assert b"".join(bytes(token["bytes"]) for token in content) == "é".encode()
    assert content[0]["top_logprobs"][1]["token"] == "token_id:5"
    completion = await http.post("/v1/completions", json=COMPLETION | asked | {"logprobs": 2})
    told = choices_of(completion)[0]["logprobs"]
    assert told["tokens"] == named and told["top_logprobs"][0].keys() == {named[0], "token_id:5"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_may_begin_with_the_message_that_it_goes_on(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer, stream: bool
) -> None:
    serve_text(cluster, tokenizer, " fox")
    begun = [*USER, {"role": "assistant", "content": [{"type": "text", "text": "the quick"}]}]
    for messages, echo, text in (
        (begun, True, "the quick fox"),
        (begun, False, " fox"),
        (USER, True, " fox"),
    ):
        body = CHAT | {"messages": messages, "echo": echo, "stream": stream}
        body |= {"continue_final_message": messages is begun}
        assert text_of(await http.post("/v1/chat/completions", json=body)) == text


async def test_the_text_of_the_prompt_is_told(
    http: httpx.AsyncClient, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, " fox")
    body = CHAT | {"return_prompt_text": True}
    whole = (await http.post("/v1/chat/completions", json=body)).json()
    assert whole["prompt_text"] == "<bos><|user|>hi\n<|assistant|>"
    streamed = await http.post("/v1/chat/completions", json=body | {"stream": True})
    first, *others = [json.loads(line[6:]) for line in streamed.text.split("\n\n") if "{" in line]
    assert first["prompt_text"] == whole["prompt_text"] and not any("prompt_text" in each for each in others)


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_of_reasoning_that_is_left_out_are_not_told(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, stream: bool
) -> None:
    """LM1: neither by their ids nor beside log-probabilities, nor those that have no text yet. In this vocabulary the
    mark that begins it is spelled, and known with its last letter."""
    frontend = await start(reasoning_parser="qwen3", key_file=None)
    parts = [tokenizer.fast.encode(part).ids for part in ("<think>", "\nhé 東", "</think>", "yes")]
    ids, shown = [token for part in parts for token in part], parts[0][:-1] + parts[-1]
    cluster.serve(lambda payload: ids, LENGTH, logprobs=[make_logprobs(token) for token in ids])
    body = CHAT | {"return_token_ids": True, "include_reasoning": False, "logprobs": True, "stream": stream}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        answer = await http.post("/v1/chat/completions", json=body)
        everything = choices_of(
            await http.post("/v1/chat/completions", json=body | {"include_reasoning": True})
        )
    choices = choices_of(answer)
    assert [token for each in choices for token in each.get("token_ids", ())] == shown
    told = [token["token"] for each in choices for token in (each["logprobs"] or {}).get("content", ())]
    assert "".join(told) == "<thinkyes"
    assert [token for each in everything for token in each.get("token_ids", ())] == ids


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("reasoning", {"reasoning"}),
        ("reasoning_content", {"reasoning_content"}),
        ("both", {"reasoning", "reasoning_content"}),
    ],
)
async def test_the_name_of_reasoning_is_a_setting(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, setting: str, names: set[str]
) -> None:
    frontend = await start(reasoning_parser="qwen3", key_file=None, reasoning_field=setting)
    serve_text(cluster, tokenizer, "<think>hm</think>yes")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        for stream in (False, True):
            told: dict[str, str] = {}
            for choice in choices_of(await http.post("/v1/chat/completions", json=CHAT | {"stream": stream})):
                for name, text in (choice.get("message") or choice["delta"]).items():
                    if name.startswith("reasoning"):
                        told[name] = told.get(name, "") + text
            assert told == dict.fromkeys(names, "hm")


async def test_either_end_of_a_prompt_may_be_cut(http: httpx.AsyncClient, cluster: Cluster) -> None:
    prompts: list[list[int]] = []

    def answer(payload: Any) -> list[int]:
        prompts.append(memoryview(payload.token_ids).cast("i").tolist())
        return [5]

    cluster.serve(answer, STOP)
    for side, kept in (("left", [7, 8]), ("right", [5, 6])):
        body = {"prompt": [5, 6, 7, 8], "truncate_prompt_tokens": 2, "truncation_side": side}
        assert (await http.post("/v1/completions", json=body)).status_code == 200
        assert prompts[-1] == kept
