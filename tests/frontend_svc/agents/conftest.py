"""A cluster with room for the prompts of agents, and their SDKs. A form is checked by a process that has to start:
the time limits are long."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anthropic
import httpx
import openai
import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.scripted_cluster import Cluster

TIMEOUT_S = 60


@pytest.fixture
async def cluster(tokenizer: Tokenizer) -> AsyncIterator[Cluster]:
    cluster = Cluster(tokenizer.fingerprint, tokenizer.fast.get_vocab_size())
    cluster.model.max_model_len = cluster.model.max_request_tokens = 4096
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def http(frontend: Frontend) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://127.0.0.1:{frontend.http_port}"
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
        yield client


@pytest.fixture
async def sdk(frontend: Frontend) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"http://127.0.0.1:{frontend.http_port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=TIMEOUT_S) as client:
        yield client


@pytest.fixture
async def claude(frontend: Frontend) -> AsyncIterator[anthropic.AsyncAnthropic]:
    url = f"http://127.0.0.1:{frontend.http_port}"
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key="none", max_retries=0, timeout=TIMEOUT_S
    ) as client:
        yield client
