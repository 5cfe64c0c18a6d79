"""Tenants and classes in simulated time: the real scheduler core, workers that only count (scheduler_svc/planning)."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.tenants import Tenants
from scheduler_svc.core.state.steps.step import StepReport
from scheduler_svc.core.state.worker_info import WorkerInfo
from signalbox.benchmarks.scheduler.counting_worker import CountingWorker, Timing
from signalbox.benchmarks.scheduler.planning import MODEL, Plan, Workload
from signalbox.benchmarks.scheduler.turn import Turn

TIMING = Timing(base=0.005, per_token=0.00002, per_context=0.0, per_copy=0.00005)
BLOCK_SIZE = 16
TICK_S = 0.5


@dataclass(frozen=True)
class Stream:
    """What one tenant asks for in one class."""

    tenant: str
    prompt: tuple[int, int]
    output: tuple[int, int]
    priority: int = 0
    rate: float = 0.0
    """Requests per second, at random; 0: `backlog` decides."""
    backlog: int = 0
    """Requests that are always here, waiting or running."""
    most: int = 1 << 40
    """Requests in all."""


@dataclass
class QosPlan(Plan):
    """A run of several streams for `duration_s` simulated seconds."""

    streams: tuple[Stream, ...] = ()
    duration_s: float = 60.0
    on_step: Callable[[QosPlan], None] = lambda plan: None
    done: list[tuple[Stream, Turn, float]] = field(default_factory=list)
    """Requests that have ended, and when."""
    begun: list[tuple[Stream, Turn]] = field(default_factory=list)
    """All that have come."""
    ended_inputs: Counter[str] = field(default_factory=Counter)
    ended_outputs: Counter[str] = field(default_factory=Counter)
    """Computed prompt tokens and output tokens of requests that have ended, by tenant."""
    _stream_of: dict[str, Stream] = field(default_factory=dict)
    _num_begun: Counter[Stream] = field(default_factory=Counter)
    _dice: dict[Stream, random.Random] = field(default_factory=dict)
    """The random numbers of each stream, its own: what it asks for does not depend on who else is there."""

    def run(self) -> None:
        """Runs until the time is over."""
        self._at(TICK_S, self._tick)
        seed = self.rng.random()
        for stream in self.streams:
            self._dice[stream] = random.Random(f"{seed} {stream}")
            for _ in range(stream.backlog or 1):
                self._at(0.0, lambda s=stream: self._arrive(s))  # type: ignore[misc]
        while self._events and self._events[0][0] <= self.duration_s:
            self.now, _, action = heapq.heappop(self._events)
            action()

    def _tick(self) -> None:
        """As the service does: what time alone changes is seen then. The last one is when nothing is left to happen."""
        self.scheduler.tick(self.now)
        self._pump()
        if self._events or self.scheduler.requests:
            self._at(self.now + TICK_S, self._tick)

    def __post_init__(self) -> None:
        """Samples are kept with the requests."""

    def _arrive(self, stream: Stream) -> None:
        if self._num_begun[stream] >= stream.most:
            return
        self._num_begun[stream] += 1
        number, dice = self._begun, self._dice[stream]
        prompt, output = dice.randint(*stream.prompt), dice.randint(*stream.output)
        turn = Turn(number, 0, prompt, output, 0, tenant=stream.tenant, priority=stream.priority)
        self._stream_of[f"{number}.0"] = stream
        self.begun.append((stream, turn))
        self._submit(turn)
        if stream.rate:
            self._at(self.now + dice.expovariate(stream.rate), lambda: self._arrive(stream))

    def _report(self, worker_id: str, report: StepReport) -> None:
        super()._report(worker_id, report)
        self.on_step(self)

    def _end(self, turn: Turn) -> None:
        stream = self._stream_of.pop(f"{turn.conversation}.{turn.number}")
        self.done.append((stream, turn, self.now))
        self.ended_inputs[turn.tenant] += turn.computed
        self.ended_outputs[turn.tenant] += turn.num_output
        if stream.backlog:
            self._arrive(stream)

    def served(self) -> tuple[Counter[str], Counter[str]]:
        """Computed prompt tokens and output tokens of each tenant so far: those of requests that run included."""
        inputs, outputs = Counter(self.ended_inputs), Counter(self.ended_outputs)
        for worker in self.scheduler.workers.values():
            for request in worker.requests():
                assert request.slot is not None
                inputs[request.tenant] += request.num_prompt_tokens - request.history.num_cached_tokens
                outputs[request.tenant] += int(worker.table.num_output[request.slot])
        return inputs, outputs

    def share_in_time(self, stream: Stream, target_s: float, after_s: float = 5.0) -> float:
        """Share of the stream's requests that had their first token in time, of those that came after that time and
        early enough to be late by now."""
        last = self.duration_s - target_s
        turns = [turn for s, turn in self.begun if s is stream and after_s <= turn.arrived <= last]
        return sum(0 < turn.first_token <= turn.arrived + target_s for turn in turns) / len(turns)

    def longest_wait_s(self) -> float:
        """For a first token, of all requests: up to now if there is none yet."""
        return max((turn.first_token or self.now) - turn.arrived for _, turn in self.begun)

    def ttft_ms(self, stream: Stream, after_s: float = 0.0) -> np.ndarray:  # type: ignore[type-arg]
        """Times to first token of the stream's requests that have ended and came after that time, in milliseconds."""
        waits = [t.first_token - t.arrived for s, t, _ in self.done if s is stream and t.arrived >= after_s]
        return np.array(waits) * 1e3


def make_qos_plan(
    *streams: Stream,
    duration_s: float = 60.0,
    num_blocks: int = 4096,
    seed: int = 0,
    tenants: Tenants | None = None,
    **settings: object,
) -> QosPlan:
    """One worker: steps of 5 ms + 0.02 ms per token, 64 sequences, 512 tokens per step, depth 2, unless said."""
    values: dict[str, object] = {"max_num_seqs": 64, "max_num_batched_tokens": 512, "max_inflight_steps": 2}
    config = SchedulerConfig(**values | {"max_waiting": 1 << 30} | settings)  # type: ignore[arg-type]
    scheduler = Scheduler(config, epoch=1, now=0.0, tenants=tenants)
    info = WorkerInfo("w0", "i", "a:1", MODEL, 4 * 64, num_blocks, BLOCK_SIZE, 8192, 512)
    scheduler.attach_worker(info, None, 0.0)
    load = Workload(1 << 40, 1.0, 1, (1, 1), (1, 1), 0, 0.0)
    workers = {"w0": CountingWorker(info, TIMING)}
    return QosPlan(scheduler, workers, load, random.Random(seed), streams=streams, duration_s=duration_s)
