"""A worker process tells its scheduler which grammars are ready, and a new stream once more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np

from signalbox import rpc
from signalbox.ring import DEMO_MODEL
from signalbox.v1 import generation_pb2, scheduler_pb2, scheduler_pb2_grpc, worker_pb2, worker_pb2_grpc
from tests.ports import free_ports

PROMPT = [5, 6, 7, 8]
PREPARING = scheduler_pb2.SLOT_STATUS_PREPARING
ENDED = scheduler_pb2.SLOT_STATUS_ENDED


class Scheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Keeps what workers say, sends what the test puts, and ends a stream when None is put."""

    def __init__(self) -> None:
        self.hellos: asyncio.Queue[scheduler_pb2.WorkerHello] = asyncio.Queue()
        self.reports: asyncio.Queue[scheduler_pb2.ModelRunnerOutput] = asyncio.Queue()
        self.events: asyncio.Queue[scheduler_pb2.WorkerEvent] = asyncio.Queue()
        self.messages: asyncio.Queue[scheduler_pb2.AttachWorkerResponse | None] = asyncio.Queue()

    async def AttachWorker(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        await context.send_initial_metadata(())
        reader = asyncio.create_task(self._read(requests))
        try:
            while (message := await self.messages.get()) is not None:
                yield message
        finally:
            reader.cancel()

    async def _read(self, requests: Any) -> None:
        async for message in requests:
            if message.HasField("hello"):
                self.hellos.put_nowait(message.hello)
            for report in message.outputs:
                self.reports.put_nowait(report)
            for event in message.events:
                if event.WhichOneof("event") != "alive":
                    self.events.put_nowait(event)


@asynccontextmanager
async def worker_process() -> AsyncIterator[tuple[Scheduler, str]]:
    """The scheduler, and the worker's address."""
    scheduler, server = Scheduler(), grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "worker_svc", f"--listen={address}", f"--scheduler=127.0.0.1:{port}"]
    command += [f"--model={DEMO_MODEL}", "--num-blocks=64", "--threads=1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX")}
    process = subprocess.Popen(command, env=environment)
    try:
        yield scheduler, address
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)
        await server.stop(0)


def new_request(slot: int, regex: str | None) -> scheduler_pb2.NewRequestData:
    form = None if regex is None else generation_pb2.StructuredOutput(regex=regex)
    payload = generation_pb2.RequestPayload(
        token_ids=np.array(PROMPT, "<i4").tobytes(),
        sampling=generation_pb2.SamplingParams(structured_output=form),
    )
    return scheduler_pb2.NewRequestData(
        slot=slot,
        ref=scheduler_pb2.RequestRef(request_id=f"r{slot}", attempt=slot + 1),
        frontend_instance="f",
        scheduler_meta=scheduler_pb2.RequestMeta(has_grammar=regex is not None).SerializeToString(),
        payload=payload.SerializeToString(),
        num_known_tokens=len(PROMPT),
        max_tokens=8,
    )


def first_step(slot: int) -> scheduler_pb2.SchedulerOutput:
    return scheduler_pb2.SchedulerOutput(
        step_id=1,
        scheduler_epoch=1,
        scheduled_new_reqs=scheduler_pb2.ScheduledNewReqs(
            slots=np.array([slot], "<u2").tobytes(),
            block_counts=np.array([2], "<u4").tobytes(),
            block_ids=np.array([0, 1], "<u4").tobytes(),
            num_computed_tokens=np.array([0], "<u4").tobytes(),
            num_scheduled_tokens=np.array([len(PROMPT)], "<u4").tobytes(),
        ),
    )


async def first_end(address: str) -> worker_pb2.OutputFinished:
    """The first end of a request that the frontend `f` hears of."""
    async with rpc.channel(address) as channel:
        stream = worker_pb2_grpc.WorkerServiceStub(channel).StreamOutputs()
        await stream.write(worker_pb2.StreamOutputsRequest(frontend_instance="f"))
        async for message in stream:
            for batch in message.batches:
                if batch.finished:
                    stream.cancel()
                    return batch.finished[0]
    raise AssertionError("the stream ended")


async def test_events_of_grammars_and_again_after_a_new_hello() -> None:
    async with asyncio.timeout(90), worker_process() as (scheduler, address):
        assert not (await scheduler.hellos.get()).HasField("snapshot")
        requests = [new_request(0, None), new_request(1, "[a-z]+"), new_request(2, "(")]
        scheduler.messages.put_nowait(
            scheduler_pb2.AttachWorkerResponse(new_requests=requests, steps=[first_step(0)])
        )
        events = {
            event.WhichOneof("event"): event for event in [await scheduler.events.get() for _ in range(2)]
        }
        ready, failed = events["grammar_ready"].grammar_ready, events["grammar_failed"].grammar_failed
        assert (ready.slot, ready.ref.request_id, ready.ref.attempt) == (1, "r1", 2)
        assert (failed.slot, failed.ref.attempt, failed.error.code) == (2, 3, "InvalidRequestError")
        assert failed.error.field == "structured_output" and "unclosed group" in failed.error.message
        end = await first_end(address)
        assert (end.attempt, end.reason, end.error) == (3, generation_pb2.FINISH_REASON_ERROR, failed.error)
        await scheduler.reports.get()

        scheduler.messages.put_nowait(None)
        snapshot = (await scheduler.hellos.get()).snapshot
        statuses = {slot.slot: slot.status for slot in snapshot.slots}
        assert (statuses[1], statuses[2]) == (PREPARING, ENDED)
        again = (await scheduler.events.get()).grammar_ready
        assert (again.slot, again.ref.attempt) == (1, 2)
        scheduler.messages.put_nowait(None)
