"""A worker of simulated time: it runs steps by counting."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from scheduler_svc.core.parts.handoff.commit import Arrived
from scheduler_svc.core.parts.handoff.orders import HandoffOrders
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.steps.step import Chunk, StepDecision, StepReport
from scheduler_svc.core.state.worker_info import WorkerInfo
from signalbox.benchmarks.scheduler.turn import Turn, content_hash
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.hash_chain import HASH_BYTES


@dataclass(frozen=True)
class Timing:
    """Duration of a step in seconds."""

    base: float
    per_token: float
    per_context: float
    per_copy: float


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
        self._frozen: set[int] = set()
        self._settling: list[int] = []
        self._ended: set[int] = set()
        self._waiting: deque[tuple[StepDecision, float]] = deque()
        self._is_busy = False
        self._copying_until = 0.0

    def slow_down(self, factor: float) -> None:
        """Its steps take so many times as long from now on."""
        timing = self._timing
        per_token, per_context = timing.per_token * factor, timing.per_context * factor
        self._timing = Timing(timing.base * factor, per_token, per_context, timing.per_copy)

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
            self._frozen.discard(slot)
            self._ended.discard(slot)
            self._turns.pop(slot, None)
        self._rows -= set(step.preempted_slots)
        self._computed.update((slot, 0) for slot in step.preempted_slots)
        self._paused -= {*step.preempted_slots, *step.unpaused_slots}
        self._paused |= set(step.paused_slots)
        handoffs = step.ordered(HandoffOrders)
        if handoffs is not None:
            self._frozen -= {slot for slot, _ in handoffs.thawed}
            self._frozen |= set(handoffs.frozen_slots)
        for start, request in zip(step.started, step.placed, strict=True):
            self._place(start.chunk.slot, turns[request.key.request_id])
        chunks = [*step.chunks, *(s.chunk for s in step.resumed), *(s.chunk for s in step.started)]
        rows = self._rows - self._paused - self._frozen
        report = StepReport(step.step_id, len(rows), sum(chunk.length for chunk in chunks))
        report.queued_us = int((now - arrived) * 1e6)
        report.checkpoint_positions = kept
        self._boundaries.update((start.chunk.slot, 0) for start in (*step.resumed, *step.started))
        if step.may_be_skipped and any(waiting.num_prefill_tokens for waiting, _ in self._waiting):
            report.decode_counts = np.zeros(len(rows), np.uint8)
            return now, report
        if handoffs is not None and not (rows or chunks or step.copies):
            return now, report  # the model does not run
        end = now + self._seconds_of(rows, chunks, len(step.copies))
        self._advance(report, rows, chunks, end)
        report.duration_us = report.execute_us = int((end - now) * 1e6)
        return end, report

    def end(self) -> None:
        """The step that was begun last has ended."""
        self._is_busy = False

    def tail_of(self, slot: int) -> Arrived | None:
        """What goes over of a slot that is frozen; None: its request has ended."""
        turn = self._turns.get(slot)
        if turn is None or slot in self._ended:
            return None
        first = turn.num_prompt // self.info.block_size
        names = (content_hash(turn, i, self.info.block_size) for i in range(first, self._sealed[slot]))
        num_output = self._tokens[slot] - turn.num_prompt
        return Arrived(self._computed.get(slot, 0), num_output, b"".join(names))

    def take_over(self, slot: int, turn: Turn, arrived: Arrived) -> None:
        """A request of another worker goes on here in `slot`."""
        self._place(slot, turn)
        self._tokens[slot] += arrived.num_output
        self._sealed[slot] += len(arrived.sealed_hashes) // HASH_BYTES
        self._computed[slot] = arrived.num_computed

    def _place(self, slot: int, turn: Turn) -> None:
        self._turns[slot] = turn
        self._tokens[slot] = turn.num_prompt
        self._sealed[slot] = turn.num_prompt // self.info.block_size
        self._computed[slot] = 0

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

    def _advance(self, report: StepReport, rows: set[int], chunks: list[Chunk], now: float) -> None:
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
            self._turns[slot].take_token(now)
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
