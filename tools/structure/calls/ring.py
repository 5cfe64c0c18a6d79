"""Steady decode steps of a scheduler's core and a worker's core, joined by their messages; no network, no model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ParamSpec, TypeVar

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.links.codec import delta as scheduler_delta
from scheduler_svc.links.codec.disk import take_disk_event
from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import BlockGroupKind
from signalbox.protocol.hash_chain import HASH_BYTES, chain_hashes, root_hash
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2
from tools.structure.calls.counting import CallCounter, Count, Kind, median
from worker_svc.core.batch import RunnerInfo, Sampled
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.core.parts.disk import DiskPart
from worker_svc.core.worker_core import WorkerCore
from worker_svc.links import delta as worker_delta

P = ParamSpec("P")
T = TypeVar("T")
NUM_RUNNING = 256
BLOCK_SIZE = 16
PROMPT_TOKENS = 64
"""Length of a prompt, plus the number of its request modulo the block size: each step fills as many blocks."""
WARM_UP_STEPS, STEPS = 40, 32
REACH = 4096
"""Positions that a window or the boundary of checkpoints has: more than any request reaches."""
NUM_DRAFTS = 3
TOKEN = 7
"""The one token that the model makes: drafts that look it up are right."""
LENGTH = PROMPT_TOKENS + BLOCK_SIZE + (WARM_UP_STEPS + STEPS + 8) * (1 + NUM_DRAFTS)
NUM_BLOCKS = (NUM_RUNNING + 2) * (-(-LENGTH // BLOCK_SIZE) + 4)
PARTS = ("schedule", "update", "apply", "commit")
WORKER = "worker"
ROOT = root_hash("model")


def runner_info(kind: Kind) -> RunnerInfo:
    """RunnerInfo of a worker of that kind."""
    plain = RunnerInfo(
        "model", NUM_BLOCKS, BLOCK_SIZE, REACH, vocab_size=100, eos_token_ids=(), num_slots=NUM_RUNNING + 64
    )
    if kind is Kind.DRAFTS:
        return replace(plain, max_draft_tokens=NUM_DRAFTS)
    if kind is Kind.FEATURES:
        return replace(
            plain,
            groups=(BlockGroup(BlockGroupKind.WINDOW, REACH, NUM_BLOCKS, num_host_blocks=64),),
            num_host_blocks=64,
            num_state_versions=3,
            state_group=StateGroup(REACH, 64, num_host_checkpoints=64),
            num_lanes=2,
            kv_layout="layout",
        )
    return plain


def hello(info: RunnerInfo) -> from_worker_pb2.WorkerHello:
    """The message with which such a worker attaches."""
    return from_worker_pb2.WorkerHello(
        worker_id=WORKER,
        worker_instance="instance",
        address="127.0.0.1:1",
        model=shared_pb2.ModelEntry(
            model=info.model, max_model_len=info.max_model_len, block_size=info.block_size
        ),
        num_slots=info.num_slots,
        num_blocks=info.num_blocks,
        max_num_batched_tokens=1 << 30,
        max_draft_tokens=info.max_draft_tokens,
        **worker_delta.host_blocks_of(info),
        kinds=[int(kind) for kind in info.kinds],  # type: ignore[misc]
        reuses_no_blocks=info.num_state_versions > 0,
        state_group=worker_delta.build_state_group(info),
        groups=worker_delta.build_groups(info),
        kv_layout=info.kv_layout,
        pulls_blocks=bool(info.kv_layout),
        num_lanes=info.num_lanes,
    )


@dataclass
class Ring:
    """One scheduler and one worker. What is measured is recorded once `counter` is set."""

    kind: Kind
    counter: CallCounter | None = None
    counts: dict[str, list[Count]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def __post_init__(self) -> None:
        self.info = runner_info(self.kind)
        self.scheduler = Scheduler(_config(self.info), epoch=1, now=0.0)
        offer = scheduler_delta.parse_offer(hello(self.info))
        self.worker: Worker = self.scheduler.attach_worker(offer, None, 0.0)
        if self.kind is Kind.FEATURES:
            news = from_worker_pb2.DiskNews(begins=True, base_us=1000, token_ns=1000)
            take_disk_event(self.worker, from_worker_pb2.WorkerEvent(disk_news=news))
        _fill_caches(self.worker)
        drafter = NgramDrafter(1, 3) if self.kind is Kind.DRAFTS else None
        self.core = WorkerCore(self.info, self.info.num_slots, drafter)
        if self.kind is Kind.FEATURES:
            self.core.parts.add(DiskPart(lambda orders: None))
        self.sent: deque[to_worker_pb2.AttachWorkerResponse] = deque()

    def submit_all(self) -> None:
        """Sends the requests, which all run until the last step."""
        for number in range(NUM_RUNNING):
            self.scheduler.submit(_request(number), 0.0)

    def turn(self) -> None:
        """Sends what can be sent, and runs and reports the oldest step."""
        while len(self.worker.records) < self.worker.limits.max_inflight_steps:
            step = self._measure("schedule", self.scheduler.schedule, WORKER, 0.0)
            if step is None:
                break
            self.sent.extend(scheduler_delta.build_messages(step, self.worker, 1, 1 << 30))
        message = self.sent.popleft()
        for new in message.new_requests:
            assert not self.core.add(worker_delta.parse_new_request(new, self.info))
        for each in message.steps:
            self._run(each)

    def _run(self, message: to_worker_pb2.SchedulerOutput) -> None:
        running = self._measure("apply", self.core.apply, worker_delta.parse_step(message))
        sampled = Sampled(np.full(len(running.batch.sample_index), TOKEN, np.int32))
        report, _outputs = self._measure("commit", self.core.commit, running, sampled, {})
        if message.disk.stores.block_ids:
            ended = from_worker_pb2.DiskStoresEnded(step_id=message.step_id)
            take_disk_event(self.worker, from_worker_pb2.WorkerEvent(disk_stores_ended=ended))
        if self.core.drafting is not None:
            self.core.drafting.take_duration(running, 0.02)
        answer = worker_delta.build_report(report)
        answer.timings.execute_us = 20_000
        taken = scheduler_delta.parse_report(answer)
        self._measure("update", self.scheduler.update, WORKER, taken, 0.0)

    def _measure(self, part: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns; its calls are recorded, unless it has made no step."""
        if self.counter is None:
            return work(*args, **kwargs)
        result, count = self.counter.count(work, *args, **kwargs)
        if result is not None or part != "schedule":
            self.counts[part].append(count)
        return result


def measure(kind: Kind, counter: CallCounter) -> dict[str, Count]:
    """Calls of a steady step, by part."""
    ring = Ring(kind)
    ring.submit_all()
    for _ in range(WARM_UP_STEPS):
        ring.turn()
    ring.counter = counter
    for _ in range(STEPS):
        ring.turn()
    return {part: median(counts) for part, counts in ring.counts.items()}


def _config(info: RunnerInfo) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=NUM_RUNNING + 1,
        max_num_batched_tokens=1 << 30,
        num_speculative_tokens=info.max_draft_tokens,
        just_in_time_steps=info.num_lanes == 1,
        enable_chunked_prefill=info.num_lanes == 1,
        max_waiting=1 << 30,
    )


def _fill_caches(worker: Worker) -> None:
    """Fills each pool with cached content, so that each grant evicts a block."""
    names = np.random.default_rng(0)
    for pool in worker.pools:
        old = pool.take(pool.num_blocks)
        pool.publish(old, np.frombuffer(names.bytes(HASH_BYTES * pool.num_blocks), HASH_DTYPE))
        pool.release(old)


def _request(number: int) -> Request:
    """A request as a frontend submits it."""
    tokens = np.arange(PROMPT_TOKENS + number % BLOCK_SIZE, dtype=np.int32) % 50
    tokens[0] = number % 97
    payload = generation_pb2.RequestPayload(token_ids=tokens.tobytes())
    meta = from_frontend_pb2.RequestMeta(
        model="model",
        num_prompt_tokens=len(tokens),
        max_tokens=1 << 16,
        block_hashes=chain_hashes(ROOT, tokens.tobytes(), BLOCK_SIZE),
        hash_block_size=BLOCK_SIZE,
        root_hash=ROOT,
    )
    ref = shared_pb2.RequestRef(request_id=f"request-{number}", attempt=number + 1)
    submit = from_frontend_pb2.SubmitRequest(ref=ref, meta=meta, payload=payload.SerializeToString())
    return scheduler_delta.parse_submit(submit, "frontend")
