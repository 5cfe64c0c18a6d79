"""Calls over gRPC as broken or hostile clients make them: each method of a service, with any message and metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

Metadata = tuple[tuple[str, str | bytes], ...]
VALUES = (
    "",
    " ",
    "x",
    "%s{0}",
    "a" * 300,
    "a" * 9_000,
    "-1",
    "nan",
    "9" * 40,
    "Bearer ",
    "0",
    ",;=",
    "~",
)
WRITTEN_TOO_LATE = "Internal error from Core"
"""What grpc tells its own caller who wrote to a call that had just ended."""
NAMES = (
    "traceparent",
    "tracestate",
    "authorization",
    "x-data-parallel-rank",
    "x-request-id",
    "x-odd",
    "user-agent",
)


def methods_of(*files: FileDescriptor) -> dict[str, MethodDescriptor]:
    """By their paths, of all services in the files."""
    services = [service for file in files for service in file.services_by_name.values()]
    return {
        f"/{service.full_name}/{method.name}": method for service in services for method in service.methods
    }


def odd_metadata(rng: random.Random) -> Metadata:
    """Some of what callers send beside a message, and bytes."""
    pairs: list[tuple[str, str | bytes]] = [
        (rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.choice((0, 0, 1, 2, 4)))
    ]
    if rng.random() < 0.2:
        pairs.append(("grpc-trace-bin", rng.randbytes(rng.choice((0, 1, 29, 300)))))
    return tuple(pairs)


async def call_once(
    channel: grpc.aio.Channel,
    name: str,
    method: MethodDescriptor,
    data: Sequence[bytes],
    metadata: Metadata = (),
    timeout_s: float = 0.05,
) -> grpc.StatusCode | None:
    """Says it, reads a little, and leaves in the middle; streams of ours are half closed, or never. Returns how it was
    answered; None: not in time."""
    try:
        async with asyncio.timeout(timeout_s):
            await _call(channel, name, method, data, metadata)
    except grpc.aio.AioRpcError as error:
        return None if error.details() == WRITTEN_TOO_LATE else error.code()
    except (asyncio.InvalidStateError, TimeoutError):
        return None
    return grpc.StatusCode.OK


async def _call(
    channel: grpc.aio.Channel, name: str, method: MethodDescriptor, data: Sequence[bytes], metadata: Metadata
) -> None:
    sent: Any = metadata or None
    if method.client_streaming:
        call = channel.stream_stream(name)(metadata=sent)
        with suppress(grpc.aio.AioRpcError):  # it has ended already, and a read tells how
            for each in data:
                await call.write(each)
            if len(data[0]) % 2:
                await call.done_writing()
        await call.read()
        await call.read()
    elif method.server_streaming:
        answers = channel.unary_stream(name)(data[0], metadata=sent)
        await answers.read()
        await answers.read()
        answers.cancel()
    else:
        await channel.unary_unary(name)(data[0], metadata=sent)
