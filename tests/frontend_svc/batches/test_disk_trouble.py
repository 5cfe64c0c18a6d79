"""Batches on a disk that is full or cannot be read for a moment: they wait, and nobody is asked twice (FB3, FB6)."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import openai
import pytest

from frontend_svc.batches import batch_run, disk, runner
from frontend_svc.batches.input_lines import LineReader
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.batches.conftest import make_batch, make_lines, read_results, until_end
from tests.frontend_svc.batches.test_batches import all_names, names
from tests.frontend_svc.guarded import Start, sdk_of
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster


async def test_a_full_disk_makes_a_batch_wait(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered meanwhile is written when there is room again, and asked once (FB6)."""
    monkeypatch.setattr(disk, "_USAGE_S", 0.0)
    asked = 0
    ids = tokenizer.fast.encode(" jumps").ids

    def answer(_: Any) -> list[int]:
        nonlocal asked
        asked += 1
        return ids

    cluster.serve(answer, 1)
    frontend = await start(key_file=None, files_dir=folder, files_max_bytes=60_000, batch_concurrency=4)
    async with sdk_of(frontend, "none") as client:
        lines = make_lines(80)
        ballast = await client.files.create(file=b"x" * 40_000, purpose="user_data")
        made = await make_batch(client, lines)
        await until(lambda: asked > 4, 10)
        before = 0
        while asked != before:
            before = asked
            await asyncio.sleep(0.5)
        stuck: Any = await client.batches.retrieve(made.id)
        assert stuck.status == "in_progress"
        assert stuck.request_counts.completed <= asked < 80
        await client.files.delete(ballast.id)
        batch = await until_end(client, made.id)
        assert batch.request_counts.completed == 80
        assert names(await read_results(client, batch.output_file_id)) == all_names(80)
    assert asked == 80


@pytest.mark.parametrize(("owner", "name", "good"), [(batch_run, "validate", 0), (LineReader, "read", 1)])
async def test_an_input_that_cannot_be_read_for_a_moment_makes_a_batch_wait(
    client: openai.AsyncOpenAI,
    cluster: Cluster,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    good: int,
) -> None:
    """Whatever was asked by then is not asked again (FB3, FB6). good: reads ahead of the one that fails."""
    monkeypatch.setattr(runner, "RETRY_S", 0.05)
    asked = num_reads = 0
    ids, read = tokenizer.fast.encode(" jumps").ids, getattr(owner, name)

    def answer(_: Any) -> list[int]:
        nonlocal asked
        asked += 1
        return ids

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal num_reads
        num_reads += 1
        if good < num_reads <= good + 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return read(*arguments, **options)

    monkeypatch.setattr(owner, name, failing)
    cluster.serve(answer, 1)
    made = await make_batch(client, make_lines(100))
    batch = await until_end(client, made.id)
    assert (batch.status, batch.request_counts.completed, asked) == ("completed", 100, 100)
    assert names(await read_results(client, batch.output_file_id)) == all_names(100)
    assert num_reads >= good + 3
