"""A deployment in simulated time: the real scheduler core, workers that only count, clients that come at random."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.blocks.fence import Fence
from scheduler_svc.core.cluster.notices import Placed
from scheduler_svc.core.cluster.worker_info import WorkerInfo
from scheduler_svc.core.request import Request, RequestKey
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.step import Chunk, StepDecision, StepReport
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.hash_chain import HASH_BYTES

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
    tenant: str = ""
    priority: int = 0
    arrived: float = 0.0
    first_token: float = 0.0
    prefilled: int = 0
    """Prompt and output tokens computed by prefill, each time again."""
    computed: int = 0
    """Tokens of them that were computed for the first time."""


class CountingWorker:
    """Runs steps by counting tokens. Keeps what a worker's core would know of each slot."""

    def __init__(self, info: WorkerInfo, timing: Timing) -> None:
        self.info, self._timing = info, timing
        self._turns: dict[int, Turn] = {}
        self._tokens: dict[int, int] = {}
        """Prompt plus output by slot."""
        self._sealed: dict[int, int] = {}
        self._computed: dict[int, int] = {}
        """Tokens behind the recurrent state of each slot, and those behind its last boundary, where there are any."""
        self._boundaries: dict[int, int] = {}
        self._rows: set[int] = set()
        self._paused: set[int] = set()
        self._settling: list[int] = []
        self._ended: set[int] = set()
        self._waiting: deque[tuple[StepDecision, float]] = deque()
        self._is_busy = False
        self._copying_until = 0.0

    def put(self, step: StepDecision, now: float) -> None:
        """A step has arrived, and waits for those before it."""
        self._waiting.append((step, now))

    def next_step(self) -> tuple[StepDecision, float] | None:
        """The step that is to begin, and when it came; None: another one runs, or there is none."""
        return None if self._is_busy or not self._waiting else self._waiting.popleft()

    def copy_aside(self, fence: Fence, now: float) -> float:
        """Begins with copies beside the step that was begun last. Returns when they end: group follows group."""
        self._copying_until = max(now, self._copying_until) + self._timing.per_copy * len(fence.copies)
        return self._copying_until

    def begin(
        self, step: StepDecision, turns: dict[str, Turn], arrived: float, now: float
    ) -> tuple[float, StepReport]:
        """Applies a step. Returns when it ends and what it will report; then comes `end`."""
        self._is_busy = True
        kept = [order.position or self._last_boundary(order.slot) for order in step.checkpoints]
        self._rows |= set(self._settling)
        self._settling = []
        for slot in step.finished_slots:
            self._rows.discard(slot)
            self._paused.discard(slot)
            self._ended.discard(slot)
            self._turns.pop(slot, None)
        self._rows -= set(step.preempted_slots)
        self._paused -= {*step.preempted_slots, *step.unpaused_slots}
        self._paused |= set(step.paused_slots)
        for start, request in zip(step.started, step.placed, strict=True):
            self._place(start.chunk.slot, turns[request.key.request_id])
        chunks = [*step.chunks, *(s.chunk for s in step.resumed), *(s.chunk for s in step.started)]
        rows = self._rows - self._paused
        report = StepReport(step.step_id, len(rows), sum(chunk.length for chunk in chunks))
        report.queued_us = int((now - arrived) * 1e6)
        report.checkpoint_positions = kept
        self._boundaries.update((start.chunk.slot, 0) for start in (*step.resumed, *step.started))
        if step.may_be_skipped and any(waiting.num_prefill_tokens for waiting, _ in self._waiting):
            report.decode_counts = np.zeros(len(rows), np.uint8)
            return now, report
        end = now + self._seconds_of(rows, chunks, len(step.copies))
        self._advance(report, rows, chunks)
        report.duration_us = report.execute_us = int((end - now) * 1e6)
        return end, report

    def end(self) -> None:
        """The step that was begun last has ended."""
        self._is_busy = False

    def _place(self, slot: int, turn: Turn) -> None:
        self._turns[slot] = turn
        self._tokens[slot] = turn.num_prompt
        self._sealed[slot] = turn.num_prompt // self.info.block_size

    def _last_boundary(self, slot: int) -> int:
        """The last boundary that a slot is known to have passed; 0: none."""
        assert self.info.state_group is not None
        computed = self._computed.get(slot, 0)
        return self._boundaries.get(slot, 0) if computed % self.info.state_group.boundary else computed

    def _seconds_of(self, rows: set[int], chunks: list[Chunk], copies: int) -> float:
        tokens = len(rows) + sum(chunk.length for chunk in chunks)
        context = sum(self._tokens[slot] for slot in rows) if self._timing.per_context else 0
        timing = self._timing
        return (
            timing.base + timing.per_token * tokens + timing.per_context * context + timing.per_copy * copies
        )

    def _advance(self, report: StepReport, rows: set[int], chunks: list[Chunk]) -> None:
        exceptions = [slot for slot in rows if slot in self._ended]
        made = [slot for slot in sorted(rows) if slot not in self._ended]
        for chunk in chunks:
            turn = self._turns[chunk.slot]
            ended = chunk.slot in self._ended
            turn.prefilled += 0 if ended else chunk.length
            self._computed[chunk.slot] = chunk.start + chunk.length
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
        states, computed = self.info.state_group, self._tokens[slot] - 1
        if states is not None and computed > self._computed[slot] and not computed % states.boundary:
            self._boundaries[slot] = computed
        self._computed[slot] = computed
        while (self._sealed[slot] + 1) * self.info.block_size <= self._tokens[slot] - 1:
            index = self._sealed[slot]
            seals.append((slot, index, content_hash(turn, index, self.info.block_size)))
            self._sealed[slot] += 1
        if self._tokens[slot] == turn.num_prompt + turn.num_output:
            self._ended.add(slot)
            report.finished.append((slot, FinishReason.LENGTH, turn.num_output))


def held_tokens(worker: Worker) -> int:
    """Tokens of the requests that run on `worker`, as far as they are computed."""
    slots = np.flatnonzero(worker.table.num_blocks)
    return int(worker.table.confirmed(slots).sum())


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
    most_held: int = 0
    """Tokens of the requests that ran at once, computed and not given up, at most."""
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
        """Runs until all requests have ended."""
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
            tenant=turn.tenant,
            priority=turn.priority,
        )
        self.scheduler.submit(request, self.now)
        self._pump()

    def _pump(self) -> None:
        for worker_id, worker in self.workers.items():
            while (step := self.scheduler.schedule(worker_id, self.now)) is not None:
                worker.put(step, self.now)
            self._begin_step(worker_id)
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

    def _begin_step(self, worker_id: str) -> None:
        worker = self.workers[worker_id]
        begins = worker.next_step()
        if begins is None:
            return
        step, arrived = begins
        end, report = worker.begin(step, self._turns, arrived, self.now)
        self._at(end, lambda: self._end_step(worker_id, report))
        if step.fence is not None:  # behind all steps before; as if its own work took no time
            fence, copied = step.fence, worker.copy_aside(step.fence, self.now)
            self._at(copied, lambda: self._copied(worker_id, fence))

    def _end_step(self, worker_id: str, report: StepReport) -> None:
        self.workers[worker_id].end()
        self._begin_step(worker_id)
        self._report(worker_id, report)

    def _on_timer(self, worker_id: str) -> None:
        self._timers.discard(worker_id)
        self._pump()

    def _copied(self, worker_id: str, fence: Fence) -> None:
        self.scheduler.fence_ended(worker_id, fence.fence_id, failed=False)
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
        self.most_held = max(self.most_held, held_tokens(state))
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
