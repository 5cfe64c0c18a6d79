"""A worker process between a scheduler that follows a script and a frontend's stream: both ends of what it promises."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from signalbox.links import rpc
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.v1 import (
    from_worker_pb2,
    generation_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
    shared_pb2,
    to_worker_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from tests.ports import free_ports
from tools.make_random_model import make_model

GENERATE, POOLING = generation_pb2.REQUEST_KIND_GENERATE, generation_pb2.REQUEST_KIND_POOLING
PROMPT = list(range(5, 30))
BLOCKS = 8


class ScriptedScheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Keeps what the worker says, sends what the test puts, and ends a stream when None is put."""

    def __init__(self) -> None:
        self.hellos: asyncio.Queue[from_worker_pb2.WorkerHello] = asyncio.Queue()
        self.reports: asyncio.Queue[from_worker_pb2.ModelRunnerOutput] = asyncio.Queue()
        self.events: asyncio.Queue[from_worker_pb2.WorkerEvent] = asyncio.Queue()
        """All but those that say no more than that the worker is alive."""
        self.messages: asyncio.Queue[to_worker_pb2.AttachWorkerResponse | None] = asyncio.Queue()
        self.is_away = False
        """It refuses workers."""
        self.last_step_id = 0
        """Of the steps that the test has put, where it counts them, or that the worker had run when it said hello."""

    async def AttachWorker(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        if self.is_away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        await context.send_initial_metadata(())
        reader = asyncio.create_task(self._read(requests))
        try:
            while (message := await self._next()) is not None:
                yield message
        finally:
            reader.cancel()

    async def _next(self) -> to_worker_pb2.AttachWorkerResponse | None:
        """What the test puts, else a heartbeat."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                return await self.messages.get()
        except TimeoutError:
            return to_worker_pb2.AttachWorkerResponse()

    async def FindLeader(self, request: Any, context: Any) -> scheduler_pb2.FindLeaderResponse:  # noqa: N802
        return scheduler_pb2.FindLeaderResponse(is_leader=True)

    async def _read(self, requests: Any) -> None:
        async for message in requests:
            if message.HasField("hello"):
                self.last_step_id = message.hello.snapshot.last_step_id
                self.hellos.put_nowait(message.hello)
            for report in message.outputs:
                self.reports.put_nowait(report)
            for event in message.events:
                if event.WhichOneof("event") != "alive":
                    self.events.put_nowait(event)


def start_worker(port: int, address: str, *options: str, **streams: Any) -> subprocess.Popen[str]:
    """A worker at `address` of the scheduler at `port`."""
    command = [sys.executable, "-m", "worker_svc", f"--listen={address}", f"--scheduler=127.0.0.1:{port}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX")}
    return subprocess.Popen([*command, *options], env=environment, text=True, **streams)


@asynccontextmanager
async def serve_scheduler() -> AsyncIterator[tuple[ScriptedScheduler, int]]:
    """The scheduler, and its port."""
    scheduler, server = ScriptedScheduler(), grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield scheduler, port
    finally:
        await server.stop(0)


@asynccontextmanager
async def worker_process(*options: str) -> AsyncIterator[tuple[ScriptedScheduler, str]]:
    """The scheduler, and the worker's address."""
    async with serve_scheduler() as (scheduler, port):
        address = f"127.0.0.1:{free_ports(1)[0]}"
        process = start_worker(port, address, *options)
        try:
            yield scheduler, address
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 20)


def new_request(slot: int, kind: int = GENERATE, **payload: Any) -> to_worker_pb2.NewRequestData:
    body = generation_pb2.RequestPayload(token_ids=np.array(PROMPT, "<i4").tobytes(), **payload)
    return to_worker_pb2.NewRequestData(
        slot=slot,
        ref=shared_pb2.RequestRef(request_id=f"r{slot}", attempt=slot + 1),
        frontend_instance="f",
        num_known_tokens=len(PROMPT),
        max_tokens=0 if kind == POOLING else 1,
        kind=kind,  # type: ignore[arg-type]
        payload=body.SerializeToString(),
    )


def first_step(*slots: int) -> to_worker_pb2.SchedulerOutput:
    """Whole prompts in one step."""
    count, zeros = len(slots), np.zeros(len(slots), "<u4")
    starts = to_worker_pb2.ScheduledNewReqs(
        slots=np.array(slots, "<u2").tobytes(),
        block_counts=np.full(count, BLOCKS, "<u4").tobytes(),
        block_ids=np.arange(count * BLOCKS, dtype="<u4").tobytes(),
        num_computed_tokens=zeros.tobytes(),
        num_scheduled_tokens=(zeros + len(PROMPT)).astype("<u4").tobytes(),
    )
    return to_worker_pb2.SchedulerOutput(step_id=1, scheduler_epoch=1, scheduled_new_reqs=starts)


async def start_request(scheduler: ScriptedScheduler) -> None:
    """One request of three tokens, the first of which is reported."""
    await scheduler.hellos.get()
    request = new_request(0)
    request.max_tokens = 3
    scheduler.messages.put_nowait(
        to_worker_pb2.AttachWorkerResponse(new_requests=[request], steps=[first_step(0)])
    )
    await scheduler.reports.get()


async def first_output(address: str, num_ends: int = 1) -> worker_pb2.OutputBatch:
    """What a frontend reads until so many requests have ended, as one batch."""
    async with rpc.channel(address) as channel:
        stream = worker_pb2_grpc.WorkerServiceStub(channel).StreamOutputs()
        await stream.write(worker_pb2.StreamOutputsRequest(frontend_instance="f"))
        whole = worker_pb2.OutputBatch()
        async for message in stream:
            for batch in message.batches:
                whole.MergeFrom(batch)
            if len(whole.finished) >= num_ends:
                break
        stream.cancel()
    return whole


@pytest.mark.fresh
async def test_the_simulated_model_serves_no_pooling_and_says_so() -> None:
    async with asyncio.timeout(60), worker_process("--runner=sim") as (scheduler, address):
        assert (await scheduler.hellos.get()).kinds == [GENERATE]
        refused = [
            new_request(0, POOLING),
            new_request(1, sampling=generation_pb2.SamplingParams(prompt_logprobs=1)),
        ]
        scheduler.messages.put_nowait(
            to_worker_pb2.AttachWorkerResponse(new_requests=refused, steps=[first_step(0, 1)])
        )
        report = await scheduler.reports.get()
        assert (
            np.frombuffer(report.finished_reasons, "u1").tolist() == [generation_pb2.FINISH_REASON_ERROR] * 2
        )
        finished = (await first_output(address, num_ends=2)).finished
        assert [item.error.code for item in finished] == ["UnsupportedError"] * 2
        assert [item.error.field for item in finished] == ["kind", "prompt_logprobs"]


async def test_a_model_serves_vectors_and_prompt_logprobs_beside_text(tmp_path: Path) -> None:
    model_dir = make_model("tiny-llama", tmp_path, seed=1)
    options = ("--model", str(model_dir), "--dtype=float32", "--num-blocks=64", "--threads=1")
    async with asyncio.timeout(100), worker_process(*options) as (scheduler, address):
        assert (await scheduler.hellos.get()).kinds == [GENERATE, POOLING]
        requests = [
            new_request(0, sampling=generation_pb2.SamplingParams(temperature=0, prompt_logprobs=2)),
            new_request(1, POOLING, pooling=generation_pb2.PoolingParams(mode=1, raw=True)),
        ]
        scheduler.messages.put_nowait(
            to_worker_pb2.AttachWorkerResponse(new_requests=requests, steps=[first_step(0, 1)])
        )
        report = await scheduler.reports.get()
        assert np.frombuffer(report.exception_slots, "<u2").tolist() == [1]
        assert np.frombuffer(report.exception_counts, "u1").tolist() == [0]
        assert np.frombuffer(report.finished_counts, "<u4").tolist() == [1, 0]
        output = await first_output(address)
    model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    with torch.inference_mode():
        expected = model(torch.tensor([PROMPT]), output_hidden_states=True)
    logprobs = expected.logits[0].log_softmax(-1)
    row = output.prompt_logprobs[0]
    assert (row.attempt, row.start, len(row.tokens)) == (1, 1, len(PROMPT) - 1)
    wanted = logprobs[:-1].gather(1, torch.tensor(PROMPT[1:])[:, None])[:, 0]
    assert (torch.tensor([token.logprob for token in row.tokens]) - wanted).abs().max() < 1e-4
    assert all(len(token.top_token_ids) == 2 for token in row.tokens)
    assert np.frombuffer(output.token_ids, "<i4").tolist() == [int(logprobs[-1].argmax())]
    vector = output.vectors[0]
    assert vector.attempt == 2
    mean = expected.hidden_states[-1][0].mean(0).numpy()
    assert np.abs(np.frombuffer(vector.values, "<f4") - mean).max() < 1e-4
