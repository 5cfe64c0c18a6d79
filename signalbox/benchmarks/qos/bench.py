"""Quality of service in simulated time, one JSON object per experiment.

    python -m signalbox.benchmarks.qos.bench

The scheduler core is the real one; workers count (a step takes 5 ms + 0.02 ms per token, 64 sequences, 512 tokens per
step, depth 2). The figures depend on the seed only, not on the machine. docs/qos.md tells what they mean.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scheduler_svc.core.state.requests.tenants import TenantLimits, Tenants
from scheduler_svc.core.state.ttft_targets import parse_ttft_targets
from signalbox.benchmarks.qos.plan import BLOCK_SIZE, QosPlan, Stream, make_qos_plan

Figures = dict[str, float | int | str]
INPUT_WEIGHT, OUTPUT_WEIGHT = 1.0, 2.0
MIXES = {
    "alike": ((50, 400), (50, 300), (50, 400), (50, 300)),
    "short against long": ((20, 100), (10, 60), (500, 1000), (200, 500)),
    "prompts against outputs": ((800, 1500), (5, 20), (10, 50), (300, 600)),
}
"""(prompt, output) of the one tenant, (prompt, output) of the other."""
ONLINE = Stream("online", (100, 800), (50, 150), priority=0, rate=5.0)
BATCH = Stream("batch", (200, 600), (100, 300), priority=2, backlog=300)

PROMPTS = ((100, 800), (500, 2000), (20, 100))
"""Lengths of prompts of the high class."""
URGENT = Stream("urgent", (50, 400), (50, 150), priority=0, rate=1.0)
PATIENT = Stream("patient", (200, 1000), (50, 150), priority=1, rate=1.0)
TTFT_TARGETS = "0:300,1:3000"


def served_of(plan: QosPlan) -> dict[str, float]:
    """Weighted service of each tenant, in virtual tokens."""
    inputs, outputs = plan.served()
    return {
        tenant: INPUT_WEIGHT * inputs[tenant] + OUTPUT_WEIGHT * outputs[tenant]
        for tenant in {stream.tenant for stream in plan.streams}
    }


def bound_of(plan: QosPlan) -> float:
    """The bound of the paper: 2 * max(w_in * L_input, w_out * M)."""
    longest = max(stream.prompt[1] for stream in plan.streams)
    cache = sum(worker.pool.num_blocks for worker in plan.scheduler.workers.values()) * BLOCK_SIZE
    return 2 * max(INPUT_WEIGHT * longest, OUTPUT_WEIGHT * cache)


def two_tenants(mix: str) -> tuple[Stream, Stream]:
    """Two tenants that always have a hundred requests here."""
    prompt_a, output_a, prompt_b, output_b = MIXES[mix]
    return (
        Stream("a", prompt_a, output_a, backlog=100),
        Stream("b", prompt_b, output_b, backlog=100),
    )


def run_fairness(
    mix: str, policy: str = "fair", duration_s: float = 120.0, num_blocks: int = 1024
) -> Figures:
    """The largest difference of service between two backlogged tenants, looked at in every step."""
    largest = 0.0

    def look(plan: QosPlan) -> None:
        nonlocal largest
        served = served_of(plan)
        largest = max(largest, abs(served["a"] - served["b"]))

    plan = make_qos_plan(*two_tenants(mix), policy=policy, duration_s=duration_s, num_blocks=num_blocks)
    plan.on_step = look
    plan.run()
    plan.scheduler.check_integrity()
    return {
        "experiment": "fairness",
        "mix": mix,
        "policy": policy,
        "largest_difference": largest,
        "bound": bound_of(plan),
        "served_tok_s": round(sum(served_of(plan).values()) / duration_s, 1),
        "preemptions": plan.scheduler.workers["w0"].stats.num_preemptions,
    }


def run_weights(weight: float = 3.0, duration_s: float = 300.0) -> Figures:
    """Two backlogged tenants, one with so many times the weight."""
    tenants = Tenants(named={"a": TenantLimits(weight=weight)})
    streams = two_tenants("short against long")
    plan = make_qos_plan(*streams, policy="fair", tenants=tenants, duration_s=duration_s)
    plan.run()
    served = served_of(plan)
    return {"experiment": "weights", "weight": weight, "measured": round(served["a"] / served["b"], 4)}


def run_throughput(mix: str = "alike", num_requests: int = 1500) -> Figures:
    """Tokens per second of a policy against first come first served: the same requests, from the first to the last."""
    rates = {}
    for policy in ("fcfs", "priority", "fair", "priority+fair"):
        streams = tuple(replace(stream, most=num_requests) for stream in two_tenants(mix))
        plan = make_qos_plan(*streams, policy=policy, duration_s=1e9)
        plan.run()
        assert len(plan.done) == 2 * num_requests
        inputs, outputs = plan.served()
        rates[policy] = (sum(inputs.values()) + sum(outputs.values())) / plan.now
    shares = {policy: round(rate / rates["fcfs"], 4) for policy, rate in rates.items()}
    return {"experiment": "throughput", "mix": mix, "fcfs_tok_s": round(rates["fcfs"], 1), **shares}


def run_flood(policy: str = "fair", duration_s: float = 120.0) -> Figures:
    """A tenant beside one that asks for ten times its share, against alone on half of the machine."""
    calm = Stream("calm", (100, 400), (100, 300), rate=10.0)
    flood = Stream("flood", (100, 400), (100, 300), rate=200.0)
    half = make_qos_plan(calm, duration_s=duration_s, max_num_seqs=32, max_num_batched_tokens=256)
    whole = make_qos_plan(calm, duration_s=duration_s)
    beside = make_qos_plan(calm, flood, duration_s=duration_s, policy=policy)
    for plan in (half, whole, beside):
        plan.run()
    p99 = {name: _p99(plan, calm) for name, plan in (("half", half), ("whole", whole), ("beside", beside))}
    return {
        "experiment": "flood",
        "policy": policy,
        "ttft_p99_ms_alone_with_its_share": round(p99["half"], 1),
        "ttft_p99_ms_alone_with_everything": round(p99["whole"], 1),
        "ttft_p99_ms_beside_the_flood": round(p99["beside"], 1),
        "ratio": round(p99["beside"] / p99["half"], 3),
    }


def run_priority(
    prompt: tuple[int, int] = ONLINE.prompt, overload: float = 3.0, **settings: object
) -> Figures:
    """Time to first token of the high class, idle and with so many times the capacity in batch work below it."""
    capacity = make_qos_plan(BATCH, duration_s=30.0, policy="priority")
    capacity.run()
    online = Stream("online", prompt, ONLINE.output, priority=0, rate=ONLINE.rate)
    rate = overload * len(capacity.done) / 30.0
    batch = Stream("batch", BATCH.prompt, BATCH.output, priority=BATCH.priority, rate=rate)
    values: dict[str, object] = {"policy": "priority", "duration_s": 120.0, "aging_s": 600.0} | settings
    idle = make_qos_plan(online, **values)  # type: ignore[arg-type]
    loaded = make_qos_plan(online, batch, **values)  # type: ignore[arg-type]
    for plan in (idle, loaded):
        plan.run()
    before, after = _p99(idle, online), _p99(loaded, online)
    return {
        "experiment": "lower classes" if "lower_class_prefill_tokens" in settings else "priority",
        "prompt": f"{prompt[0]} to {prompt[1]}",
        "lower_class_prefill_tokens": str(values.get("lower_class_prefill_tokens", "no limit")),
        "batch_requests_per_s": round(rate, 1),
        "ttft_p99_ms_idle": round(before, 1),
        "ttft_p99_ms_overloaded": round(after, 1),
        "ratio": round(after / before, 3),
        "batch_done_per_s": round(
            sum(stream is batch for stream, _, _ in loaded.done) / loaded.duration_s, 1
        ),
        "displacements": loaded.scheduler.workers["w0"].stats.num_displacements,
    }


def run_aging(aging_s: float = 5.0) -> Figures:
    """How long a request of the lowest class waits for its first token while the classes above are never idle."""
    above = Stream("above", (200, 600), (100, 300), priority=0, backlog=200)
    below = Stream("below", (200, 600), (100, 300), priority=2, rate=0.5)
    plan = make_qos_plan(above, below, policy="priority", aging_s=aging_s, duration_s=60.0)
    plan.run()
    waits = plan.ttft_ms(below) / 1e3
    never = make_qos_plan(above, below, policy="priority", aging_s=0.0, duration_s=60.0)
    never.run()
    return {
        "experiment": "aging",
        "aging_s": aging_s,
        "levels": 2,
        "finished": len(waits),
        "longest_wait_s": round(float(waits.max()), 2),
        "finished_without_aging": len(never.ttft_ms(below)),
    }


def run_deadline(overload: float, policy: str = "deadline", duration_s: float = 120.0) -> Figures:
    """Share of requests with a first token in time, with so many times what the worker can do: half of them want it
    ten times as soon as the others."""
    rate = overload * _capacity((URGENT, PATIENT)) / 2
    streams = [replace(stream, rate=rate) for stream in (URGENT, PATIENT)]
    plan = make_qos_plan(*streams, policy=policy, ttft_targets=TTFT_TARGETS, duration_s=duration_s)
    plan.run()
    plan.scheduler.check_integrity()
    targets = parse_ttft_targets(TTFT_TARGETS)
    shares = [plan.share_in_time(stream, targets[stream.priority]) for stream in streams]
    return {
        "experiment": "deadline",
        "policy": policy,
        "overload": overload,
        "requests_per_s": round(2 * rate, 1),
        "urgent_in_time": round(shares[0], 3),
        "patient_in_time": round(shares[1], 3),
        "in_time": round(sum(shares) / 2, 3),
        "done_per_s": round(len(plan.done) / duration_s, 1),
        "longest_wait_s": round(plan.longest_wait_s(), 1),
    }


def run_safe_mode(ttft_ms: float = 20.0, surge_s: float = 60.0, **settings: object) -> Figures:
    """First tokens of the high class during and after a surge of batch work, which comes at three times the capacity;
    safe mode by the error budget."""
    online = Stream("online", PROMPTS[2], ONLINE.output, priority=0, rate=ONLINE.rate)
    rate = 3.0 * _capacity((BATCH,))
    batch = replace(BATCH, backlog=0, rate=rate, most=int(rate * surge_s))
    levels: list[int | None] = [None]

    def look(plan: QosPlan) -> None:
        level = plan.scheduler.safe_mode.level
        if level != levels[-1]:
            levels.append(level)

    values: dict[str, object] = {"policy": "priority", "aging_s": 600.0, "duration_s": 8 * surge_s} | settings
    plan = make_qos_plan(online, batch, **values)  # type: ignore[arg-type]
    plan.on_step = look
    plan.run()
    waits = np.array([t.first_token - t.arrived for s, t, _ in plan.done if s is online]) * 1e3
    num_done = sum(stream is batch for stream, _, _ in plan.done)
    return {
        "experiment": "safe mode",
        "safe_mode_ttft_ms": str(values.get("safe_mode_ttft_ms", "off")),
        "safe_mode_lift_s": plan.scheduler.config.safe_mode_lift_s,
        "late": round(float(np.mean(waits > ttft_ms)), 4),
        "ttft_p99_ms": round(float(np.percentile(waits, 99)), 1),
        "times_set": sum(level is not None for level in levels),
        "batch_done": f"{num_done} of {batch.most}",
        "preemptions": plan.scheduler.workers["w0"].stats.num_preemptions,
    }


def _capacity(streams: tuple[Stream, ...], duration_s: float = 30.0) -> float:
    """Requests per second of which one worker gets done as many as come, the streams in equal parts."""
    plan = make_qos_plan(*(replace(s, rate=0.0, backlog=100) for s in streams), duration_s=duration_s)
    plan.run()
    return len(plan.done) / duration_s


def _p99(plan: QosPlan, stream: Stream) -> float:
    return float(np.percentile(plan.ttft_ms(stream, after_s=5.0), 99))


EXPERIMENTS: dict[str, Callable[[], list[Figures]]] = {
    "fairness": lambda: [run_fairness(mix, policy) for mix in MIXES for policy in ("fcfs", "fair")],
    "weights": lambda: [run_weights(weight) for weight in (1.0, 3.0)],
    "throughput": lambda: [run_throughput(mix) for mix in MIXES],
    "flood": lambda: [run_flood(policy) for policy in ("fcfs", "fair")],
    "priority": lambda: [run_priority(prompt) for prompt in PROMPTS],
    "lower classes": lambda: [run_priority(prompt, lower_class_prefill_tokens=112) for prompt in PROMPTS],
    "aging": lambda: [run_aging()],
    "safe mode": lambda: [
        run_safe_mode(),
        run_safe_mode(safe_mode_ttft_ms=20.0),
        run_safe_mode(safe_mode_ttft_ms=20.0, safe_mode_lift_s=30.0),
    ],
    "deadline": lambda: [
        run_deadline(overload, policy) for overload in (0.9, 1.1, 1.5, 3.0) for policy in ("fcfs", "deadline")
    ],
}


def main() -> None:
    """Prints one JSON object per line."""
    parser = argparse.ArgumentParser(prog="python -m signalbox.benchmarks.qos.bench", description=__doc__)
    parser.add_argument("--only", choices=sorted(EXPERIMENTS), action="append", help="all, unless said")
    for name in parser.parse_args().only or EXPERIMENTS:
        for figures in EXPERIMENTS[name]():
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
