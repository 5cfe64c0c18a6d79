"""Plans a deployment in simulated time: `signalbox bench plan`.

The scheduler core is the real one; workers only count. A step takes `base + per_token * tokens + per_context *
context`, requests arrive at random, and nothing waits for a clock, so an hour on a hundred workers takes minutes. What
comes out is the scheduler's part of the truth: queueing, batching, cache hits, preemption, and what they cost.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.block_pool import HASH_DTYPE
from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.notices import Placed
from scheduler_svc.core.request import HASH_BYTES, Request, RequestKey
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.step import Chunk, FinishReason, StepDecision, StepReport
from scheduler_svc.core.worker import Worker, WorkerInfo

MODEL = "model"


@dataclass(frozen=True)
class Timing:
    """Duration of a step in seconds."""

    base: float
    per_token: float
    per_context: float
    per_copy: float


@dataclass
class Turn:
    """One request of a conversation; a later turn's prompt contains all that was said before."""

    conversation: int
    number: int
    num_prompt: int
    num_output: int
    shared: int
    """Leading prompt tokens that all conversations share."""
    arrived: float = 0.0
    first_token: float = 0.0
    prefilled: int = 0
    """Prompt and output tokens computed by prefill, each time again."""
    computed: int = 0
    """Of them, computed for the first time."""


class CountingWorker:
    """Runs steps by counting tokens. Keeps what a worker's core would know of each slot."""

    def __init__(self, info: WorkerInfo, timing: Timing) -> None:
        self.info, self._timing = info, timing
        self._turns: dict[int, Turn] = {}
        self._tokens: dict[int, int] = {}
        """Prompt plus output by slot."""
        self._sealed: dict[int, int] = {}
        self._rows: set[int] = set()
        self._settling: list[int] = []
        self._ended: set[int] = set()
        self.busy_until = 0.0

    def begin(self, step: StepDecision, turns: dict[str, Turn], now: float) -> tuple[float, StepReport]:
        """Applies a step. Returns when it ends and what it will report."""
        self._rows |= set(self._settling)
        self._settling = []
        for slot in step.finished_slots:
            self._rows.discard(slot)
            self._ended.discard(slot)
            self._turns.pop(slot, None)
        self._rows -= {*step.preempted_slots, *step.paused_slots}
        self._rows |= set(step.unpaused_slots)
        for start, request in zip(step.started, step.placed, strict=True):
            self._place(start.chunk.slot, turns[request.key.request_id])
        chunks = [*step.chunks, *(s.chunk for s in step.resumed), *(s.chunk for s in step.started)]
        report = StepReport(step.step_id, len(self._rows), sum(chunk.length for chunk in chunks))
        end = self._end_of(len(self._rows), chunks, len(step.copies), now)
        self._advance(report, chunks)
        report.duration_us = report.execute_us = int((end - max(now, self.busy_until)) * 1e6)
        report.queued_us = int(max(self.busy_until - now, 0.0) * 1e6)
        self.busy_until = end
        return end, report

    def _place(self, slot: int, turn: Turn) -> None:
        self._turns[slot] = turn
        self._tokens[slot] = turn.num_prompt
        self._sealed[slot] = turn.num_prompt // self.info.block_size

    def _end_of(self, rows: int, chunks: list[Chunk], copies: int, now: float) -> float:
        tokens = rows + sum(chunk.length for chunk in chunks)
        context = sum(self._tokens[slot] for slot in self._rows) if self._timing.per_context else 0
        timing = self._timing
        seconds = (
            timing.base + timing.per_token * tokens + timing.per_context * context + timing.per_copy * copies
        )
        return max(now, self.busy_until) + seconds

    def _advance(self, report: StepReport, chunks: list[Chunk]) -> None:
        exceptions = [slot for slot in self._rows if slot in self._ended]
        made = [slot for slot in sorted(self._rows) if slot not in self._ended]
        for chunk in chunks:
            turn = self._turns[chunk.slot]
            ended = chunk.slot in self._ended
            turn.prefilled += 0 if ended else chunk.length
            if chunk.is_final:
                self._settling.append(chunk.slot)
                (exceptions if ended else made).append(chunk.slot)
        report.exception_slots = np.array(exceptions, np.int64)
        report.exception_counts = np.zeros(len(exceptions), np.int64)
        seals: list[tuple[int, int, bytes]] = []
        for slot in made:
            self._make_token(slot, report, seals)
        if seals:
            slots, indexes, hashes = zip(*seals, strict=True)
            report.sealed_slots, report.sealed_indexes = np.array(slots), np.array(indexes)
            report.sealed_hashes = np.frombuffer(b"".join(hashes), HASH_DTYPE)

    def _make_token(self, slot: int, report: StepReport, seals: list[tuple[int, int, bytes]]) -> None:
        turn = self._turns[slot]
        self._tokens[slot] += 1
        while (self._sealed[slot] + 1) * self.info.block_size <= self._tokens[slot] - 1:
            index = self._sealed[slot]
            seals.append((slot, index, content_hash(turn, index, self.info.block_size)))
            self._sealed[slot] += 1
        if self._tokens[slot] == turn.num_prompt + turn.num_output:
            self._ended.add(slot)
            report.finished.append((slot, FinishReason.LENGTH, turn.num_output))


def content_hash(turn: Turn, index: int, block_size: int) -> bytes:
    """Name of a block: the same for all in the shared part, a conversation's own behind it."""
    shared = (index + 1) * block_size <= turn.shared
    name = f"{'all' if shared else turn.conversation}/{index}"
    return blake2b(name.encode(), digest_size=HASH_BYTES).digest()


@dataclass
class Workload:
    """What clients do."""

    requests: int
    rate: float
    """Conversations that begin per second."""
    turns: int
    prompt: tuple[int, int]
    """Range of new prompt tokens per turn."""
    output: tuple[int, int]
    shared: int
    think_s: float
    """Mean time between an answer and the next turn."""


@dataclass
class Plan:
    """A run in simulated time."""

    scheduler: Scheduler
    workers: dict[str, CountingWorker]
    load: Workload
    rng: random.Random
    now: float = 0.0
    num_done: int = 0
    samples: NDArray[np.float32] = field(init=False)
    """[requests, 5]: time to first token, time per output token (NaN for one token), output, prefilled, computed.
    Taken whole from the start, so that what grows in a long run is not the measuring."""
    rejected: int = 0
    on_done: Callable[[int], None] = lambda count: None
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _sequence: int = 0
    _turns: dict[str, Turn] = field(default_factory=dict)
    _timers: set[str] = field(default_factory=set)
    """Workers with a step that is held back."""
    _begun: int = 0

    def __post_init__(self) -> None:
        self.samples = np.full((self.load.requests, 5), np.nan, np.float32)

    def run(self) -> None:
        """Until all requests have ended."""
        self._begin_conversation(0)
        while self._events and self.num_done + self.rejected < self.load.requests:
            self.now, _, action = heapq.heappop(self._events)
            action()

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, action))

    def _begin_conversation(self, number: int) -> None:
        if self._begun >= self.load.requests:
            return
        turn = Turn(
            number,
            0,
            self.load.shared + self._draw(self.load.prompt),
            self._draw(self.load.output),
            self.load.shared,
        )
        self._submit(turn)
        self._at(
            self.now + self.rng.expovariate(self.load.rate), lambda: self._begin_conversation(number + 1)
        )

    def _draw(self, span: tuple[int, int]) -> int:
        return self.rng.randint(*span)

    def _submit(self, turn: Turn) -> None:
        if self._begun >= self.load.requests:
            return
        self._begun += 1
        name = f"{turn.conversation}.{turn.number}"
        self._turns[name] = turn
        turn.arrived = self.now
        size = next(iter(self.workers.values())).info.block_size
        hashes = b"".join(content_hash(turn, i, size) for i in range(turn.num_prompt // size))
        request = Request(
            key=RequestKey("plan", name),
            attempt=1,
            model=MODEL,
            num_prompt_tokens=turn.num_prompt,
            num_prior_output_tokens=0,
            max_tokens=turn.num_output,
            arrival_ms=int(self.now * 1000),
            sequence=0,
            block_hashes=hashes,
            hash_block_size=size,
        )
        self.scheduler.submit(request, self.now)
        self._pump()

    def _pump(self) -> None:
        for worker_id, worker in self.workers.items():
            while (step := self.scheduler.schedule(worker_id, self.now)) is not None:
                end, report = worker.begin(step, self._turns, self.now)
                self._at(end, lambda w=worker_id, r=report: self._report(w, r))  # type: ignore[misc]
            state = self.scheduler.workers[worker_id]
            if state.records and state.hold_until > self.now and worker_id not in self._timers:
                self._timers.add(worker_id)
                self._at(state.hold_until, lambda w=worker_id: self._on_timer(w))  # type: ignore[misc]
        for notice in self.scheduler.drain_notices():
            if isinstance(notice, Placed):
                turn = self._turns[notice.key.request_id]
                turn.computed = turn.num_prompt - notice.num_cached_tokens
            else:
                self.rejected += 1

    def _on_timer(self, worker_id: str) -> None:
        self._timers.discard(worker_id)
        self._pump()

    def _report(self, worker_id: str, report: StepReport) -> None:
        state = self.scheduler.workers[worker_id]
        record = state.records[0]
        for chunk in record.chunks:
            request = state.table.requests[chunk.slot]
            if chunk.is_final and request is not None:
                turn = self._turns.get(request.key.request_id)
                if turn is not None and not turn.first_token:
                    turn.first_token = self.now
        ended = [state.request(slot).key.request_id for slot, _, _ in report.finished]
        self.scheduler.update(worker_id, report, self.now)
        for name in ended:
            self._end(self._turns.pop(name))
        self._pump()

    def _end(self, turn: Turn) -> None:
        per_token = (self.now - turn.first_token) / (turn.num_output - 1) if turn.num_output > 1 else np.nan
        wait = turn.first_token - turn.arrived
        self.samples[self.num_done] = wait, per_token, turn.num_output, turn.prefilled, turn.computed
        self.num_done += 1
        self.on_done(self.num_done)
        if turn.number + 1 < self.load.turns:
            said = turn.num_prompt + turn.num_output
            following = Turn(
                turn.conversation,
                turn.number + 1,
                said + self._draw(self.load.prompt),
                self._draw(self.load.output),
                turn.shared,
            )
            self._at(
                self.now + self.rng.expovariate(1 / max(self.load.think_s, 1e-9)),
                lambda: self._submit(following),
            )


def summarize(plan: Plan, spent_s: float) -> dict[str, float]:
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
        "recomputed_share": round(recomputed / (output + prefilled), 4),
    }


def last_come(worker: Worker, slot: int) -> tuple[int, ...]:
    """The order of victims elsewhere, for comparison: whoever came last."""
    return tuple(-part for part in worker.request(slot).order)


def make_plan(asked: argparse.Namespace) -> Plan:
    """Puts scheduler and workers together."""
    config = SchedulerConfig(
        max_num_seqs=asked.max_num_seqs,
        max_num_batched_tokens=asked.max_num_batched_tokens,
        max_inflight_steps=asked.inflight,
        watermark_blocks_per_seq=asked.watermark_blocks_per_seq,
        enable_prefix_caching=not asked.no_prefix_caching,
        just_in_time_steps=not asked.eager,
    )
    scheduler = Scheduler(config, epoch=1, now=0.0)
    timing = Timing(asked.base_ms / 1e3, asked.token_ms / 1e3, asked.context_ms / 1e3, asked.copy_ms / 1e3)
    workers = {}
    for number in range(asked.workers):
        info = WorkerInfo(
            f"w{number}", "i", "a:1", MODEL, asked.max_num_seqs * 4, asked.blocks, 16, asked.max_model_len,
            asked.max_num_batched_tokens, 0, asked.host_blocks,
        )  # fmt: skip
        scheduler.attach_worker(info, None, 0.0)
        workers[info.worker_id] = CountingWorker(info, timing)
    load = Workload(
        asked.requests,
        asked.rate,
        asked.turns,
        tuple(asked.prompt),
        tuple(asked.output),
        asked.shared,
        asked.think_s,
    )
    return Plan(scheduler, workers, load, random.Random(asked.seed))


def make_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="signalbox bench plan", description=__doc__)
    add = parser.add_argument
    add("--workers", type=int, default=1, help="workers")
    add("--blocks", type=int, default=4096, help="KV blocks of 16 tokens per worker")
    add("--host-blocks", type=int, default=0, help="blocks of the host tier per worker")
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
    add("--shared", type=int, default=0, help="system prompt that all conversations begin with, in tokens")
    add("--base-ms", type=float, default=5.0, help="duration of an empty step")
    add("--token-ms", type=float, default=0.02, help="and per token of it")
    add("--context-ms", type=float, default=0.0, help="and per token of context")
    add("--copy-ms", type=float, default=0.05, help="and per block copied from or to the host tier")
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
    return {
        "requests": len(core.requests),
        "unsure": len(core._unsure),
        "frontends": len(core.frontends),
        "waiting": core.num_waiting,
        "records": len(worker.records),
        "lists": sum(len(x) for x in (worker.prefilling, worker.preempted, worker.held, worker.releasing)),
        "hashes": len(worker.pool._block_of),
        "resident_kb": int(Path("/proc/self/statm").read_text().split()[1])
        * (os.sysconf("SC_PAGE_SIZE") // 1024),
    }


def main() -> None:
    """Prints one JSON object."""
    asked = make_parser().parse_args()
    if asked.last_come:
        Worker._loss = last_come  # type: ignore[assignment,method-assign]
    plan = make_plan(asked)
    if asked.memory:
        every = max(asked.requests // 10, 1)
        plan.on_done = lambda count: (
            (count % every == 0 and print(json.dumps({"done": count} | sizes(plan)))) or None
        )
    started = time.perf_counter()
    plan.run()
    plan.scheduler.check_integrity()
    print(json.dumps(summarize(plan, time.perf_counter() - started)))


if __name__ == "__main__":
    main()
