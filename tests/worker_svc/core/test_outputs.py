"""Outputs on their way to a frontend over a real stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np

from signalbox.links import rpc
from signalbox.protocol.enums import FinishReason
from signalbox.v1 import worker_pb2, worker_pb2_grpc
from worker_svc.core.batch import TokenLogprobs
from worker_svc.core.step import FrontendOutput
from worker_svc.links.outputs import MESSAGE_BYTES, Outputs, WorkerServicer


def output(attempt: int, num_prompt_tokens: int = 0) -> FrontendOutput:
    tokens = [TokenLogprobs(-0.5, 2, list(range(20)), [-0.1] * 20)] * num_prompt_tokens
    return FrontendOutput(
        frontend_instance="f",
        attempts=np.array([attempt], np.uint32),
        starts=np.zeros(1, np.uint32),
        counts=None,
        token_ids=np.array([7], np.int32),
        finished=[(attempt, FinishReason.STOP, 1, None)],
        prompt_logprobs=[(attempt, 1, tokens)] if tokens else [],
        vectors=[(attempt, np.array([0.25, -1.5], np.float32))],
    )


@asynccontextmanager
async def serve(outputs: Outputs) -> AsyncIterator[Any]:
    """A client of a server with these outputs."""
    server = grpc.aio.server()
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(outputs), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with rpc.channel(f"127.0.0.1:{port}") as channel:
        yield worker_pb2_grpc.WorkerServiceStub(channel)
    await server.stop(0)


async def sequences(stream: Any, count: int) -> list[int]:
    """Numbers of the next `count` batches."""
    numbers: list[int] = []
    while len(numbers) < count:
        async with asyncio.timeout(10):
            numbers += [batch.sequence for batch in (await stream.read()).batches]
    return numbers


async def test_a_stream_that_was_replaced_takes_nothing_from_the_new_one() -> None:
    """The first stream stays open on our side, as after a connection that broke without a word."""
    outputs = Outputs("w", max_bytes=64 << 20, timeout_s=30)
    outputs.append([output(1)])
    async with serve(outputs) as stub:
        old, new = stub.StreamOutputs(), stub.StreamOutputs()
        await old.write(worker_pb2.StreamOutputsRequest(frontend_instance="f"))
        hello = await old.read()
        assert await sequences(old, 1) == [1]
        again = worker_pb2.StreamOutputsRequest(
            frontend_instance="f", worker_instance="w", log_number=hello.log_number, acknowledged=0
        )
        await new.write(again)
        assert await sequences(new, 1) == [1], "it was not acknowledged"
        outputs.append([output(2)])
        outputs.append([output(3)])
        assert await sequences(new, 2) == [2, 3]
        assert await old.read() is grpc.aio.EOF
        new.cancel()


async def test_large_outputs_travel_in_several_messages_and_in_order() -> None:
    outputs = Outputs("w", max_bytes=64 << 20, timeout_s=30)
    outputs.append([output(attempt, num_prompt_tokens=5000) for attempt in range(1, 6)])
    outputs.append([output(6), output(7)])
    messages = []
    async with serve(outputs) as stub:
        stream = stub.StreamOutputs()
        await stream.write(worker_pb2.StreamOutputsRequest(frontend_instance="f"))
        while sum(len(message.batches) for message in messages) < 7:
            messages.append(await stream.read())
        stream.cancel()
    batches = [batch for message in messages for batch in message.batches]
    assert [batch.sequence for batch in batches] == list(range(1, 8))
    assert all(len(message.batches) == 1 or message.ByteSize() <= MESSAGE_BYTES + 100 for message in messages)
    assert len(messages) > 3 and max(len(message.batches) for message in messages) > 1
    row = batches[0].prompt_logprobs[0]
    assert (row.attempt, row.start, len(row.tokens)) == (1, 1, 5000)
    assert (row.tokens[0].rank, len(row.tokens[0].top_token_ids)) == (2, 20)
    assert not batches[6].prompt_logprobs and batches[6].finished[0].attempt == 7
    assert np.frombuffer(batches[6].vectors[0].values, "<f4").tolist() == [0.25, -1.5]
