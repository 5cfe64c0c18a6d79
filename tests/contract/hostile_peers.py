"""Peers that mean harm, over real connections: each says odd things to one service until it is thrown out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import Message

from signalbox.v1 import from_frontend_pb2, from_worker_pb2, scheduler_pb2, worker_pb2
from tests.contract.odd_messages import OddMessages
from tests.scheduler_svc.attached import make_hello

PAUSE_S = 0.01
"""Between two messages of a peer."""
EVIL = "evil"
SCHEDULER, WORKER = "/signalbox.v1.SchedulerService/", "/signalbox.v1.WorkerService/"
KNOWN: dict[str, tuple[Any, ...]] = {
    "worker_id": (EVIL, "worker-0", "worker-1"),
    "model": (EVIL,),
    "frontend_instance": (EVIL, "f"),
    "worker_instance": (EVIL, "i"),
    "attempt": tuple(range(1, 200)),
    "step_id": tuple(range(1, 6)),
    "slot": tuple(range(4)),
    "block_ids": tuple(number.to_bytes(4, "little") for number in range(1, 5)),
    "sealed_hashes": (bytes(16), b"h" * 16),
    "link": (1, 2),
}
Peer = Callable[[grpc.aio.Channel, OddMessages], Awaitable[int]]
"""Returns how many answers it got."""


async def talk(
    channel: grpc.aio.Channel, method: str, messages: list[bytes], pause_s: float = PAUSE_S
) -> int:
    """Says all of it over one stream, and hears what comes meanwhile; returns how many answers came."""
    call = channel.stream_stream(method)()
    count = 0

    async def hear() -> None:
        nonlocal count
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                count += 1

    hearing = asyncio.create_task(hear())
    for message in messages:
        if hearing.done():
            break  # to write to a stream that was refused tells nobody anything
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(message)
        await asyncio.wait([hearing], timeout=pause_s)
    call.cancel()
    await asyncio.wait([hearing])
    return count


def _name(odd: OddMessages) -> str:
    """One for each: a worker whose links fail again and again is kept away by its name."""
    return f"{EVIL}-{odd.rng.randrange(10**9)}"


def _hello(odd: OddMessages) -> from_worker_pb2.AttachWorkerRequest:
    message = make_hello(_name(odd))
    message.hello.model.model = EVIL
    kind = odd.rng.random()
    if kind < 0.25:
        odd.make(message.hello.snapshot)
    elif kind < 0.5:
        _hold(message.hello.snapshot, odd)
    return message


def _hold(snapshot: from_worker_pb2.WorkerSnapshot, odd: OddMessages) -> None:
    """Requests that a worker could have; now and then something about them is odd."""
    snapshot.scheduler_epoch, snapshot.last_step_id = 1, 5
    for slot in range(odd.rng.randrange(1, 4)):
        entry = snapshot.slots.add(
            slot=slot, frontend_instance=EVIL, status=from_worker_pb2.SLOT_STATUS_DECODE
        )
        entry.ref.request_id, entry.ref.attempt = f"held-{slot}", slot + 1
        entry.num_computed_tokens, entry.num_output_tokens, entry.prefill_target = 7, 2, 6
        blocks = (2 * slot + 1, 2 * slot + 2)
        entry.block_ids = b"".join(block.to_bytes(4, "little") for block in blocks)
        meta = from_frontend_pb2.RequestMeta(model=EVIL, num_prompt_tokens=6, max_tokens=8, hash_block_size=4)
        entry.scheduler_meta = (odd.damage(meta) if odd.rng.random() < 0.3 else meta).SerializeToString()
    if odd.rng.random() < 0.4:
        odd.damage(snapshot)


async def worker(channel: grpc.aio.Channel, odd: OddMessages) -> int:
    """Towards a scheduler: a hello that is damaged or not, and then reports and events."""
    hello = _hello(odd)
    if odd.rng.random() < 0.4:
        odd.damage(hello)
    rest = [odd.make(from_worker_pb2.AttachWorkerRequest()) for _ in range(4)]
    for message in rest:
        if odd.rng.random() < 0.8:
            message.ClearField("hello")  # type: ignore[arg-type]
    return await talk(channel, SCHEDULER + "AttachWorker", [odd.bytes_of(each) for each in (hello, *rest)])


async def relay(channel: grpc.aio.Channel, odd: OddMessages) -> int:
    """Towards a scheduler, with the same behind it."""
    hello = scheduler_pb2.AttachWorkersRequest(hello=scheduler_pb2.RelayHello(relay_id=EVIL))
    messages: list[Message] = [odd.damage(hello) if odd.rng.random() < 0.3 else hello]
    for _ in range(4):
        message = scheduler_pb2.AttachWorkersRequest()
        for link in (1, odd.rng.choice((0, 1, 2, 2**32 - 1))):
            inner = (
                odd.damage(_hello(odd))
                if odd.rng.random() < 0.5
                else odd.make(from_worker_pb2.AttachWorkerRequest())
            )
            message.entries.add(link=link, message=odd.bytes_of(inner))
        messages.append(odd.damage(message) if odd.rng.random() < 0.3 else message)
    return await talk(channel, SCHEDULER + "AttachWorkers", [odd.bytes_of(each) for each in messages])


async def frontend(channel: grpc.aio.Channel, odd: OddMessages) -> int:
    """Towards a scheduler: requests that nobody asked for, and orders about them."""
    hello = from_frontend_pb2.AttachFrontendRequest(
        hello=from_frontend_pb2.FrontendHello(frontend_instance=EVIL)
    )
    messages: list[Message] = [odd.damage(hello) if odd.rng.random() < 0.5 else hello]
    for _ in range(5):
        message = odd.make(from_frontend_pb2.AttachFrontendRequest())
        assert isinstance(message, from_frontend_pb2.AttachFrontendRequest)
        message.ClearField("hello")
        messages.append(message)
    return await talk(channel, SCHEDULER + "AttachFrontend", [odd.bytes_of(each) for each in messages])


async def guardian(channel: grpc.aio.Channel, odd: OddMessages) -> int:
    """Towards a scheduler: ends of processes that nobody knows, and questions."""
    count = 0
    for method, message in (
        ("ReportWorkerExit", scheduler_pb2.ReportWorkerExitRequest()),
        ("FindLeader", scheduler_pb2.FindLeaderRequest()),
    ):
        with suppress(grpc.aio.AioRpcError):
            await channel.unary_unary(SCHEDULER + method)(odd.bytes_of(odd.make(message)), timeout=5)
            count += 1
    return count


async def reader(channel: grpc.aio.Channel, odd: OddMessages) -> int:
    """Towards a worker: a frontend that acknowledges what never was."""
    first = worker_pb2.StreamOutputsRequest(frontend_instance=EVIL)
    messages = [odd.damage(first), *(odd.make(worker_pb2.StreamOutputsRequest()) for _ in range(4))]
    return await talk(channel, WORKER + "StreamOutputs", [odd.bytes_of(each) for each in messages])


async def liar(channel: grpc.aio.Channel, odd: OddMessages) -> int:
    """Towards frontends: a worker that a scheduler takes, and whose outputs are about the requests of others."""
    heard, name = asyncio.Event(), _name(odd)

    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        heard.set()
        first = worker_pb2.StreamOutputsResponse(worker_instance=name, log_number=1)
        yield (odd.damage(first) if odd.rng.random() < 0.5 else first).SerializeToString()
        for number in range(1, 6):
            message = odd.make(worker_pb2.StreamOutputsResponse())
            assert isinstance(message, worker_pb2.StreamOutputsResponse)
            for sequence, batch in enumerate(message.batches, number):
                batch.sequence = sequence
                count = odd.rng.randrange(4)
                numbers = [odd.rng.randrange(1, 200) for _ in range(count)]
                batch.attempts = b"".join(each.to_bytes(4, "little") for each in numbers)
                if odd.rng.random() < 0.8:
                    batch.starts = bytes(4 * count)
                    batch.counts, batch.token_ids = b"", bytes(4 * count)
            yield odd.bytes_of(message)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("signalbox.v1.WorkerService", {"StreamOutputs": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    hello = make_hello(name, address=f"127.0.0.1:{port}", worker_instance=name)
    hello.hello.model.model = EVIL
    attached = asyncio.create_task(
        talk(channel, SCHEDULER + "AttachWorker", [hello.SerializeToString(), *15 * [b""]], 0.1)
    )
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            await heard.wait()
    await attached
    await server.stop(0)
    return int(heard.is_set())


TO_SCHEDULER: tuple[Peer, ...] = (worker, relay, frontend, guardian, liar)
