"""What a target says on the control stream, and what it expects there."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc

from signalbox.links import versions
from signalbox.links.readable import EOF, read_message
from signalbox.v1 import scheduler_pb2, transfer_pb2
from worker_svc.core.handoff.orders import WorkerName
from worker_svc.transfer.channels.reader import BlockReader
from worker_svc.transfer.errors import TransferError

Stream = grpc.aio.StreamStreamCall[Any, Any]


def hello_of(
    name: WorkerName, number: int, key: bytes, num_found: int = 0, *, is_export: bool = False
) -> transfer_pb2.PullHello:
    """The hello of worker `name`."""
    return transfer_pb2.PullHello(
        transfer=number,
        key=key,
        target=scheduler_pb2.WorkerRef(worker_id=name.worker_id, worker_instance=name.instance),
        protocol=versions.ours(),
        num_found=num_found,
        is_export=is_export,
    )


async def begin(
    stream: Stream, hello: transfer_pb2.PullHello, source: WorkerName, most_s: float
) -> transfer_pb2.PullHead:
    """Says hello, and returns the head, which may take `most_s` seconds. TransferError, and AioRpcError where the
    stream breaks."""
    await stream.write(transfer_pb2.PullRequest(hello=hello))
    try:
        async with asyncio.timeout(most_s):
            first = await read_message(stream)
    except TimeoutError:
        raise TransferError("it does not say what there is to be read") from None
    head = part_of(first, "head").head
    if (head.source.worker_id, head.source.worker_instance) != source:
        raise TransferError("another worker answers there")
    return head


async def say_how(stream: Stream, channel: BlockReader | None) -> None:
    """Says how blocks are had; None: in messages."""
    by = transfer_pb2.BLOCKS_BY_CONTENT if channel is None else transfer_pb2.BLOCKS_BY_CHANNEL
    await stream.write(transfer_pb2.PullRequest(blocks_by=by))


async def acknowledge(stream: Stream, num_read: int) -> None:
    """Says what was read. To a source that has said all, nothing has to be said: what it said last is to be read."""
    with contextlib.suppress(asyncio.InvalidStateError):
        await stream.write(transfer_pb2.PullRequest(num_read=num_read))


def part_of(response: Any, kind: str) -> transfer_pb2.PullResponse:
    """A response that is of one kind. TransferError if it is another, or the source's error."""
    if response is EOF:
        raise TransferError("the stream ended")
    assert isinstance(response, transfer_pb2.PullResponse)
    if response.WhichOneof("part") == "error":
        raise TransferError(response.error.message[:200] or "its source gives it up")
    if response.WhichOneof("part") != kind:
        raise TransferError(f"something else than its {kind} comes")
    return response
