"""/v1/batches with OpenAI's SDK, before a scripted cluster: every line once, whatever comes between (FB1, FB2, FB3,
FB4, FB5)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from frontend_svc.batches import batch_run
from frontend_svc.batches.journal import Journal, make_entry
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.batches.conftest import make_batch, make_lines, read_results, until_end
from tests.frontend_svc.guarded import KeyRing, Start, sdk_of
from tests.frontend_svc.helpers import serve_text, until
from tests.frontend_svc.scripted_cluster import Cluster

Ask = Any


def names(results: list[dict[str, Any]]) -> list[str]:
    return sorted(line["custom_id"] for line in results)


def all_names(count: int) -> list[str]:
    return sorted(f"c{number}" for number in range(count))


async def test_a_batch_answers_every_line(
    client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, folder: Path
) -> None:
    serve_text(cluster, tokenizer, " jumps")
    made = await make_batch(client, make_lines(100), metadata={"job": "night"})
    assert (made.status, made.endpoint, made.metadata) == ("validating", "/v1/completions", {"job": "night"})
    assert made.expires_at == made.created_at + 86_400
    batch = await until_end(client, made.id)
    assert batch.status == "completed"
    assert batch.request_counts.model_dump() == {"total": 100, "completed": 100, "failed": 0}
    assert batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    assert batch.error_file_id is None
    results = await read_results(client, batch.output_file_id)
    assert names(results) == all_names(100)
    one = results[0]
    assert one["error"] is None
    assert one["response"]["status_code"] == 200
    assert one["response"]["body"]["choices"][0]["text"] == " jumps"
    assert one["response"]["request_id"] == one["response"]["body"]["id"]
    file = await client.files.retrieve(batch.output_file_id)
    assert (file.purpose, file.filename) == ("batch_output", f"{batch.id}_output.jsonl")
    assert file.bytes == len((await client.files.content(file.id)).content)
    await until(lambda: {p.name for p in (folder / "batches" / batch.id).iterdir()} == {"batch.json", "lock"})


@pytest.mark.parametrize(
    ("url", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/completions", {"prompt": "hi"}),
    ],
)
async def test_every_endpoint(
    client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer, url: str, body: dict[str, Any]
) -> None:
    serve_text(cluster, tokenizer, " jumps")
    line = {"custom_id": "a", "method": "POST", "url": url, "body": {"model": "toy"} | body}
    made = await make_batch(client, json.dumps(line).encode(), endpoint=url)
    batch = await until_end(client, made.id)
    [result] = await read_results(client, batch.output_file_id)
    assert " jumps" in json.dumps(result["response"]["body"])


async def test_lines_have_the_class_of_batches(
    client: openai.AsyncOpenAI, cluster: Cluster, stuck: Callable[[], int]
) -> None:
    made = await make_batch(client, make_lines(1, priority=-7))
    submit = await cluster.scheduler.next("submit")
    assert submit.meta.priority == 1000
    await client.batches.cancel(made.id)


async def test_a_line_that_is_refused_stands_in_the_error_file(
    client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, " jumps")
    wrong = {"custom_id": "w", "method": "POST", "url": "/v1/completions", "body": {"model": "toy", "n": "x"}}
    unknown = wrong | {"custom_id": "u", "body": {"model": "nope", "prompt": "x"}}
    lines = make_lines(3) + json.dumps(wrong).encode() + b"\n\n" + json.dumps(unknown).encode()
    batch = await until_end(client, (await make_batch(client, lines)).id)
    assert batch.status == "completed"
    assert batch.request_counts.model_dump() == {"total": 5, "completed": 3, "failed": 2}
    told = {line["custom_id"]: line for line in await read_results(client, batch.error_file_id)}
    assert {name: line["response"]["status_code"] for name, line in told.items()} == {"w": 400, "u": 404}
    assert told["w"]["response"]["body"]["error"]["param"] == "n"
    assert told["w"]["error"] is None


async def test_a_batch_with_wrong_lines_fails_before_any_runs(
    client: openai.AsyncOpenAI, stuck: Callable[[], int]
) -> None:
    lines = make_lines(3) + b"garbage\n" + make_lines(1)
    batch = await until_end(client, (await make_batch(client, lines)).id)
    assert (batch.status, batch.output_file_id, stuck()) == ("failed", None, 0)
    assert batch.failed_at is not None
    assert [(error.code, error.line) for error in batch.errors.data] == [
        ("invalid_json_line", 4),
        ("duplicate_custom_id", 5),
    ]


async def test_a_cancelled_batch_tells_every_line(
    client: openai.AsyncOpenAI,
    cluster: Cluster,
    keeper: Frontend,
    tokenizer: Tokenizer,
    stuck: Callable[[], int],
) -> None:
    made = await make_batch(client, make_lines(500))
    await until(lambda: stuck() == 32)
    assert len(keeper.table) == 32
    asked = await client.batches.cancel(made.id)
    assert asked.status == "cancelling"
    assert asked.cancelling_at is not None
    batch = await until_end(client, made.id)
    assert (batch.status, batch.output_file_id) == ("cancelled", None)
    assert batch.cancelled_at is not None
    assert batch.request_counts.model_dump() == {"total": 500, "completed": 0, "failed": 500}
    told = await read_results(client, batch.error_file_id)
    assert names(told) == all_names(500)
    assert Counter(line["error"]["code"] for line in told) == {"batch_cancelled": 500}
    await until(lambda: len(keeper.table) == 0)
    assert (await client.batches.cancel(made.id)).status == "cancelled"


async def test_what_has_ended_cannot_be_cancelled(
    client: openai.AsyncOpenAI, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    serve_text(cluster, tokenizer, " jumps")
    batch = await until_end(client, (await make_batch(client, make_lines(1))).id)
    with pytest.raises(openai.BadRequestError, match="has ended"):
        await client.batches.cancel(batch.id)


async def test_a_window_that_is_over_ends_a_batch(
    start: Start,
    cluster: Cluster,
    tokenizer: Tokenizer,
    folder: Path,
    stuck: Callable[[], int],
) -> None:
    """Also when nobody was there at that time."""
    frontend = await start(key_file=None, files_dir=folder)
    async with sdk_of(frontend, "none") as client:
        made = await make_batch(client, make_lines(40), completion_window="1m")
        await until(lambda: stuck() == 32)
    await frontend.stop()
    state = folder / "batches" / made.id / "batch.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"expires_at": made.created_at}))
    again = await start(key_file=None, files_dir=folder)
    async with sdk_of(again, "none") as client:
        batch = await until_end(client, made.id)
        assert (batch.status, batch.request_counts.failed) == ("expired", 40)
        told = await read_results(client, batch.error_file_id)
    assert names(told) == all_names(40)
    assert {line["error"]["code"] for line in told} == {"batch_expired"}


async def test_what_was_answered_is_not_asked_again(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, folder: Path
) -> None:
    asked: Counter[bytes] = Counter()
    ids = tokenizer.fast.encode(" jumps").ids

    def answer(payload: Any) -> list[int]:
        asked[payload.token_ids] += 1
        return ids

    lines = b"".join(
        make_lines(1, prompt=[number + 3]).replace(b'"c0"', f'"c{number}"'.encode()) for number in range(200)
    )
    cluster.serve(answer, 1)
    frontend = await start(key_file=None, files_dir=folder, batch_concurrency=4)
    async with sdk_of(frontend, "none") as client:
        made = await make_batch(client, lines)
        await until(lambda: len(asked) >= 60)
    await frontend.stop()
    path = folder / "batches" / made.id
    journal = Journal(path, 200, lambda: None)
    num_done = journal.num_completed
    journal.close()
    assert 40 <= num_done < 200
    with (path / "output.jsonl").open("ab") as output:
        output.write(b'{"id":"batch_req_')  # a process that was killed while it wrote
    again = await start(key_file=None, files_dir=folder, batch_concurrency=4)
    async with sdk_of(again, "none") as client:
        batch = await until_end(client, made.id)
        assert batch.request_counts.model_dump() == {"total": 200, "completed": 200, "failed": 0}
        assert names(await read_results(client, batch.output_file_id)) == all_names(200)
    assert sum(asked.values()) <= 200 + 4 + 4


async def test_the_other_process_may_cancel(
    start: Start, cluster: Cluster, folder: Path, stuck: Callable[[], int]
) -> None:
    """The scripted scheduler speaks with the one that came last."""
    bystander = await start(key_file=None, files_dir=folder)
    owner = await start(key_file=None, files_dir=folder)
    async with sdk_of(bystander, "none") as other, sdk_of(owner, "none") as one:
        made = await make_batch(one, make_lines(10))
        await until(lambda: stuck() == 10 or len(bystander.table) == 10)
        assert (await other.batches.cancel(made.id)).status == "cancelling"
        assert (await until_end(one, made.id)).status == "cancelled"


async def test_a_limit_of_the_key_makes_lines_wait_and_leaves_half_to_other_calls(
    start: Start, ring: KeyRing, cluster: Cluster, tokenizer: Tokenizer, folder: Path
) -> None:
    ring.add("small", tenant="small", requests_at_once=4)
    serve_text(cluster, tokenizer, " jumps")
    most = 0
    serve = cluster.scheduler.on_operation

    def watch(operation: Any) -> None:
        nonlocal most
        most = max(most, len(frontend.table))
        serve(operation)

    cluster.scheduler.on_operation = watch
    frontend = await start(files_dir=folder)
    async with sdk_of(frontend, ring.keys["small"].text) as client:
        batch = await until_end(client, (await make_batch(client, make_lines(8))).id)
    assert batch.request_counts.completed == 8
    assert most <= 2


async def test_a_key_that_is_gone_ends_its_lines(
    start: Start, ring: KeyRing, cluster: Cluster, tokenizer: Tokenizer, folder: Path
) -> None:
    serve_text(cluster, tokenizer, " jumps")
    ring.add("short")
    frontend = await start(files_dir=folder, batch_concurrency=1)
    async with sdk_of(frontend, ring.keys["short"].text) as client:
        made = await make_batch(client, make_lines(1000))
    ring.remove("short")
    async with sdk_of(frontend, ring.keys["acme"].text) as client:
        batch = await until_end(client, made.id)
        told = await read_results(client, batch.error_file_id)
    assert told[-1]["response"]["body"]["error"]["code"] == "invalid_api_key"
    assert batch.request_counts.completed + batch.request_counts.failed == 1000


async def test_without_a_worker_lines_wait(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, folder: Path
) -> None:
    frontend = await start(key_file=None, files_dir=folder)
    cluster.scheduler.send(workers=type(cluster.scheduler.directory)())
    await until(lambda: not frontend.is_ready)
    serve_text(cluster, tokenizer, " jumps")
    async with sdk_of(frontend, "none") as client:
        made = await make_batch(client, make_lines(3))
        await asyncio.sleep(0.3)
        waiting: Any = await client.batches.retrieve(made.id)
        assert waiting.request_counts.failed == 0
        cluster.scheduler.send(workers=cluster.scheduler.directory)
        assert (await until_end(client, made.id)).request_counts.completed == 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/images"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "90d"}, "completion_window"),
        ({"metadata": {"a": "b" * 600}}, "metadata"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
        ({"extra_body": {"more": 1}}, "more"),
    ],
)
async def test_a_wrong_batch_is_refused(
    client: openai.AsyncOpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await make_batch(client, make_lines(1), **fields)
    assert error.value.param == param


async def test_a_batch_needs_a_file_for_batches(client: openai.AsyncOpenAI) -> None:
    file = await client.files.create(file=b"x", purpose="user_data")
    for name, error in ((file.id, openai.BadRequestError), ("file-x", openai.NotFoundError)):
        with pytest.raises(error):
            await client.batches.create(
                input_file_id=name, endpoint="/v1/completions", completion_window="24h"
            )


async def test_an_input_that_is_deleted_is_still_read(
    client: openai.AsyncOpenAI, cluster: Cluster, stuck: Callable[[], int], tokenizer: Tokenizer
) -> None:
    made = await make_batch(
        client, make_lines(100), output_expires_after={"anchor": "created_at", "seconds": 7200}
    )
    await until(lambda: stuck() == 32)
    await client.files.delete(made.input_file_id)
    await client.batches.cancel(made.id)
    batch = await until_end(client, made.id)
    file = await client.files.retrieve(batch.error_file_id)
    assert (batch.request_counts.failed, file.expires_at) == (100, file.created_at + 7200)


@pytest.mark.parametrize("where", ["a line", "its journal"])
async def test_a_bug_ends_a_batch(
    client: openai.AsyncOpenAI,
    cluster: Cluster,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """It neither waits for ever nor is completed without the line (FB3)."""
    serve_text(cluster, tokenizer, " jumps")
    count = 0

    def broken(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise ValueError("a bug")

    if where == "a line":
        monkeypatch.setattr(
            batch_run, "make_entry", lambda *args, **fields: broken() or make_entry(*args, **fields)
        )
    else:
        write = Journal.write
        monkeypatch.setattr(Journal, "write", lambda journal, entries: broken() or write(journal, entries))
    made = await make_batch(client, make_lines(100))
    batch = await until_end(client, made.id)
    assert (batch.status, batch.errors.data[0].code) == ("failed", "internal_error")
