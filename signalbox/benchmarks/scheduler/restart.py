"""What it costs a new scheduler to take over what runs (docs/liveness.md, W3): `signalbox bench restart`.

All requests are held by workers that say hello one after the other, as after a restart, and one frontend waits for all
of them. The scheduler is the real one without a network: messages are read from their bytes, and what it does with each
is one handler. CPU time of its thread, in milliseconds; the median of several new schedulers, and the worst handler of
that one.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.links.worker_link import WorkerSession
from scheduler_svc.step_loop import StepLoop
from signalbox.links.outbox import split
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2

BLOCK_SIZE = 16
MODEL = "model"
FRONTEND = "bench"
PART_BYTES = 1 << 20
"""As workers cut their snapshots."""


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    workers: int
    per_worker: int
    prompt_tokens: int
    output_tokens: int


@dataclass
class Handlers:
    """Runs what a scheduler does, one handler at a time, as an event loop would."""

    took_ms: dict[str, list[float]] = field(default_factory=dict)
    todo: list[Callable[[], None]] = field(default_factory=list)

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Whatever the time: whoever asks for a later turn here gets the next one."""
        self.todo.append(action)

    def run(self, name: str, action: Callable[[], object]) -> None:
        """One handler, and those that it has asked for."""
        started = time.thread_time()
        action()
        self.took_ms.setdefault(name, []).append((time.thread_time() - started) * 1e3)
        while self.todo:
            self.run("piece", self.todo.pop(0))


def make_slot(number: int, slot: int, setting: Setting) -> from_worker_pb2.SlotSnapshot:
    """A decode row with a prompt of its own."""
    prompt, output = setting.prompt_tokens, setting.output_tokens
    num_hashes, num_blocks = prompt // BLOCK_SIZE, -(-(prompt + output) // BLOCK_SIZE)
    rng = np.random.default_rng(number)
    meta = from_frontend_pb2.RequestMeta(
        model=MODEL,
        num_prompt_tokens=prompt,
        max_tokens=2 * output,
        block_hashes=rng.bytes(HASH_BYTES * num_hashes),
        hash_block_size=BLOCK_SIZE,
        arrival_ms=number,
    )
    num_sealed = (prompt + output - 1) // BLOCK_SIZE - num_hashes
    return from_worker_pb2.SlotSnapshot(
        slot=slot,
        ref=shared_pb2.RequestRef(request_id=f"request-{number}", attempt=number + 1),
        frontend_instance=FRONTEND,
        status=from_worker_pb2.SLOT_STATUS_DECODE,
        block_ids=np.arange(slot * num_blocks, (slot + 1) * num_blocks, dtype="<u4").tobytes(),
        sealed_hashes=rng.bytes(HASH_BYTES * num_sealed),
        num_computed_tokens=prompt + output - 1,
        num_output_tokens=output,
        prefill_target=prompt,
        scheduler_meta=meta.SerializeToString(),
    )


def make_hello(worker: int, setting: Setting) -> list[bytes]:
    """The messages of a worker's hello."""
    first = worker * setting.per_worker
    slots = [make_slot(first + slot, slot, setting) for slot in range(setting.per_worker)]
    parts = list(split(slots, lambda slot: slot.ByteSize(), PART_BYTES))
    num_tokens = setting.prompt_tokens + 2 * setting.output_tokens
    hello = from_worker_pb2.WorkerHello(
        worker_id=f"worker-{worker}",
        worker_instance=f"instance-{worker}",
        address="127.0.0.1:1",
        model=shared_pb2.ModelEntry(model=MODEL, max_model_len=4096, block_size=BLOCK_SIZE),
        num_slots=setting.per_worker,
        num_blocks=setting.per_worker * -(-num_tokens // BLOCK_SIZE),
        max_num_batched_tokens=setting.per_worker + 8192,
        kinds=[generation_pb2.REQUEST_KIND_GENERATE],
        snapshot=from_worker_pb2.WorkerSnapshot(
            scheduler_epoch=1,
            last_step_id=100,
            scheduler_instance="old",
            slots=parts[0],
            num_parts=len(parts) - 1,
        ),
    )
    messages = [from_worker_pb2.AttachWorkerRequest(hello=hello)]
    messages += [
        from_worker_pb2.AttachWorkerRequest(snapshot_part=from_worker_pb2.SnapshotPart(slots=part))
        for part in parts[1:]
    ]
    return [message.SerializeToString() for message in messages]


def make_frontend_hello(setting: Setting) -> bytes:
    """A frontend that waits for all requests."""
    count = setting.workers * setting.per_worker
    hello = from_frontend_pb2.FrontendHello(
        frontend_instance=FRONTEND,
        live=[shared_pb2.RequestRef(request_id=f"request-{n}", attempt=n + 1) for n in range(count)],
        workers=[shared_pb2.WorkerRef(worker_id=f"worker-{n}") for n in range(setting.workers)],
        scheduler_epoch=1,
    )
    return from_frontend_pb2.AttachFrontendRequest(hello=hello).SerializeToString()


def restart(setting: Setting, hellos: list[list[bytes]], frontend: bytes) -> Handlers:
    """A new scheduler hears everybody; returns what its handlers took."""
    config = SchedulerConfig(
        max_num_seqs=setting.per_worker, max_num_batched_tokens=setting.per_worker + 2048
    )
    core = Scheduler(config, 1, 0.0, instance="new")
    handlers = Handlers()
    loop = StepLoop(core, lambda: 0.0, handlers.call_at)
    read = from_frontend_pb2.AttachFrontendRequest.FromString
    handlers.run("frontend's hello", lambda: loop.attach_frontend(read(frontend).hello))
    for messages in hellos:
        steps: list[to_worker_pb2.AttachWorkerResponse] = []
        sessions: list[WorkerSession] = []
        for raw in messages:
            handlers.run("message of a hello", partial(_take, loop, sessions, steps, raw))
        assert any(message.steps for message in steps), "it goes on"
    assert len(core.requests) == setting.workers * setting.per_worker
    handlers.run("tick", loop.tick)
    return handlers


def _take(
    loop: StepLoop, sessions: list[WorkerSession], steps: list[to_worker_pb2.AttachWorkerResponse], raw: bytes
) -> None:
    message = from_worker_pb2.AttachWorkerRequest.FromString(raw)
    if sessions:
        sessions[0].take(message)
    else:
        sessions.append(WorkerSession(loop, message, steps.append))


def measure(setting: Setting, times: int) -> dict[str, float | int]:
    """Medians over so many restarts."""
    hellos = [make_hello(worker, setting) for worker in range(setting.workers)]
    frontend = make_frontend_hello(setting)
    totals, longest = [], []
    by_name: dict[str, list[float]] = {}
    for _ in range(times):
        gc.collect()
        took_ms = restart(setting, hellos, frontend).took_ms
        totals.append(sum(map(sum, took_ms.values())))
        longest.append(max(map(max, took_ms.values())))
        for name, each in took_ms.items():
            by_name.setdefault(name, []).append(max(each))
    line: dict[str, float | int] = {
        "workers": setting.workers,
        "per_worker": setting.per_worker,
        "total_ms": round(statistics.median(totals), 1),
        "longest_ms": round(statistics.median(longest), 1),
    }
    for name, worst in by_name.items():
        line[f"longest {name}_ms"] = round(statistics.median(worst), 1)
    return line


def main(arguments: list[str]) -> int:
    """Prints a line of JSON for each setting."""
    parser = argparse.ArgumentParser(
        prog="signalbox bench restart", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument("--requests", type=int, default=4096, help="in all (default: 4096)")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 4, 16], help="that hold them (default: 1 4 16)"
    )
    parser.add_argument("--prompt", type=int, default=512, help="tokens of each prompt (default: 512)")
    parser.add_argument("--output", type=int, default=100, help="tokens that each has made (default: 100)")
    parser.add_argument(
        "--times", type=int, default=5, help="restarts, of which the median counts (default: 5)"
    )
    args = parser.parse_args(arguments)
    for workers in args.workers:
        setting = Setting(workers, args.requests // workers, args.prompt, args.output)
        print(json.dumps(measure(setting, args.times)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
