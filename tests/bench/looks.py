"""`python -m tests.bench.looks`: CPU time of the scheduler's looks in a large ring, none of which finds anything.

Roles and drains: half of the workers have rows, and nobody has the blocks that they would take along. Pulls: each
request has a prompt of so many blocks, the first of which all workers have cached.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.steps.step import StepReport
from signalbox.protocol.enums import WorkerRole
from signalbox.protocol.hash_chain import HASH_BYTES
from tests.scheduler_svc.harness import make_info, make_request

NUM_WORKERS, NUM_ROWS, NUM_BLOCKS = 64, 128, 8192
BLOCK_SIZE = 16
NUM_STARTS = 8
TIMES = 5
MANY = 1 << 24


def cpu_ms(work: Callable[[], object]) -> float:
    """Processor time of this thread."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e3


def names_of(name: str, count: int) -> bytes:
    """Names of the blocks of a prompt."""
    return b"".join(
        hashlib.blake2b(f"{name}{n}".encode(), digest_size=HASH_BYTES).digest() for n in range(count)
    )


def attach(core: Scheduler, number: int, role: WorkerRole, num_blocks: int) -> None:
    """One more worker."""
    info = make_info(
        worker_id=f"w{number}",
        instance=f"w{number}",
        num_slots=512,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        kv_layout="k",
        role=role,
        pulls_blocks=True,
        max_num_batched_tokens=MANY,
        max_model_len=MANY,
    )
    core.attach_worker(info, None, 0.0)


def make_ring(role: WorkerRole) -> Scheduler:
    """Every other worker has rows, and that role; the others have no block left."""
    config = SchedulerConfig(
        max_num_seqs=256,
        max_num_batched_tokens=MANY,
        prefill_hand_off="always",
        just_in_time_steps=False,
    )
    core = Scheduler(config, 1, 0.0)
    for number in range(0, NUM_WORKERS, 2):
        attach(core, number, role, 20_000)
        for row in range(NUM_ROWS):
            core.submit(make_request(f"r{number}/{row}", 600, hash_block_size=BLOCK_SIZE), 0.0)
        worker = core.workers[f"w{number}"]
        while worker.table.num_running < NUM_ROWS or worker.table.prefilling or worker.table.settling:
            step = core.schedule(f"w{number}", 0.0)
            assert step is not None
            record = worker.records[0]
            report = StepReport(step.step_id, record.num_decode_rows, record.num_prefill_tokens)
            core.update(f"w{number}", report, 0.0)
        core.drain_worker(f"w{number}", True, 0.0)
    target_role = WorkerRole.DECODE if role is WorkerRole.PREFILL else role
    for number in range(1, NUM_WORKERS, 2):
        attach(core, number, target_role, 20_000)
        pool = core.workers[f"w{number}"].pool
        pool.take(pool.num_available)
    return core


def look_for_roles() -> float:
    core = make_ring(WorkerRole.PREFILL)
    for worker in core.workers.values():
        worker.draining = False
    look = core.policies.disaggregation.look
    return max(cpu_ms(lambda: look(1e6)) for _ in range(TIMES))


def look_for_drains() -> float:
    core = make_ring(WorkerRole.BOTH)
    return max(cpu_ms(lambda: core.policies.tick(1e6)) for _ in range(TIMES))


def start_long_prompts() -> float:
    """Milliseconds for each of some starts in one step."""
    config = SchedulerConfig(max_num_batched_tokens=MANY)
    core = Scheduler(config, 1, 0.0)
    for number in range(NUM_WORKERS):
        attach(core, number, WorkerRole.BOTH, 100_000)
        pool = core.workers[f"w{number}"].pool
        names = np.frombuffer(names_of("shared", 1) + names_of(f"w{number}/", 1_999), HASH_DTYPE)
        blocks = pool.take(len(names))
        pool.publish(blocks, names)
        pool.release(blocks)
        core.drain_worker(f"w{number}", number > 0, 0.0)
    for number in range(NUM_STARTS):
        hashes = names_of("shared", 1) + names_of(f"r{number}/", NUM_BLOCKS - 1)
        length = NUM_BLOCKS * BLOCK_SIZE + 3
        core.submit(make_request(f"r{number}", length, hashes=hashes, hash_block_size=BLOCK_SIZE), 0.0)
    took = cpu_ms(lambda: core.schedule("w0", 1.0))
    started = NUM_STARTS - core.num_waiting
    return took / started


def main() -> None:
    """Prints one JSON object."""
    figures = {
        "workers": NUM_WORKERS,
        "rows": NUM_WORKERS // 2 * NUM_ROWS,
        "prompt_blocks": NUM_BLOCKS,
        "roles_ms": look_for_roles(),
        "drains_ms": look_for_drains(),
        "start_ms": start_long_prompts(),
    }
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
