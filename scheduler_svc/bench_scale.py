"""How many workers one scheduler process keeps busy: `signalbox bench scale`.

The scheduler is the real service in a process of its own, over real gRPC streams. The workers are simulated: they all
live in this process, run no model, and keep a time line of when each step would have run. A worker is idle from the end
of a step until the next one that has arrived starts; `one_way_ms` delays every message both ways.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scheduler_svc.bench import BLOCK_SIZE, MODEL, EchoWorker, Load
from signalbox import rpc
from signalbox.hash_chain import HASH_BYTES
from signalbox.v1 import generation_pb2, scheduler_pb2, scheduler_pb2_grpc

PROMPT_TOKENS = 64
MAX_MODEL_LEN = 16_384
WARM_UP_S = 3.0


@dataclass
class Setting:
    """What is measured."""

    workers: int
    running: int
    step_s: float
    one_way_s: float
    inflight: int
    seconds: float
    just_in_time: bool


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


@dataclass
class SimulatedWorker:
    """One worker's stream to the scheduler."""

    number: int
    setting: Setting
    line: TimeLine = field(default_factory=TimeLine)

    def __post_init__(self) -> None:
        slots = self.setting.running + 8
        self._echo = EchoWorker(Load(self.setting.running, 0, 2, PROMPT_TOKENS, 0, 0), slots)
        self._rows = np.empty(0, np.int64)
        self._outbox: asyncio.Queue[scheduler_pb2.AttachWorkerRequest] = asyncio.Queue()

    async def run(self, stub: Any) -> None:
        """Until cancelled."""
        stream = stub.AttachWorker()
        await stream.write(scheduler_pb2.AttachWorkerRequest(hello=self._hello()))
        writer = asyncio.create_task(self._write(stream))
        loop = asyncio.get_running_loop()
        try:
            async for message in stream:
                for step in message.steps:
                    loop.call_at(loop.time() + self.setting.one_way_s, self._start, step)
        finally:
            writer.cancel()

    async def _write(self, stream: Any) -> None:
        while True:
            message = await self._outbox.get()
            while not self._outbox.empty():
                message.MergeFrom(self._outbox.get_nowait())
            await stream.write(message)

    def _start(self, step: scheduler_pb2.SchedulerOutput) -> None:
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        queued = max(self.line.busy_until - arrived, 0.0)
        end = self.line.run(arrived, self.setting.step_s)
        report = scheduler_pb2.ModelRunnerOutput.FromString(self._echo.report(step.step_id, self._rows))
        report.timings.queued_us = int(queued * 1e6)
        report.timings.prepare_us = report.timings.commit_us = 0
        report.timings.execute_us = int(self.setting.step_s * 1e6)
        new, cached = step.scheduled_new_reqs, step.scheduled_cached_reqs
        slots = np.frombuffer(new.slots + cached.chunk_slots, "<u2").astype(np.int64)
        starts = np.frombuffer(new.num_computed_tokens + cached.chunk_starts, "<u4")
        lengths = np.frombuffer(new.num_scheduled_tokens + cached.chunk_lengths, "<u4")
        report.num_prefill_tokens = int(lengths.sum())
        final = slots[starts + lengths == PROMPT_TOKENS]
        for slot in final.tolist():
            self._echo.place(slot, PROMPT_TOKENS)
        self._rows = np.sort(np.concatenate((self._rows, final)))
        message = scheduler_pb2.AttachWorkerRequest(outputs=[report])
        loop.call_at(end + self.setting.one_way_s, self._outbox.put_nowait, message)

    def _hello(self) -> scheduler_pb2.WorkerHello:
        model = scheduler_pb2.ModelEntry(model=MODEL, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
        return scheduler_pb2.WorkerHello(
            worker_id=f"sim-{self.number}",
            worker_instance=f"sim-{self.number}",
            address="127.0.0.1:1",
            model=model,
            num_slots=self.setting.running + 8,
            num_blocks=self.setting.running * 256,
            max_num_batched_tokens=1 << 20,
            kinds=[generation_pb2.REQUEST_KIND_GENERATE],
        )


async def submit_all(stub: Any, setting: Setting) -> Any:
    """One frontend's stream with all requests; it has to stay open."""
    stream = stub.AttachFrontend()
    await stream.write(
        scheduler_pb2.AttachFrontendRequest(hello=scheduler_pb2.FrontendHello(frontend_instance="bench"))
    )
    for number in range(setting.workers * setting.running):
        meta = scheduler_pb2.RequestMeta(
            model=MODEL,
            num_prompt_tokens=PROMPT_TOKENS,
            max_tokens=MAX_MODEL_LEN - PROMPT_TOKENS,
            block_hashes=os.urandom(HASH_BYTES * (PROMPT_TOKENS // BLOCK_SIZE)),
            hash_block_size=BLOCK_SIZE,
            kind=generation_pb2.REQUEST_KIND_GENERATE,
            arrival_ms=number,
        )
        ref = scheduler_pb2.RequestRef(request_id=f"r{number}", attempt=number + 1)
        submit = scheduler_pb2.SubmitRequest(ref=ref, meta=meta, payload=b"")
        operation = scheduler_pb2.FrontendOperation(submit=submit)
        await stream.write(scheduler_pb2.AttachFrontendRequest(operations=[operation]))
    return stream


def cpu_seconds(pid: int) -> float:
    """CPU time of a running process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(setting: Setting, address: str, pid: int) -> dict[str, float | bool]:
    """Attaches all workers, lets all requests start, then watches."""
    workers = [SimulatedWorker(number, setting) for number in range(setting.workers)]
    async with rpc.channel(address) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        tasks = [asyncio.create_task(worker.run(stub)) for worker in workers]
        await asyncio.sleep(0.5)
        frontend = await submit_all(stub, setting)
        await asyncio.sleep(WARM_UP_S)
        for worker in workers:
            worker.line = TimeLine(busy_until=worker.line.busy_until)
        started, cpu, own = time.monotonic(), cpu_seconds(pid), time.process_time()
        await asyncio.sleep(setting.seconds)
        elapsed = time.monotonic() - started
        cpu, own = cpu_seconds(pid) - cpu, time.process_time() - own
        for task in tasks:
            task.cancel()
        frontend.cancel()
    steps = sum(worker.line.num_steps for worker in workers)
    rows = [len(worker._rows) for worker in workers]
    return {
        "workers": setting.workers,
        "running_mean": round(float(np.mean(rows)), 1),
        "step_ms": setting.step_s * 1e3,
        "one_way_ms": setting.one_way_s * 1e3,
        "inflight": setting.inflight,
        "just_in_time": setting.just_in_time,
        "idle_share": round(sum(worker.line.idle_s for worker in workers) / (elapsed * setting.workers), 4),
        "queued_ms": round(sum(worker.line.queued_s for worker in workers) / max(steps, 1) * 1e3, 2),
        "steps_per_s": round(steps / elapsed, 1),
        "scheduler_cpu_us_per_step": round(cpu / max(steps, 1) * 1e6, 1),
        "scheduler_cpu_share": round(cpu / elapsed, 3),
        "bench_cpu_share": round(own / elapsed, 3),
    }


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(setting: Setting) -> dict[str, float | bool]:
    """Starts the scheduler service, measures, stops it."""
    address = f"127.0.0.1:{free_port()}"
    flags = [
        f"--listen={address}",
        f"--max-inflight-steps={setting.inflight}",
        f"--max-num-seqs={setting.running}",
    ]
    flags.append("--just-in-time-steps" if setting.just_in_time else "--no-just-in-time-steps")
    environment = os.environ | {"SIGNALBOX_LOG_LEVEL": "ERROR"}
    service = subprocess.Popen([sys.executable, "-m", "scheduler_svc", *flags], env=environment)
    try:
        time.sleep(1.5)
        return asyncio.run(measure(setting, address, service.pid))
    finally:
        service.terminate()
        service.wait(10)


def main() -> None:
    """Prints one JSON object per number of workers."""
    parser = argparse.ArgumentParser(prog="signalbox bench scale", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[50], help="simulated workers")
    parser.add_argument("--running", type=int, default=256, help="running requests per worker")
    parser.add_argument("--step-ms", type=float, default=20.0, help="duration of a step")
    parser.add_argument("--one-way-ms", type=float, default=0.0, help="delay of every message")
    parser.add_argument("--inflight", type=int, default=2, help="steps sent ahead")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure")
    parser.add_argument("--eager", action="store_true", help="send steps at once, not just in time")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per line (the default, and the only form)"
    )
    asked = parser.parse_args()
    for workers in asked.workers:
        setting = Setting(
            workers,
            asked.running,
            asked.step_ms / 1e3,
            asked.one_way_ms / 1e3,
            asked.inflight,
            asked.seconds,
            not asked.eager,
        )
        print(json.dumps(run(setting)), flush=True)


if __name__ == "__main__":
    main()
