"""Links that break are mended, and nobody waits for ever or hears anything twice."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from frontend_svc.links.outputs import read_outputs
from frontend_svc.requests.events import Delta
from frontend_svc.requests.sessions.session import Session
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.links import rpc
from signalbox.v1 import frontend_pb2, to_frontend_pb2, worker_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from signalbox.v1.to_frontend_pb2 import WorkerDirectory
from tests.frontend_svc.helpers import character_ids, until
from tests.frontend_svc.requests.test_sessions import make_request
from tests.frontend_svc.scripted_cluster import Cluster, Row, ScriptedWorker, make_batch


async def generate(frontend: Frontend) -> str:
    """Runs one request to its end and returns its text."""
    async with rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        stub: Any = GenerationServiceStub(channel)
        call = stub.Generate(frontend_pb2.GenerateRequest(text="the fox"))
        return "".join([response.text async for response in call])


async def test_hello(frontend: Frontend, cluster: Cluster) -> None:
    """R6."""
    hello = cluster.scheduler.hellos[0]
    assert (len(hello.frontend_instance), list(hello.live)) == (32, [])
    assert cluster.worker.hellos[0].frontend_instance == hello.frontend_instance
    assert cluster.worker.hellos[0].acknowledged == 0


async def test_a_message_is_delivered_when_its_readers_have_had_it(
    frontend: Frontend, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Delta] = []
    told: list[tuple[int, float]] = []
    monkeypatch.setattr(
        frontend.table.observer, "on_delivered", lambda seconds: told.append((len(read), seconds))
    )
    sessions = [frontend.table.open(make_request(name)) for name in ("a", "b")]

    async def read_one(session: Session) -> None:
        read.append(await session.next_delta())

    async with asyncio.TaskGroup() as tasks:
        for session in sessions:
            tasks.create_task(read_one(session))
        attempts = [(await cluster.scheduler.next("submit")).ref.attempt for _ in sessions]
        cluster.worker.emit(*(Row(attempt, 0, [5]) for attempt in attempts))
    await until(lambda: told)
    ((count, seconds),) = told
    assert count == 2
    assert seconds > 0


async def test_a_new_scheduler_hears_what_is_live(
    frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """J1."""
    ids = character_ids(tokenizer, "abcd")
    running = asyncio.create_task(generate(frontend))
    submit = await cluster.scheduler.next("submit")
    cluster.scheduler.break_link()
    await until(lambda: len(cluster.scheduler.hellos) == 2)
    assert list(cluster.scheduler.hellos[1].live) == [submit.ref]
    # Output goes on whatever happens to the scheduler, and the old submit is not repeated.
    cluster.worker.emit(Row(submit.ref.attempt, 0, ids, 2))
    assert await running == "abcd"
    assert cluster.scheduler.operations.empty()


async def test_what_the_new_scheduler_does_not_know_is_submitted_anew(
    frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    ids = character_ids(tokenizer, "abcd")
    running = asyncio.create_task(generate(frontend))
    first = await cluster.scheduler.next("submit")
    cluster.scheduler.break_link()
    await until(lambda: len(cluster.scheduler.hellos) == 2)
    cluster.scheduler.lose(first.ref)
    second = await cluster.scheduler.next("submit")
    assert second.ref.attempt > first.ref.attempt
    cluster.worker.emit(Row(second.ref.attempt, 0, ids, 2))
    assert await running == "abcd"


async def test_requests_wait_for_the_link(frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer) -> None:
    cluster.serve(lambda payload: character_ids(tokenizer, "ab"))
    cluster.scheduler.break_link()
    await until(lambda: not frontend.scheduler.connected)
    assert await generate(frontend) == "ab"
    assert list(cluster.scheduler.hellos[-1].live) == []


async def test_requests_do_not_wait_for_ever(frontend: Frontend, cluster: Cluster) -> None:
    await cluster.scheduler.server.grpc.stop(0)
    await until(lambda: not frontend.scheduler.connected)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await generate(frontend)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len(frontend.table) == 0


async def test_a_broken_output_stream_goes_on_where_it_was(
    frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """R7."""
    ids = character_ids(tokenizer, "abcdef")
    running = asyncio.create_task(generate(frontend))
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    cluster.worker.emit(Row(attempt, 0, ids[:2]))
    await until(lambda: cluster.worker.acknowledged == 1)
    cluster.worker.break_link()
    # Made while nobody listens: sent with the next stream, the second one twice.
    cluster.worker.emit(Row(attempt, 2, ids[2:4]))
    await until(lambda: len(cluster.worker.hellos) == 2)
    assert cluster.worker.hellos[1].acknowledged == 1
    cluster.worker.outbox.put_nowait(make_batch(2, [Row(attempt, 2, ids[2:4])]))
    cluster.worker.emit(Row(attempt, 4, ids[4:], 2))
    assert await running == "abcdef"
    await until(lambda: cluster.worker.acknowledged == 3)


async def test_acknowledgements_are_batched(
    frontend: Frontend, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    monkeypatch.setattr(cluster.worker, "_acknowledge", lambda request: heard.append(request.acknowledged))
    for _ in range(100):
        cluster.worker.emit(Row(77, 0, [1]))
    await until(lambda: heard and heard[-1] == 100)
    assert len(heard) <= 10


async def test_a_new_process_of_the_worker_starts_at_zero(
    frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    cluster.worker.emit(Row(77, 0, [1]))
    await until(lambda: cluster.worker.acknowledged == 1)
    worker = cluster.worker
    worker.break_link()
    worker.instance, worker.sequence, worker.acknowledged = "worker-process-2", 0, 0
    cluster.scheduler.send(workers=WorkerDirectory(workers=[cluster.entry()]))
    await until(lambda: frontend.is_ready)
    assert worker.hellos[-1].acknowledged == 0
    cluster.serve(lambda payload: character_ids(tokenizer, "ab"))
    assert await generate(frontend) == "ab"


async def test_an_unlisted_worker_is_heard_to_the_end(
    frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    running = asyncio.create_task(generate(frontend))
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    cluster.scheduler.send(workers=WorkerDirectory())
    await until(lambda: not frontend.directory.models)
    cluster.worker.emit(Row(attempt, 0, character_ids(tokenizer, "ab"), 2))
    assert await running == "ab"
    cluster.worker.break_link()
    await until(lambda: not frontend.workers._links)


@pytest.mark.parametrize("broken", [b"abc", b""])
async def test_missing_output_is_made_anew(
    frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer, broken: bytes
) -> None:
    """A message that cannot be read, or a skipped one, may have held the end of a request."""
    ids = character_ids(tokenizer, "abcd")
    running = asyncio.create_task(generate(frontend))
    first = (await cluster.scheduler.next("submit")).ref
    cluster.scheduler.place(first)
    cluster.worker.emit(Row(first.attempt, 0, ids[:2]))
    await until(lambda: any(session.worker_id and session.output for session in frontend.table))
    cluster.worker.sequence += 2
    batch = worker_pb2.OutputBatch(sequence=cluster.worker.sequence, attempts=broken)
    cluster.worker.outbox.put_nowait(batch)
    assert (await cluster.scheduler.next("cancel")).ref == first
    second = await cluster.scheduler.next("submit")
    assert second.meta.num_prior_output_tokens == 2
    cluster.worker.emit(Row(second.ref.attempt, 2, ids[2:], 2))
    assert await running == "abcd"


def test_columns() -> None:
    batch = make_batch(1, [Row(1, 5, [7, 8]), Row(2, 0, [9])])
    assert read_outputs(batch) == [(1, 5, (7, 8)), (2, 0, (9,))]
    batch = make_batch(1, [Row(1, 5, [7]), Row(2, 0, [9])])
    assert (batch.counts, read_outputs(batch)) == (b"", [(1, 5, (7,)), (2, 0, (9,))])


@pytest.mark.parametrize(
    "columns",
    [
        {"attempts": b"abc"},
        {"attempts": b"abcd"},
        {"attempts": b"abcd", "starts": b"abcd"},
        {"attempts": b"abcd", "starts": b"abcd", "token_ids": b"abcd", "counts": b"\2"},
    ],
)
def test_columns_that_do_not_fit(columns: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="column"):
        read_outputs(worker_pb2.OutputBatch(sequence=1, **columns))  # type: ignore[arg-type]


async def test_an_output_is_joined_from_two_workers(
    frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    """HO10, HO11: over two streams, the target's ahead of the scheduler's word."""
    ids = character_ids(tokenizer, "abcdef")
    target = ScriptedWorker()
    target.instance = "worker-process-2"
    entry = cluster.entry()
    entry.worker_id, entry.worker_instance = "target", target.instance
    entry.address = f"127.0.0.1:{await target.server.start('127.0.0.1:0')}"
    cluster.scheduler.send(workers=WorkerDirectory(workers=[cluster.entry(), entry]))
    try:
        running = asyncio.create_task(generate(frontend))
        ref = (await cluster.scheduler.next("submit")).ref
        cluster.scheduler.place(ref)
        cluster.worker.emit(Row(ref.attempt, 0, ids[:2]))
        await until(lambda: any(session.output for session in frontend.table))
        (session,) = frontend.table
        await until(lambda: target.hellos)
        target.emit(Row(ref.attempt, 1, ids[1:4], leg=1))
        await until(lambda: "target" in session.legs.workers)
        assert list(session.output) == ids[:2]
        placed = to_frontend_pb2.RequestPlaced(ref=ref, worker_id="target", leg=1)
        cluster.scheduler.send(placed=[placed])
        await until(lambda: session.worker_id == "target")
        cluster.worker.emit(Row(ref.attempt, 2, ids[:1], 2))
        target.emit(Row(ref.attempt, 4, ids[4:], 2, leg=1))
        assert await running == "abcdef"
        assert session.losses.num_losses == 0 and session.attempt == ref.attempt
    finally:
        await target.server.grpc.stop(0)
