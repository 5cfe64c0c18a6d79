"""Plans a deployment in simulated time: `signalbox bench plan`.

The scheduler core is the real one; workers only count. A step takes `base + per_token * tokens + per_context *
context`, requests arrive at random, and nothing waits for a clock, so an hour on a hundred workers takes minutes. What
comes out is the scheduler's part of the truth: queueing, batching, cache hits, preemption, and what they cost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path

import numpy as np

from scheduler_svc.core.cluster.offer import check_offer
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.core.step import shortage
from signalbox.benchmarks.scheduler.counting_worker import CountingWorker, Timing
from signalbox.benchmarks.scheduler.latencies import Latencies, summarize_handoffs
from signalbox.benchmarks.scheduler.planning import MODEL, Plan, Stream, Workload
from signalbox.benchmarks.scheduler.transfers import Transfers
from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import BlockGroupKind, WorkerRole


def summarize(plan: Plan, latencies: Latencies, spent_s: float) -> dict[str, float]:
    """The line that is printed."""
    samples = plan.samples[: plan.num_done].astype(np.float64)
    ttft, rest = samples[:, 0] * 1e3, samples[:, 1]
    stats = [worker.stats for worker in plan.scheduler.workers.values()]
    output, prefilled, computed = samples[:, 2:].sum(axis=0)
    recomputed = prefilled - computed
    query = max(sum(s.num_prefix_query_tokens for s in stats), 1)
    return {
        "requests": plan.num_done,
        "rejected": plan.rejected,
        "simulated_s": round(plan.now, 1),
        "spent_s": round(spent_s, 1),
        "output_tok_s": round(output / plan.now, 1),
        "ttft_ms_p50": round(float(np.percentile(ttft, 50)), 1),
        "ttft_ms_p99": round(float(np.percentile(ttft, 99)), 1),
        "tpot_ms_p50": round(float(np.nanpercentile(rest, 50)) * 1e3, 2),
        "prefix_hit_share": round(sum(s.num_prefix_hit_tokens for s in stats) / query, 4),
        "saved_tokens": sum(s.num_prefix_hit_tokens for s in stats),
        "host_hit_tokens": sum(s.num_host_hit_tokens for s in stats),
        "block_copies": sum(s.num_block_copies for s in stats),
        "preemptions": sum(s.num_preemptions for s in stats),
        "held_tokens_most": plan.most_held,
        "recomputed_share": round(recomputed / (output + prefilled), 4),
        **latencies.summarize(),
        **(summarize_handoffs(plan.scheduler.handoffs.counts) if plan.transfers is not None else {}),
    }


def last_come(worker: Worker, slot: int) -> tuple[int, ...]:
    """The order of victims elsewhere, for comparison: whoever came last."""
    return tuple(-part for part in worker.request(slot).order)


def make_plan(args: argparse.Namespace) -> Plan:
    """Puts scheduler and workers together."""
    config = SchedulerConfig(
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_inflight_steps=args.inflight,
        watermark_blocks_per_seq=args.watermark_blocks_per_seq,
        enable_prefix_caching=not args.no_prefix_caching,
        just_in_time_steps=not args.eager,
        side_copy_blocks=args.side_copy_blocks,
        resume_elsewhere=args.resume_elsewhere,
        prefill_hand_off=args.prefill_hand_off,
    )
    scheduler = Scheduler(config, epoch=1, now=0.0)
    timing = Timing(args.base_ms / 1e3, args.token_ms / 1e3, args.context_ms / 1e3, args.copy_ms / 1e3)
    workers = {}
    for number in range(args.workers if not args.roles else len(args.roles)):
        info = WorkerInfo(
            f"w{number}", "i", "a:1", MODEL, args.max_num_seqs * 4, args.blocks, 16, args.max_model_len,
            args.max_num_batched_tokens, 0, args.host_blocks, groups=tuple(args.group), state_group=args.states,
            kv_layout="counted", role=args.roles[number] if args.roles else WorkerRole.BOTH,
        )  # fmt: skip
        check_offer(info)
        scheduler.attach_worker(info, None, 0.0)
        workers[info.worker_id] = CountingWorker(info, timing)
    load = Workload(
        args.requests,
        args.rate,
        args.turns,
        tuple(args.prompt),
        tuple(args.output),
        args.shared,
        args.think_s,
        tuple(args.stream),
        args.slow,
    )
    plan = Plan(scheduler, workers, load, random.Random(args.seed))
    if args.resume_elsewhere or args.roles:
        plan.transfers = Transfers(
            workers, args.block_bytes, args.bandwidth_gb_s * 1e9, args.latency_ms / 1e3
        )
    return plan


def parse_stream(text: str) -> Stream:
    """`NAME:RATE:LOW-HIGH:LOW-HIGH`: conversations per second, new prompt tokens and output tokens; behind them
    `:turns=N`, `:shared=N`, `:forked=N` and `:think=SECONDS`. Raises ValueError."""
    name, rate, prompt, output, *more = text.split(":")
    options = dict(option.split("=") for option in more)
    numbers = {key: int(options.pop(key)) for key in ("turns", "shared", "forked") if key in options}
    think_s = float(options.pop("think", 5.0))
    if options:
        raise ValueError(f"a stream has no {next(iter(options))}")
    return Stream(name, float(rate), parse_span(prompt), parse_span(output), **numbers, think_s=think_s)


def parse_span(text: str) -> tuple[int, int]:
    """`LOW-HIGH`. Raises ValueError."""
    low, high = map(int, text.split("-"))
    return low, high


def parse_roles(text: str) -> list[WorkerRole]:
    """`ROLE,ROLE`, one of each worker. Raises ValueError."""
    names = {role.name.lower(): role for role in WorkerRole}
    if unknown := [name for name in text.split(",") if name not in names]:
        raise ValueError(f"no role is called {unknown[0]}")
    return [names[name] for name in text.split(",")]


def parse_slow(text: str) -> tuple[str, float, float]:
    """`WORKER:SECONDS:FACTOR`. Raises ValueError."""
    name, at_s, factor = text.split(":")
    return name, float(at_s), float(factor)


def parse_group(text: str) -> BlockGroup:
    """`REACH:BLOCKS[:HOST]` of a group with a window. Raises ValueError."""
    reach, blocks, *host = map(int, text.split(":", 2))
    return BlockGroup(BlockGroupKind.WINDOW, reach, blocks, num_host_blocks=sum(host))


def parse_states(text: str) -> StateGroup:
    """`BOUNDARY:CHECKPOINTS[:HOST]` of recurrent states. Raises ValueError."""
    boundary, checkpoints, *host = map(int, text.split(":", 2))
    return StateGroup(boundary, checkpoints, num_host_checkpoints=sum(host))


def make_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="signalbox bench plan", description=__doc__)
    add = parser.add_argument
    add("--workers", type=int, default=1, help="workers")
    add("--blocks", type=int, default=4096, help="KV blocks of 16 tokens per worker")
    add("--host-blocks", type=int, default=0, help="blocks of the host tier per worker")
    add(
        "--group",
        type=parse_group,
        action="append",
        default=[],
        metavar="REACH:BLOCKS[:HOST]",
        help="layers that look back so many positions have so many blocks of their own, and in the host tier",
    )
    add(
        "--states",
        type=parse_states,
        metavar="BOUNDARY:CHECKPOINTS[:HOST]",
        help="the model keeps recurrent states, with so many checkpoints at multiples of so many positions, and so "
        "many in the host tier",
    )
    add("--requests", type=int, default=2000, help="requests in all")
    add("--rate", type=float, default=10.0, help="conversations that begin per second")
    add("--turns", type=int, default=1, help="requests per conversation")
    add("--think-s", type=float, default=5.0, help="mean pause between turns")
    add(
        "--prompt",
        type=int,
        nargs=2,
        default=(100, 400),
        metavar=("LOW", "HIGH"),
        help="new prompt tokens per turn",
    )
    add(
        "--output",
        type=int,
        nargs=2,
        default=(50, 250),
        metavar=("LOW", "HIGH"),
        help="output tokens per turn",
    )
    add(
        "--stream",
        type=parse_stream,
        action="append",
        default=[],
        metavar="NAME:RATE:PROMPT:OUTPUT[:OPTION=VALUE]",
        help="one kind of requests, as chat:4:50-200:100-300:turns=4:shared=500:think=5, or with forked=700, which "
        "is a prefix of each four that begin at once; instead of --rate, --prompt, --output, --turns, --shared and "
        "--think-s",
    )
    add(
        "--slo",
        type=float,
        nargs=2,
        metavar=("TTFT_MS", "ITL_MS"),
        help="goodput: ITL is the p99 of a request",
    )
    add(
        "--slow",
        type=parse_slow,
        default=("", 0.0, 1.0),
        metavar="WORKER:SECONDS:FACTOR",
        help="it becomes slow",
    )
    add("--resume-elsewhere", action="store_true", help="preempted requests are handed over")
    add(
        "--roles",
        type=parse_roles,
        metavar="ROLE,ROLE",
        help="of each worker, as prefill,decode; in place of --workers",
    )
    add("--prefill-hand-off", choices=("always", "never"), default="always")
    add("--block-bytes", type=int, default=368640, help="bytes of a block that is handed over")
    add("--bandwidth-gb-s", type=float, default=1.0, help="at which they travel, in 10^9 bytes per second")
    add("--latency-ms", type=float, default=1.0, help="of a hand-off's messages")
    add("--shared", type=int, default=0, help="system prompt that all conversations begin with, in tokens")
    add("--base-ms", type=float, default=5.0, help="duration of an empty step")
    add("--token-ms", type=float, default=0.02, help="and per token of it")
    add("--context-ms", type=float, default=0.0, help="and per token of context")
    add(
        "--copy-ms",
        type=float,
        default=0.05,
        help="and per block, or checkpoint, copied from or to the host tier",
    )
    add(
        "--side-copy-blocks",
        type=int,
        default=SchedulerConfig().side_copy_blocks,
        help="a start that needs so many copies waits for them, beside the steps; 0: none does",
    )
    add("--max-num-seqs", type=int, default=64)
    add("--max-num-batched-tokens", type=int, default=512)
    add("--max-model-len", type=int, default=8192)
    add("--inflight", type=int, default=2)
    add("--watermark-blocks-per-seq", type=int, default=2)
    add("--eager", action="store_true", help="send steps at once, not just in time")
    add("--no-prefix-caching", action="store_true")
    add("--last-come", action="store_true", help="preempt whoever came last, as others do")
    add("--seed", type=int, default=0)
    add(
        "--memory",
        action="store_true",
        help="also print sizes of all structures and resident memory on the way",
    )
    add("--json", action="store_true", help="one JSON object per line (the default, and the only form)")
    return parser


def sizes(plan: Plan) -> dict[str, int]:
    """Sizes of what could grow."""
    core = plan.scheduler
    worker = next(iter(core.workers.values()))
    slots = worker.table
    return {
        "requests": len(core.requests),
        "unsure": len(core.unaccounted),
        "frontends": len(core.frontends.by_instance),
        "waiting": core.num_waiting,
        "records": len(worker.records),
        "lists": sum(len(x) for x in (slots.prefilling, slots.preempted, slots.held, slots.releasing)),
        "hashes": len(worker.pool._block_of),
        "resident_kb": int(Path("/proc/self/statm").read_text().split()[1])
        * (os.sysconf("SC_PAGE_SIZE") // 1024),
    }


def main() -> None:
    """Prints one JSON object."""
    args = make_parser().parse_args()
    if args.last_come:
        shortage.loss = last_come
    plan = make_plan(args)
    latencies = Latencies(tuple(args.slo) if args.slo else None)
    plan.on_end = latencies.take
    if args.memory:
        every = max(args.requests // 10, 1)
        plan.on_done = lambda count: (
            (count % every == 0 and print(json.dumps({"done": count} | sizes(plan)))) or None
        )
    started = time.perf_counter()
    plan.run()
    plan.scheduler.check_integrity()
    print(json.dumps(summarize(plan, latencies, time.perf_counter() - started)))


if __name__ == "__main__":
    main()
