"""Text and tokens that clients ask about by themselves: bounded, and made beside the event loop (AK7)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import orjson
import pytest

from frontend_svc.api.openai.tokenize import DetokenizeBody, TokenizeBody
from frontend_svc.config import Limits
from frontend_svc.models import Model
from frontend_svc.pooling.parts import Parts, cut_text, tokenize_parts
from frontend_svc.requests import token_calls
from frontend_svc.requests.token_calls import TokenCalls
from frontend_svc.text.tokenizer import LONG_TOKENS, Tokenizer
from signalbox.errors import RequestTooLargeError
from signalbox.v1 import frontend_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub

LONG = Model("long", 1 << 24, 1 << 24, block_size=4, vocab_size=320, num_workers=1)
TEXT = "the fox 🚂 " * 100_000
CONTEXT = 200
"""Tokens that the worker of the scripted cluster holds."""
KEPT = 0.6
"""Part of the time of one call of the library in which nobody else runs, when it keeps the interpreter."""


class Noted:
    """Passes everything on, and notes in which threads."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.threads: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.threads.add(threading.get_ident())
            return value(*arguments, **named)

        return call


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may ask about more than what the worker of the cluster holds."""
    monkeypatch.setattr(token_calls, "MOST_TOKENS", CONTEXT)


@pytest.fixture
def noted(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Noted:
    noted = Noted(tokenizer.fast)
    monkeypatch.setattr(tokenizer, "fast", noted)
    return noted


async def longest_silence(work: Awaitable[Any]) -> float:
    """The longest time between two turns of the event loop until `work` is done, as a part of all of it."""
    working, longest = asyncio.ensure_future(work), 0.0
    start = last = time.monotonic()
    while not working.done():
        await asyncio.sleep(0)
        last, before = time.monotonic(), last
        longest = max(longest, last - before)
    await working
    return longest / (last - start)


async def test_a_long_text_is_made_into_tokens_and_names_in_threads(
    tokenizer: Tokenizer, noted: Noted
) -> None:
    """Before, the names of 8.4 MB of text's tokens stopped the event loop for 1.25 s."""
    body = TokenizeBody(prompt=TEXT, return_token_strs=True)
    told = orjson.loads(await body.answer(tokenizer, None, TokenCalls(tokenizer, LONG, Limits())))  # type: ignore[arg-type]
    assert told["count"] == len(told["tokens"]) == len(told["token_strs"]) > LONG_TOKENS
    assert noted.threads and threading.get_ident() not in noted.threads


async def test_many_tokens_are_made_into_text_in_threads(tokenizer: Tokenizer, noted: Noted) -> None:
    """Before, 2.8 million ids stopped the event loop for 0.33 s."""
    calls = TokenCalls(tokenizer, LONG, Limits())
    tokens = await calls.tokenize(TEXT, "prompt", add_special_tokens=False)
    noted.threads.clear()
    told = await DetokenizeBody(tokens=tokens).answer(calls)
    assert orjson.loads(told) == {"prompt": TEXT}
    assert noted.threads and threading.get_ident() not in noted.threads


async def test_short_and_long_lists_become_the_same_text(tokenizer: Tokenizer) -> None:
    """By two calls of the library: special tokens are left out by both."""
    tokens = tokenizer.fast.encode("the <eos>fox").ids
    short = tokenizer.decode(tokens)
    assert await tokenizer.text_of(tokens * LONG_TOKENS) == short * LONG_TOKENS


WORK: dict[str, Callable[[Tokenizer, list[int]], Awaitable[Any]]] = {
    "encode": lambda tokenizer, ids: tokenizer.encode(TEXT, add_special_tokens=False),
    "decode": lambda tokenizer, ids: tokenizer.text_of(ids * 5),
    "pooled": lambda tokenizer, ids: asyncio.to_thread(tokenize_parts, tokenizer.fast, Parts(TEXT)),
    "cut": lambda tokenizer, ids: asyncio.to_thread(cut_text, tokenizer.fast, TEXT, 1000),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
async def test_the_event_loop_goes_on_meanwhile(
    tokenizer: Tokenizer, work: Callable[[Tokenizer, list[int]], Awaitable[Any]]
) -> None:
    """Before, inputs of embeddings, pairs and their cuts kept the interpreter in their thread: 0.45 s for 840,000
    tokens."""
    ids = await tokenizer.encode(TEXT, add_special_tokens=False)
    assert await longest_silence(work(tokenizer, ids)) < KEPT


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tokenize", {"prompt": "a" * 50_000}, "prompt"),
        ("/tokenize", {"prompt": "🚂 ö" * CONTEXT}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "🚂 ö" * CONTEXT}]}, "messages"),
        ("/detokenize", {"tokens": [5] * (CONTEXT + 1)}, "tokens"),
    ],
    ids=["characters", "tokens", "messages", "ids"],
)
async def test_too_many_are_refused(
    http: httpx.AsyncClient, few: None, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await http.post(path, json=body)
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert f"{CONTEXT} can be asked about at once" in error["message"]
    assert error["param"] == field


async def test_more_than_a_prompt_may_have_is_counted(http: httpx.AsyncClient) -> None:
    """Clients ask to see how much too long a text is."""
    told = (await http.post("/tokenize", json={"prompt": "🚂 ö" * CONTEXT})).json()
    assert told["count"] == len(told["tokens"]) > told["max_model_len"] == CONTEXT


async def test_as_much_as_the_model_takes_is_answered(http: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    tokens = [tokenizer.fast.encode(" fox").ids[0]] * CONTEXT
    text = (await http.post("/detokenize", json={"tokens": tokens})).json()["prompt"]
    assert (await http.post("/tokenize", json={"prompt": text})).json()["count"] <= CONTEXT


async def test_as_over_grpc(channel: grpc.aio.Channel, few: None) -> None:
    stub: Any = GenerationServiceStub(channel)
    for call, request, field in (
        (stub.Tokenize, frontend_pb2.TokenizeRequest(text="a" * 50_000), "text"),
        (stub.Tokenize, frontend_pb2.TokenizeRequest(text="🚂 ö" * CONTEXT), "text"),
        (stub.Detokenize, frontend_pb2.DetokenizeRequest(token_ids=[5] * (CONTEXT + 1)), "token_ids"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=f"{CONTEXT} can be asked about") as refused:
            await call(request)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(refused.value.trailing_metadata() or ())["signalbox-field"] == field


async def test_less_where_the_server_takes_less(tokenizer: Tokenizer) -> None:
    """--max-prompt-tokens bounds these calls, too: by the number of tokens, and by the text's length ahead of it."""
    calls = TokenCalls(tokenizer, LONG, Limits(max_prompt_tokens=4))
    with pytest.raises(RequestTooLargeError, match="the prompt has 5 tokens") as refused:
        await calls.detokenize([5] * 5, "tokens")
    assert refused.value.field == "tokens"
    for text in ("x y z q w v", "a" * 100):
        with pytest.raises(RequestTooLargeError):
            await calls.tokenize(text, "prompt", add_special_tokens=False)
