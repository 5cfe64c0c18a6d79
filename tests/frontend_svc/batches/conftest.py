"""Frontends that keep files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from frontend_svc.access import quota
from frontend_svc.batches import batch_run, journal_writer, runner, troubles
from frontend_svc.server import Frontend
from tests.frontend_svc.guarded import Start, sdk_of
from tests.frontend_svc.scripted_cluster import Cluster

ENDED = {"failed", "completed", "expired", "cancelled"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks for news often."""
    monkeypatch.setattr(batch_run, "LOOK_S", 0.02)
    monkeypatch.setattr(batch_run, "RETRY_S", 0.05)
    monkeypatch.setattr(journal_writer, "RETRY_S", 0.05)
    monkeypatch.setattr(runner, "LOOK_S", 0.05)
    monkeypatch.setattr(troubles, "FIRST_RETRY_S", 0.05)
    monkeypatch.setattr(quota, "AT_ONCE_RETRY_S", 0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
async def keeper(start: Start, folder: Path) -> Frontend:
    """Anybody may call it."""
    return await start(key_file=None, files_dir=folder)


@pytest.fixture
async def client(keeper: Frontend) -> AsyncIterator[openai.AsyncOpenAI]:
    async with sdk_of(keeper, "none") as client:
        yield client


@pytest.fixture
def stuck(cluster: Cluster) -> Callable[[], int]:
    """Requests are placed and make nothing; says how many have come."""
    seen: list[Any] = []

    def place(operation: Any) -> None:
        if operation.WhichOneof("operation") == "submit":
            seen.append(operation.submit)
            cluster.scheduler.place(operation.submit.ref)

    cluster.scheduler.on_operation = place
    return lambda: len(seen)


def make_lines(count: int, url: str = "/v1/completions", **body: Any) -> bytes:
    """An input of so many requests."""
    given = {"model": "toy", "prompt": "the fox", "max_tokens": 4} | body
    lines = (
        {"custom_id": f"c{number}", "method": "POST", "url": url, "body": given} for number in range(count)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def make_batch(client: openai.AsyncOpenAI, lines: bytes, **fields: Any) -> Any:
    file = await client.files.create(file=("in.jsonl", lines), purpose="batch")
    given: Any = {"endpoint": "/v1/completions", "completion_window": "24h"} | fields
    return await client.batches.create(input_file_id=file.id, **given)


async def until_end(client: openai.AsyncOpenAI, batch_id: str, timeout_s: float = 20) -> Any:
    async with asyncio.timeout(timeout_s):
        while (batch := await client.batches.retrieve(batch_id)).status not in ENDED:
            await asyncio.sleep(0.02)
    return batch


async def read_results(client: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    text = (await client.files.content(file_id)).text
    return [json.loads(line) for line in text.splitlines()]
