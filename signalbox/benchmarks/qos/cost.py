"""What a policy costs the scheduler per step, on a machine that does nothing else.

    python -m signalbox.benchmarks.qos.cost

1,024 requests decode and 10,000 wait, of 100 tenants in three classes, with every place taken. Printed are the
microseconds of the core (`schedule` and `update`) per step by policy, and what is added to first come first served.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.steps.step import StepReport
from signalbox.benchmarks.scheduler import tables
from signalbox.benchmarks.scheduler.step import parse

POLICIES = ("fcfs", "priority", "fair", "deadline", "priority+fair", "priority+fair+deadline")

TTFT_TARGETS = "0:1000,1:10000,2:100000"


def measure(policy: str, running: int, waiting: int, steps: int) -> float:
    """Median microseconds per steady step."""
    load = tables.Load(running, 0, 2, 512, 0, steps)
    config = SchedulerConfig(
        max_num_seqs=running + 1,
        max_num_batched_tokens=1 << 30,
        max_waiting=1 << 30,
        policy=policy,
        ttft_targets=TTFT_TARGETS,
    )
    scheduler, (table,) = tables.make_scheduler(load, config)
    _spread(scheduler)
    for number in range(waiting):
        request = tables.make_request(f"waiting{number}", 512)
        request.tenant, request.priority = f"tenant{number % 100}", number % 3
        scheduler.submit(request, 0.0)
    table.worker.limits = replace(table.worker.limits, max_num_seqs=running)
    samples = []
    for number in range(steps):
        spent = 0.0
        while len(table.worker.records) < load.inflight:
            started = time.perf_counter()
            step = scheduler.schedule(table.name, number * 0.01)
            spent += time.perf_counter() - started
            assert step is not None and not step.placed
            table.reports.append(table.echo.report(step.step_id, table.worker.records[-1].decode_slots))
        report = parse(table.reports.popleft())
        assert isinstance(report, StepReport)
        started = time.perf_counter()
        scheduler.update(table.name, report, number * 0.01)
        samples.append((spent + time.perf_counter() - started) * 1e6)
    return float(np.median(samples[20:]))


def _spread(scheduler: Scheduler) -> None:
    """Gives the requests that run to the tenants, as many to each."""
    worker = scheduler.workers["worker-0"]
    for number, request in enumerate(worker.requests()):
        scheduler.queues.ended(request)
        request.tenant = f"tenant{number % 100}"
        scheduler.queues.assign(request, 0.0)
        scheduler.queues.adopted(request)
        assert request.slot is not None and request.entry.account is not None
        worker.table.account[request.slot] = request.entry.account.index


def main() -> None:
    """Prints one JSON object per policy."""
    parser = argparse.ArgumentParser(prog="python -m signalbox.benchmarks.qos.cost", description=__doc__)
    parser.add_argument("--running", type=int, default=1024)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    base = 0.0
    for policy in POLICIES:
        spent = measure(policy, args.running, args.waiting, args.steps)
        base = base or spent
        figures = {"policy": policy, "us_per_step": round(spent, 1), "added_us": round(spent - base, 1)}
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
