"""Batches on a disk that is full or cannot be read for a moment: they wait, and nobody is asked twice (FB3, FB6)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from frontend_svc.batches import batch_run, quota, runner, troubles
from frontend_svc.batches.batch import Batch
from frontend_svc.batches.input_lines import LineReader
from frontend_svc.batches.troubles import Troubles
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
    monkeypatch.setattr(quota, "_USAGE_S", 0.0)
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


@pytest.mark.parametrize(
    ("owner", "name", "good", "number"),
    [
        (batch_run, "validate", 0, errno.EMFILE),
        (batch_run, "validate", 0, errno.ENOENT),
        (batch_run, "LineReader", 0, errno.ENOENT),
        (batch_run, "Journal", 0, errno.EIO),
        (LineReader, "read", 1, errno.EIO),
    ],
)
async def test_an_input_that_cannot_be_read_for_a_moment_makes_a_batch_wait(
    client: openai.AsyncOpenAI,
    cluster: Cluster,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    good: int,
    number: int,
) -> None:
    """Whatever was asked by then is not asked again (FB3, FB6). good: reads ahead of the one that fails. A file that
    is not there may come back, too: its disk was not mounted for a moment."""
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
            raise OSError(number, os.strerror(number))
        return read(*arguments, **options)

    monkeypatch.setattr(owner, name, failing)
    cluster.serve(answer, 1)
    made = await make_batch(client, make_lines(100))
    batch = await until_end(client, made.id)
    assert (batch.status, batch.request_counts.completed, asked) == ("completed", 100, 100)
    assert names(await read_results(client, batch.output_file_id)) == all_names(100)
    assert num_reads >= good + 3


async def test_an_input_that_stays_out_of_reach_fails_its_batch_in_the_end(
    client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says why, and what was answered by then is served (FB6). Before, a bad sector kept it for ever."""
    monkeypatch.setattr(troubles, "PATIENCE_S", 0.3)
    monkeypatch.setattr(runner, "PATIENCE_S", 0.3)
    ids, read, num_reads = tokenizer.fast.encode(" jumps").ids, LineReader.read, 0

    def failing(reader: LineReader) -> Any:
        nonlocal num_reads
        num_reads += 1
        if num_reads > 1:
            raise OSError(errno.EIO, "Input/output error")
        return read(reader)

    monkeypatch.setattr(LineReader, "read", failing)
    cluster.serve(lambda _: ids, 1)
    made = await make_batch(client, make_lines(100))
    batch = await until_end(client, made.id)
    assert batch.status == "failed"
    assert batch.errors.data[0].code == "input_unreadable"
    assert batch.errors.data[0].message == "its files could not be read for 0.3 s: Input/output error"
    results = await read_results(client, batch.output_file_id)
    assert 0 < len(results) == batch.request_counts.completed < 100
    assert set(names(results)) < set(all_names(100))


async def test_results_that_stay_out_of_reach_fail_their_batch_in_the_end(
    client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has answered by then cannot be served; a batch that waits for ever would keep a place and its input."""
    monkeypatch.setattr(troubles, "PATIENCE_S", 0.3)
    monkeypatch.setattr(runner, "PATIENCE_S", 0.3)

    def failing(*given: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(batch_run, "Journal", failing)
    cluster.serve(lambda _: tokenizer.fast.encode(" jumps").ids, 1)
    batch = await until_end(client, (await make_batch(client, make_lines(5))).id)
    assert (batch.status, batch.errors.data[0].code) == ("failed", "input_unreadable")


def test_troubles_end_and_begin_anew_with_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(troubles, "FIRST_RETRY_S", 2.0)
    batch = Batch("batch_1", "", "", "/v1/completions", "file-1", "24h", 0, 0)
    known = Troubles()
    rests, now = [], 0.0
    while known.add(batch, now):
        assert known.resting(now) == {"batch_1"}
        before = now
        while known.resting(now):
            now += 1.0
        rests.append(now - before)
        if now > 300.0 and not batch.completed:
            batch.completed, start = 1, now
    assert rests[:6] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert troubles.PATIENCE_S <= now - start <= troubles.PATIENCE_S + troubles.LONGEST_RETRY_S


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
async def test_what_cannot_be_read_for_a_moment_is_not_said_to_be_gone(
    client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Before, clients were told 404, and took their files and batches for lost."""
    file = await client.files.create(file=b"x", purpose="user_data")
    made = await make_batch(client, b"no request")
    await until_end(client, made.id)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as without:
        without.setattr(Path, "read_bytes", fail)
        for ask in (client.files.retrieve(file.id), client.batches.retrieve(made.id)):
            with pytest.raises(openai.InternalServerError, match=os.strerror(number)) as error:
                await ask
            assert error.value.status_code == 503
    with monkeypatch.context() as without:
        without.setattr(Path, "open", fail)
        with pytest.raises(openai.InternalServerError, match=os.strerror(number)) as error:
            await client.files.content(file.id)
        assert error.value.status_code == 503
    assert (await client.files.content(file.id)).content == b"x"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room."""
    disk_path = tmp_path / "disk"
    disk_path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk_path], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("a file system cannot be mounted here")
    yield disk_path
    subprocess.run(["umount", "-l", disk_path], check=True)


async def test_on_a_disk_that_is_really_full(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, small_disk: Path
) -> None:
    """An upload is refused by name and leaves nothing, a batch waits, everything else is served, and with room again
    all goes on (FB6)."""
    asked, ids = 0, tokenizer.fast.encode(" jumps").ids

    def answer(_: Any) -> list[int]:
        nonlocal asked
        asked += 1
        return ids

    cluster.serve(answer, 1)
    frontend = await start(key_file=None, files_dir=small_disk / "kept", batch_concurrency=4)
    files = small_disk / "kept" / "files"
    async with sdk_of(frontend, "none") as client:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="the disk for files is full") as error:
                await client.files.create(file=b"x" * 400_000, purpose="user_data")
            assert error.value.status_code == 503
            assert list(files.iterdir()) == []
        made = await make_batch(client, make_lines(60))
        await until(lambda: asked > 0)
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        before = -1
        while asked != before:
            before = asked
            await asyncio.sleep(0.5)
        stuck: Any = await client.batches.retrieve(made.id)
        assert stuck.status == "in_progress" and asked < 60
        with pytest.raises(openai.InternalServerError, match="the disk for files is full"):
            await client.files.create(file=b"x" * 20_000, purpose="user_data")
        with pytest.raises(openai.InternalServerError, match="the disk for files is full"):
            await client.batches.create(
                input_file_id=made.input_file_id, endpoint="/v1/completions", completion_window="24h"
            )
        assert (await client.completions.create(model="toy", prompt="the fox", max_tokens=4)).choices
        assert [each.id async for each in client.files.list()] == [made.input_file_id]
        ballast.unlink()
        batch = await until_end(client, made.id)
        assert batch.request_counts.completed == 60
        assert names(await read_results(client, batch.output_file_id)) == all_names(60)
    assert asked == 61
    assert {path.suffix for path in files.iterdir()} == {".data", ".json"}
