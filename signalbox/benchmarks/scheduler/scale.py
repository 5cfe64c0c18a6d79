"""How many workers one scheduler process keeps busy: `signalbox bench scale`.

The scheduler is the real service in a process of its own, over real gRPC streams, and only its CPU time is measured.
The workers are simulated: they all live in this process, run no model, and keep a time line of when each step would
have run; they start at random phases, and their steps vary by 2 %. A worker is idle from the end of a step until the
next one that has arrived starts; `one_way_ms` delays every message both ways. With `--per-relay` so many workers share
a stream, as they would behind a relay; the relay's part is simulated in this process too, so that its CPU time counts
for neither side.

All requests are submitted at once. The *ramp* is the time from the first of them that runs until all do, and decoding
goes on beside it: `starts_per_s` is about the whole ramp, `late_starts_per_s` about its last quarter, with decode rows
for three quarters of the requests. `ramp_cpu_us_per_start` is the scheduler's processor time in the ramp, for steps and
starts together, by starts; it depends less on what else runs, but grows with the steps that are made meanwhile
(`ramp_steps_per_start`). `ramp_bench_share` is the processor time of this process by that of the scheduler. Measuring
of steady steps starts when all requests run and every worker has done some steps with all of them. A number of workers
is *held* when they idle for less than 2 % of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from signalbox.benchmarks.process_time import process_time_of
from signalbox.benchmarks.scheduler.tables import BLOCK_SIZE, MODEL
from signalbox.benchmarks.scheduler.workers import (
    MAX_MODEL_LEN,
    PROMPT_TOKENS,
    BenchError,
    SimulatedWorker,
    Traffic,
    WorkerLoad,
    attach,
    attach_relay,
)
from signalbox.links import rpc
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.runtime.start.interpreter import module_command
from signalbox.v1 import from_frontend_pb2, generation_pb2, scheduler_pb2_grpc, shared_pb2

SETTLE_STEPS = 50
"""Steps of each worker between the last request's start and the measurement: the pacing has learned by then."""
HELD_IDLE_SHARE = 0.02
POLL_S = 0.05
BATCH = 16
"""Submissions of one message, as of a frontend that has many clients."""
ANSWER_LIMIT_S = 30.0
"""Most time for the scheduler's process to start."""

Line = dict[str, float | bool | str]


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    workers: int
    per_relay: int
    """Workers that share a stream; 0: each has its own."""
    window_s: float
    """How long messages of a shared stream wait for others."""
    load: WorkerLoad
    inflight: int
    seconds: float
    start_limit_s: float
    """All requests have to run by then."""
    just_in_time: bool

    @property
    def num_requests(self) -> int:
        """Running requests of all workers together."""
        return self.workers * self.load.running


async def submit_all(stub: Any, num_requests: int) -> Any:
    """One frontend's stream with all requests; it has to stay open."""
    stream = stub.AttachFrontend()
    await stream.write(
        from_frontend_pb2.AttachFrontendRequest(
            hello=from_frontend_pb2.FrontendHello(frontend_instance="bench")
        )
    )
    operations = [_submission(number) for number in range(num_requests)]
    for first in range(0, num_requests, BATCH):
        batch = operations[first : first + BATCH]
        await stream.write(from_frontend_pb2.AttachFrontendRequest(operations=batch))
    return stream


def _submission(number: int) -> from_frontend_pb2.FrontendOperation:
    meta = from_frontend_pb2.RequestMeta(
        model=MODEL,
        num_prompt_tokens=PROMPT_TOKENS,
        max_tokens=MAX_MODEL_LEN - PROMPT_TOKENS,
        block_hashes=os.urandom(HASH_BYTES * (PROMPT_TOKENS // BLOCK_SIZE)),
        hash_block_size=BLOCK_SIZE,
        kind=generation_pb2.REQUEST_KIND_GENERATE,
        arrival_ms=number,
    )
    ref = shared_pb2.RequestRef(request_id=f"r{number}", attempt=number + 1)
    submit = from_frontend_pb2.SubmitRequest(ref=ref, meta=meta, payload=b"")
    return from_frontend_pb2.FrontendOperation(submit=submit)


class RampSample(NamedTuple):
    """What had been done by some time of the ramp."""

    now: float
    """Seconds of any clock that only rises."""
    num_running: int
    num_steps: int
    """Steps of all workers."""
    scheduler_cpu_s: float
    bench_cpu_s: float


class Ramp:
    """How many requests ran at which time while they started, and what that cost."""

    def __init__(self, num_requests: int) -> None:
        self._num_requests = num_requests
        self._samples: list[RampSample] = []

    def note(self, sample: RampSample) -> None:
        """Keeps a sample if more requests run than in the last one."""
        num_running = sample.num_running
        if num_running and (not self._samples or self._samples[-1].num_running < num_running):
            self._samples.append(sample)

    def line(self) -> Line:
        """Its seconds, and starts per second of all of it and of its last quarter."""
        if not self._samples:
            return {}
        first, last = self._samples[0], self._samples[-1]
        most = 0.75 * self._num_requests
        late = next((sample for sample in self._samples if sample.num_running >= most), last)
        num_starts = max(last.num_running - first.num_running, 1)
        scheduler_cpu_s = last.scheduler_cpu_s - first.scheduler_cpu_s
        bench_cpu_s = last.bench_cpu_s - first.bench_cpu_s
        return {
            "ramp_s": round(last.now - first.now, 2),
            "starts_per_s": _starts_per_s(first, last),
            "late_starts_per_s": _starts_per_s(late, last),
            "ramp_cpu_us_per_start": round(scheduler_cpu_s / num_starts * 1e6, 1),
            "ramp_steps_per_start": round((last.num_steps - first.num_steps) / num_starts, 2),
            "ramp_bench_share": round(bench_cpu_s / max(scheduler_cpu_s, 1e-9), 2),
        }


def _starts_per_s(first: RampSample, last: RampSample) -> float:
    return round((last.num_running - first.num_running) / max(last.now - first.now, POLL_S), 1)


class Bench:
    """One scheduler process with its workers."""

    def __init__(self, setting: Setting, pid: int) -> None:
        self._setting, self._pid = setting, pid
        self._workers = [SimulatedWorker(number, setting.load) for number in range(setting.workers)]
        self._traffic, self._ramp = Traffic(), Ramp(setting.num_requests)

    async def run(self, address: str) -> Line:
        """Attaches all workers, lets all requests start, then watches. Raises BenchError."""
        async with rpc.channel(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), ANSWER_LIMIT_S)
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            tasks = [asyncio.create_task(stream) for stream in self._streams(stub)]
            measuring = asyncio.create_task(self._measure(stub))
            try:
                await asyncio.wait((*tasks, measuring), return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
                return await measuring
            finally:
                for task in (*tasks, measuring):
                    task.cancel()
                await asyncio.gather(*tasks, measuring, return_exceptions=True)

    def _streams(self, stub: Any) -> list[Any]:
        size = self._setting.per_relay
        if not size:
            return [attach(worker, stub, self._traffic) for worker in self._workers]
        groups = [self._workers[first : first + size] for first in range(0, len(self._workers), size)]
        return [attach_relay(group, stub, self._setting.window_s, self._traffic) for group in groups]

    async def _measure(self, stub: Any) -> Line:
        submitting = asyncio.create_task(submit_all(stub, self._setting.num_requests))
        await self._start()
        frontend = await submitting
        for worker in self._workers:
            worker.line.begin_anew()
        self._traffic.begin_anew()
        started, cpu, own = time.monotonic(), process_time_of(self._pid), time.process_time()
        await asyncio.sleep(self._setting.seconds)
        elapsed = time.monotonic() - started
        cpu, own = process_time_of(self._pid) - cpu, time.process_time() - own
        frontend.cancel()
        return self._line(elapsed, cpu, own)

    async def _start(self) -> None:
        """Waits until all requests run and every worker has settled. Raises BenchError when that takes too long."""
        give_up = time.monotonic() + self._setting.start_limit_s
        await self._until(lambda: self._num_running == self._setting.num_requests, give_up)
        self._note()
        settled = [worker.line.num_steps + SETTLE_STEPS for worker in self._workers]
        await self._until(
            lambda: all(w.line.num_steps >= steps for w, steps in zip(self._workers, settled, strict=True)),
            give_up,
        )

    async def _until(self, condition: Callable[[], bool], give_up: float) -> None:
        while not condition():
            self._note()
            if time.monotonic() > give_up:
                raise BenchError(
                    f"after {self._setting.start_limit_s:g} s only {self._num_running} of "
                    f"{self._setting.num_requests} requests ran, or some worker had not done {SETTLE_STEPS} steps"
                    " with all of its own; nothing was measured"
                )
            await asyncio.sleep(POLL_S)

    def _note(self) -> None:
        num_steps = sum(worker.line.num_steps for worker in self._workers)
        cpu_s = process_time_of(self._pid), time.process_time()
        self._ramp.note(RampSample(time.monotonic(), self._num_running, num_steps, *cpu_s))

    @property
    def _num_running(self) -> int:
        return sum(len(worker.rows) for worker in self._workers)

    def _line(self, elapsed: float, cpu: float, own: float) -> Line:
        setting, lines = self._setting, [worker.line for worker in self._workers]
        steps = max(sum(line.num_steps for line in lines), 1)
        idle_share = sum(line.idle_s for line in lines) / (elapsed * setting.workers)
        return self._ramp.line() | {
            "running_mean": round(self._num_running / setting.workers, 1),
            "idle_share": round(idle_share, 4),
            "queued_ms": round(sum(line.queued_s for line in lines) / steps * 1e3, 2),
            "steps_per_s": round(steps / elapsed, 1),
            "steps_per_message_up": round(steps / max(self._traffic.num_up, 1), 2),
            "steps_per_message_down": round(steps / max(self._traffic.num_down, 1), 2),
            "scheduler_cpu_us_per_step": round(cpu / steps * 1e6, 1),
            "scheduler_cpu_share": round(cpu / elapsed, 3),
            "bench_cpu_share": round(own / elapsed, 3),
            "held": idle_share < HELD_IDLE_SHARE,
        }


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(setting: Setting) -> Line:
    """Starts the scheduler service, measures, stops it. Raises BenchError."""
    address = f"127.0.0.1:{free_port()}"
    flags = [
        f"--listen={address}",
        f"--max-inflight-steps={setting.inflight}",
        f"--max-num-seqs={setting.load.running}",
    ]
    flags.append("--just-in-time-steps" if setting.just_in_time else "--no-just-in-time-steps")
    environment = os.environ | {"SIGNALBOX_LOG_LEVEL": "ERROR"}
    service = subprocess.Popen(module_command("scheduler_svc", *flags), env=environment)
    try:
        return asyncio.run(Bench(setting, service.pid).run(address))
    except TimeoutError:
        raise BenchError(f"the scheduler did not answer within {ANSWER_LIMIT_S:g} s") from None
    finally:
        service.terminate()
        service.wait(10)


def describe(setting: Setting) -> Line:
    """The part of a line that says what was asked for."""
    return {
        "workers": setting.workers,
        "per_relay": setting.per_relay,
        "window_ms": setting.window_s * 1e3 if setting.per_relay else 0.0,
        "running": setting.load.running,
        "step_ms": setting.load.step_s * 1e3,
        "one_way_ms": setting.load.one_way_s * 1e3,
        "inflight": setting.inflight,
        "just_in_time": setting.just_in_time,
    }


def make_parser() -> argparse.ArgumentParser:
    """The parser of the bench's options."""
    parser = argparse.ArgumentParser(prog="signalbox bench scale", description=__doc__)
    add = parser.add_argument
    add("--workers", type=int, nargs="+", default=[50], help="simulated workers")
    add("--per-relay", type=int, default=0, help="workers behind each relay; 0: each has a stream of its own")
    add("--window-ms", type=float, default=0.5, help="how long messages of a relay wait for others")
    add("--running", type=int, default=256, help="running requests per worker")
    add("--step-ms", type=float, default=20.0, help="duration of a step")
    add("--one-way-ms", type=float, default=0.0, help="delay of every message")
    add("--inflight", type=int, default=2, help="steps sent ahead")
    add("--seconds", type=float, default=10.0, help="how long to measure")
    add("--start-limit-s", type=float, default=60.0, help="by when all requests have to run")
    add("--eager", action="store_true", help="send steps at once, not just in time")
    add("--json", action="store_true", help="one JSON object per line (the default, and the only form)")
    return parser


def main() -> int:
    """Prints one JSON object per number of workers, then the largest number that was held. Exit status 1 when some
    could not be measured."""
    args = make_parser().parse_args()
    load = WorkerLoad(args.running, args.step_ms / 1e3, args.one_way_ms / 1e3)
    held, failed = 0, False
    for workers in args.workers:
        setting = Setting(
            workers=workers,
            per_relay=args.per_relay,
            window_s=args.window_ms / 1e3,
            load=load,
            inflight=args.inflight,
            seconds=args.seconds,
            start_limit_s=args.start_limit_s,
            just_in_time=not args.eager,
        )
        try:
            line = run(setting)
        except BenchError as error:
            line, failed = {"held": False, "error": str(error)}, True
        held = max(held, workers) if line["held"] else held
        print(json.dumps(describe(setting) | line), flush=True)
    print(json.dumps({"workers_held": held}), flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
