"""The OpenAI-compatible face, over real sockets and against a scripted cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.tokenizer import Tokenizer
from tests.frontend_svc.scripted_cluster import Cluster


@pytest.fixture
async def http(frontend: Frontend) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}", timeout=5) as client:
        yield client


@pytest.fixture
async def sdk(frontend: Frontend) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"http://127.0.0.1:{frontend.http_port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=5) as client:
        yield client


def serve_text(cluster: Cluster, tokenizer: Tokenizer, text: str, reason: int = 1) -> None:
    cluster.serve(lambda payload: tokenizer.fast.encode(text).ids, reason)


async def test_completion(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_text(cluster, tokenizer, " fox 🚂")
    answer = await sdk.completions.create(model="toy", prompt="the quick brown")
    assert answer.choices[0].text == " fox 🚂"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(tokenizer.fast.encode("the quick brown").ids)


async def test_streamed_completion(sdk: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer) -> None:
    serve_text(cluster, tokenizer, " fox 🚂 jumps")
    stream = await sdk.completions.create(
        model="toy", prompt="the", stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == " fox 🚂 jumps"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(tokenizer.fast.encode(" fox 🚂 jumps").ids)
