"""Simulated workers for `signalbox bench scale`: no model, only a time line of when each step would have run, and the
streams over which they speak to a real scheduler."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np

from signalbox.benchmarks.scheduler.tables import BLOCK_SIZE, MODEL, EchoWorker, Load
from signalbox.links.outbox import Outbox
from signalbox.v1 import from_worker_pb2, generation_pb2, scheduler_pb2, shared_pb2, to_worker_pb2

PROMPT_TOKENS = 64
MAX_MODEL_LEN = 16_384
NUM_BLOCKS_PER_REQUEST = 256
MAX_OUTBOX = 10_000
STEP_JITTER = 0.02
"""Steps last by so much more or less, at random. Workers in step with each other would be easier to serve than real
ones: their messages would travel together by themselves."""


class BenchError(Exception):
    """What was to be measured cannot be: a sentence."""


@dataclass(frozen=True)
class WorkerLoad:
    """What each simulated worker does."""

    running: int
    """Requests, all of which run in every step."""
    step_s: float
    one_way_s: float
    """Delay of every message."""


@dataclass
class TimeLine:
    """When a worker would have run its steps."""

    busy_until: float = 0.0
    idle_s: float = 0.0
    queued_s: float = 0.0
    num_steps: int = 0

    def run(self, arrived: float, step_s: float) -> float:
        """Adds a step that arrived then; returns when it ends."""
        start = max(arrived, self.busy_until)
        if self.busy_until:
            self.idle_s += start - self.busy_until
        self.queued_s += start - arrived
        self.num_steps += 1
        self.busy_until = start + step_s
        return self.busy_until

    def begin_anew(self) -> None:
        """Begins to count anew."""
        self.idle_s = self.queued_s = 0.0
        self.num_steps = 0


@dataclass
class Traffic:
    """Messages to and from the scheduler, each with the reports or steps of one or several workers."""

    num_up: int = 0
    num_down: int = 0

    def begin_anew(self) -> None:
        """Forgets all."""
        self.num_up = self.num_down = 0


class SimulatedWorker:
    """Counts what a worker would: takes steps, and reports each when it would have ended."""

    def __init__(self, number: int, load: WorkerLoad) -> None:
        self.number = number
        self.line = TimeLine()
        self.rows = np.empty(0, np.int64)
        """Slots that decode."""
        self.send: Callable[[from_worker_pb2.AttachWorkerRequest], None] = lambda message: None
        """Takes a report on its way; set by the stream."""
        self._load = load
        self._num_slots = load.running + 8
        self._random = random.Random(number)
        self._echo = EchoWorker(Load(load.running, 0, 2, PROMPT_TOKENS, 0, 0), self._num_slots)

    def take(self, message: to_worker_pb2.AttachWorkerResponse) -> None:
        """What the scheduler sent. Raises BenchError for what cannot be simulated."""
        loop = asyncio.get_running_loop()
        for step in message.steps:
            if step.preempted_slots:
                raise BenchError(
                    "the blocks ran out, and no worker here can be preempted: measure for less time"
                )
            loop.call_at(loop.time() + self._load.one_way_s, self._start, step)

    def hello(self) -> from_worker_pb2.AttachWorkerRequest:
        """The first message of its stream."""
        model = shared_pb2.ModelEntry(model=MODEL, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
        hello = from_worker_pb2.WorkerHello(
            worker_id=f"sim-{self.number}",
            worker_instance=f"sim-{self.number}",
            address="127.0.0.1:1",
            model=model,
            num_slots=self._num_slots,
            num_blocks=self._load.running * NUM_BLOCKS_PER_REQUEST,
            max_num_batched_tokens=1 << 20,
            kinds=[generation_pb2.REQUEST_KIND_GENERATE],
        )
        return from_worker_pb2.AttachWorkerRequest(hello=hello)

    def _start(self, step: to_worker_pb2.SchedulerOutput) -> None:
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        if not self.line.busy_until:
            self.line.busy_until = arrived + self._random.random() * self._load.step_s
        step_s = self._load.step_s * self._random.uniform(1 - STEP_JITTER, 1 + STEP_JITTER)
        queued = max(self.line.busy_until - arrived, 0.0)
        end = self.line.run(arrived, step_s)
        report = from_worker_pb2.ModelRunnerOutput.FromString(self._echo.report(step.step_id, self.rows))
        report.timings.queued_us = int(queued * 1e6)
        report.timings.prepare_us = report.timings.commit_us = 0
        report.timings.execute_us = int(step_s * 1e6)
        self._prefill(step, report)
        message = from_worker_pb2.AttachWorkerRequest(outputs=[report])
        loop.call_at(end + self._load.one_way_s, self.send, message)

    def _prefill(
        self, step: to_worker_pb2.SchedulerOutput, report: from_worker_pb2.ModelRunnerOutput
    ) -> None:
        new, cached = step.scheduled_new_reqs, step.scheduled_cached_reqs
        slots = np.frombuffer(new.slots + cached.chunk_slots, "<u2").astype(np.int64)
        starts = np.frombuffer(new.num_computed_tokens + cached.chunk_starts, "<u4")
        lengths = np.frombuffer(new.num_scheduled_tokens + cached.chunk_lengths, "<u4")
        report.num_prefill_tokens = int(lengths.sum())
        final = slots[starts + lengths == PROMPT_TOKENS]
        for slot in final.tolist():
            self._echo.place(slot, PROMPT_TOKENS)
        self.rows = np.sort(np.concatenate((self.rows, final)))


async def attach(worker: SimulatedWorker, stub: Any, traffic: Traffic) -> None:
    """A stream of the worker's own, until cancelled. Raises BenchError when the scheduler ends it."""
    stream = stub.AttachWorker()
    outbox = Outbox[from_worker_pb2.AttachWorkerRequest](MAX_OUTBOX)
    worker.send = outbox.put
    outbox.put(worker.hello())

    async def write() -> None:
        while True:
            first, *others = await outbox.take()
            for other in others:
                first.MergeFrom(other)
            await stream.write(first)
            traffic.num_up += 1

    async def read() -> None:
        async for message in stream:
            traffic.num_down += 1
            worker.take(message)

    await _both(read(), write(), f"worker {worker.number}")


async def attach_relay(workers: list[SimulatedWorker], stub: Any, window_s: float, traffic: Traffic) -> None:
    """One stream for all of `workers`, as a relay would carry it, until cancelled. Raises BenchError when the scheduler
    ends it, or the link of one of them."""
    stream = stub.AttachWorkers()
    outbox = Outbox[scheduler_pb2.RelayedRequest](MAX_OUTBOX * len(workers))
    name = f"relay of worker {workers[0].number}"

    async def write() -> None:
        hello = scheduler_pb2.RelayHello(relay_id=name, window_us=round(window_s * 1e6))
        await stream.write(scheduler_pb2.AttachWorkersRequest(hello=hello))
        while True:
            entries = await outbox.take(window_s)
            await stream.write(scheduler_pb2.AttachWorkersRequest(entries=entries))
            traffic.num_up += 1

    async def read() -> None:
        async for message in stream:
            traffic.num_down += 1
            for entry in message.entries:
                if entry.WhichOneof("entry") == "closed":
                    raise BenchError(
                        f"the scheduler closed a link: {entry.closed.error.message or 'divergence'}"
                    )
                workers[entry.link - 1].take(to_worker_pb2.AttachWorkerResponse.FromString(entry.message))

    for link, worker in enumerate(workers, 1):
        worker.send = _relayed(link, outbox)
        worker.send(worker.hello())
    await _both(read(), write(), name)


def _relayed(
    link: int, outbox: Outbox[scheduler_pb2.RelayedRequest]
) -> Callable[[from_worker_pb2.AttachWorkerRequest], None]:
    def send(message: from_worker_pb2.AttachWorkerRequest) -> None:
        outbox.put(scheduler_pb2.RelayedRequest(link=link, message=message.SerializeToString()))

    return send


async def _both(reading: Any, writing: Any, name: str) -> None:
    """Runs the two halves of a stream; neither may end."""
    tasks = [asyncio.create_task(half) for half in (reading, writing)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise BenchError(f"the scheduler ended the stream of {name}")
    except grpc.aio.AioRpcError as error:
        raise BenchError(f"the stream of {name} broke: {error.details()}") from None
    finally:
        for task in tasks:
            task.cancel()
