"""A deployment in simulated time: the real scheduler core, workers that only count, clients that come at random."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.parts.handoff.orders import HandoffOrders
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.notices import Placed
from scheduler_svc.core.state.requests.request import Request, RequestKey
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.steps.step import StepReport
from scheduler_svc.core.state.worker import Worker
from signalbox.benchmarks.scheduler.counting_worker import CountingWorker
from signalbox.benchmarks.scheduler.transfers import Transfers
from signalbox.benchmarks.scheduler.turn import SIBLINGS, Turn, content_hash

MODEL = "model"
TICK_S = 0.5


def held_tokens(worker: Worker) -> int:
    """Tokens of the requests that run on `worker`, as far as they are computed."""
    slots = np.flatnonzero(worker.table.num_blocks)
    return int(worker.table.confirmed(slots).sum())


MOST = 10**9
"""Conversations of a stream, whose numbers begin at a multiple of it."""


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
    streams: tuple[Stream, ...] = ()
    """Kinds of requests; empty: one, by the rate and the ranges above."""
    slow_at_s: tuple[str, float, float] = ("", 0.0, 1.0)
    """A worker, when it becomes slow, and how many times as long its steps take from then on."""


@dataclass(frozen=True)
class Stream:
    """Requests of one kind, which come at random."""

    name: str
    rate: float
    """Conversations that begin per second."""
    prompt: tuple[int, int]
    """Range of new prompt tokens per turn."""
    output: tuple[int, int]
    turns: int = 1
    shared: int = 0
    """Leading prompt tokens that all its conversations share."""
    forked: int = 0
    """Tokens behind those that SIBLINGS conversations share, as agents that one task was given to: they begin at
    once."""
    think_s: float = 5.0
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
    transfers: Transfers | None = None
    """What requests are handed over by; None: they are not."""
    on_end: Callable[[Turn], None] = lambda turn: None
    on_done: Callable[[int], None] = lambda count: None
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _sequence: int = 0
    _turns: dict[str, Turn] = field(default_factory=dict)
    _timers: set[str] = field(default_factory=set)
    """Workers with a step that is held back."""
    _begun: int = 0

    def __post_init__(self) -> None:
        self.samples = np.full((self.load.requests, 5), np.nan, np.float32)
        load = self.load
        alone = Stream("", load.rate, load.prompt, load.output, load.turns, load.shared, think_s=load.think_s)
        self._streams = {stream.name: stream for stream in load.streams or (alone,)}
        self._next_conversation = {name: place * MOST for place, name in enumerate(self._streams)}

    def run(self) -> None:
        """Runs until all requests have ended."""
        load = self.load
        for stream in self._streams.values():
            self._begin_conversation(stream)
        if self.transfers is not None or load.slow_at_s[0]:
            self._tick()
        if load.slow_at_s[0]:
            worker = self.workers[load.slow_at_s[0]]
            self._at(load.slow_at_s[1], lambda: worker.slow_down(load.slow_at_s[2]))
        while self._events and self.num_done + self.rejected < self.load.requests:
            self.now, _, action = heapq.heappop(self._events)
            action()

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, action))

    def _tick(self) -> None:
        """As the service does: what time alone changes is seen then."""
        self.scheduler.tick(self.now)
        self._pump()
        self._at(self.now + TICK_S, self._tick)

    def _begin_conversation(self, stream: Stream) -> None:
        if self._begun >= self.load.requests:
            return
        first = self._next_conversation[stream.name]
        for number in range(first, first + (SIBLINGS if stream.forked else 1)):
            self._submit(
                Turn(
                    number,
                    0,
                    stream.shared + stream.forked + self.rng.randint(*stream.prompt),
                    self.rng.randint(*stream.output),
                    stream.shared,
                    forked=stream.forked,
                    first_sibling=first,
                    stream=stream.name,
                )
            )
            self._next_conversation[stream.name] += 1
        self._at(self.now + self.rng.expovariate(stream.rate), lambda: self._begin_conversation(stream))

    def _submit(self, turn: Turn) -> None:
        if self._begun >= self.load.requests:
            return
        self._begun += 1
        name = turn.name
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
                if not turn.computed:  # else it is handed over
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
        orders = step.ordered(HandoffOrders)
        if orders is not None:
            self._hand_over(worker_id, orders)
        if step.fence is not None:  # behind all steps before; as if its own work took no time
            fence, copied = step.fence, worker.copy_aside(step.fence, self.now)
            self._at(copied, lambda: self._copied(worker_id, fence))

    def _hand_over(self, worker_id: str, orders: HandoffOrders) -> None:
        """Blocks and tails travel beside the steps."""
        if self.transfers is None:
            return
        desk = self.scheduler.handoffs
        found = {start.slot: start.num_found for start in orders.import_starts}
        for handoff in orders.arriving:
            read_at = self.transfers.begin(handoff, found[handoff.target_slot], self.now)

            def ready(handoff: Handoff = handoff) -> None:
                desk.ready(handoff.target.info.worker_id, handoff.target_slot, handoff.transfer, self.now)
                self._pump()

            self._at(read_at, ready)
        for handoff in list(handoffs_of(self.scheduler.workers[worker_id]).exports.values()):
            if handoff.source_slot in orders.frozen_slots:
                self._send_tail(handoff)

    def _send_tail(self, handoff: Handoff) -> None:
        assert self.transfers is not None
        arrived = self.workers[handoff.source.info.worker_id].tail_of(handoff.source_slot)
        if arrived is None:
            return  # its end is on its way

        def ended() -> None:
            if not handoff.is_over:
                target_id, slot = handoff.target.info.worker_id, handoff.target_slot
                turn = self._turns[handoff.request.key.request_id]
                self.workers[target_id].take_over(slot, turn, arrived)
                self.scheduler.handoffs.ended(target_id, slot, handoff.transfer, arrived, self.now)
                self._pump()

        self._at(self.transfers.end(handoff, arrived, self.now), ended)

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
        self.on_end(turn)
        self.on_done(self.num_done)
        stream = self._streams[turn.stream]
        if turn.number + 1 < stream.turns:
            said = turn.num_prompt + turn.num_output
            following = Turn(
                turn.conversation,
                turn.number + 1,
                said + self.rng.randint(*stream.prompt),
                self.rng.randint(*stream.output),
                turn.shared,
                forked=turn.forked,
                first_sibling=turn.first_sibling,
                stream=turn.stream,
            )
            self._at(
                self.now + self.rng.expovariate(1 / max(stream.think_s, 1e-9)),
                lambda: self._submit(following),
            )
