"""Small things that several tests need."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import generation_pb2
from tests.frontend_svc.scripted_cluster import Cluster

STOP = generation_pb2.FINISH_REASON_STOP


async def until(condition: Callable[[], object], timeout_s: float = 5) -> None:
    """Returns when `condition` holds; fails when it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


def character_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """One token per character of ASCII text, however the tokenizer would join them."""
    ids = [tokenizer.fast.token_to_id(character) for character in text]
    assert None not in ids
    return [token for token in ids if token is not None]


def serve_text(cluster: Cluster, tokenizer: Tokenizer, text: str) -> int:
    """Answers every request with this text; returns its tokens."""
    ids = tokenizer.fast.encode(text).ids
    cluster.serve(lambda payload: ids, STOP)
    return len(ids)


def make_logprobs(*token_ids: int) -> generation_pb2.TokenLogprobs:
    """The first token was chosen; all are the likeliest, best first."""
    logprobs = [-0.5 - index for index in range(len(token_ids))]
    return generation_pb2.TokenLogprobs(logprob=-0.5, rank=1, top_token_ids=token_ids, top_logprobs=logprobs)


def choices_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """Of a whole answer or of all chunks."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return list(answer.json()["choices"])
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
