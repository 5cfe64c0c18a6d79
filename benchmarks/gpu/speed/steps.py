"""Steps of a runner with clocks around them, one in flight or two."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from statistics import mean, median

import numpy as np

from benchmarks.gpu.speed.loaded import MOST_TOKENS, Loaded
from benchmarks.gpu.speed.timer import Timer
from signalbox.benchmarks.runner.requests import I32, Requests
from worker_svc.core.batch import Batch
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.runner.cuda.runner import Launched

WARM_UPS = 3


class Steps:
    """Launches and collects steps of `requests`."""

    def __init__(self, loaded: Loaded, requests: Requests, states: StateVersions | None = None) -> None:
        self._runner, self.requests, self._device = loaded.runner, requests, loaded.device
        info = loaded.runner.info
        self._states = states or StateVersions(info.num_slots, info.num_state_versions)
        self._flying: deque[tuple[Batch, Launched]] = deque()
        self._collected_at: list[float] = []
        self._launch_s: list[float] = []
        self._timers: list[Timer] = []

    def step(
        self, chunks: Sequence[tuple[int, int]] = (), rows: I32 | None = None, *, depth: int = 1
    ) -> None:
        """One more step, with `depth` in flight at most: rows None: of all that decode."""
        while len(self._flying) >= depth:
            self._collect()
        batch = self.requests.batch(list(chunks), rows)
        waiting = [slot for each, _ in self._flying for slot in each.slots[each.sample_rows].tolist()]
        ahead = np.isin(batch.slots, waiting)
        self._states.take(batch)
        timer = Timer(self._device)
        timer.begin()
        started = time.perf_counter()
        launched = self._runner.launch(batch, ahead)
        self._launch_s.append(time.perf_counter() - started)
        timer.end()
        self._timers.append(timer)
        self._flying.append((batch, launched))
        self.requests.advance(batch)

    def settle(self) -> None:
        """Waits for all."""
        while self._flying:
            self._collect()

    def _collect(self) -> None:
        batch, launched = self._flying.popleft()
        sampled = self._runner.collect(launched)
        self._collected_at.append(time.perf_counter())
        if len(sampled.bad_rows):
            raise ArithmeticError(f"rows {sampled.bad_rows.tolist()} of a step are not finite")
        self._states.commit(batch, ())
        self.requests.fill_in(batch, sampled.token_ids)

    def rewind(self) -> None:
        """All go on from their first output token again, which changes times of attention alone."""
        self.settle()
        self.requests.num_computed[:] = self.requests.num_prompt
        self.requests.num_tokens[:] = self.requests.num_prompt + 1

    def forget_times(self) -> None:
        """What ran so far does not count."""
        self.settle()
        self._collected_at, self._launch_s, self._timers = [], [], []

    @property
    def step_ms(self) -> float:
        """Mean time from collected step to collected step."""
        return mean(np.diff(self._collected_at).tolist()) * 1e3

    @property
    def launch_ms(self) -> float:
        """The host's median time of a launch."""
        return median(self._launch_s) * 1e3

    @property
    def device_ms(self) -> float:
        """Mean time between the device's events around a launch; for steps in turn."""
        return mean(timer.ms for timer in self._timers)

    def measure(self, num_steps: int, rows: I32 | None, depth: int) -> None:
        """Runs so many decode steps behind some that do not count."""
        for _ in range(WARM_UPS):
            self.step(rows=rows, depth=depth)
        self.forget_times()
        for _ in range(num_steps + 1):
            self.step(rows=rows, depth=depth)
        self.settle()


def computed(loaded: Loaded, count: int, length: int, num_outputs: int, further: Sequence[I32] = ()) -> Steps:
    """Requests with random prompts of `length` tokens that have been computed, and `further` prompts, which have not,
    behind them."""
    random = np.random.default_rng(count)
    vocab_size = loaded.runner.info.vocab_size
    prompts = [random.integers(3, vocab_size, length).astype(np.int32) for _ in range(count)]
    steps = Steps(loaded, Requests([*prompts, *further], num_outputs, loaded.runner.info.block_size))
    at_once = max(1, MOST_TOKENS // length)
    none = np.empty(0, np.int32)
    for first in range(0, count, at_once):
        steps.step([(slot, length) for slot in range(first, min(first + at_once, count))], none)
    steps.forget_times()
    return steps


def most_rows(loaded: Loaded, wanted: int, length: int, num_outputs: int) -> int:
    """How many of the wanted rows have room in the cache."""
    info = loaded.runner.info
    return min(wanted, info.num_blocks // -(-(length + num_outputs) // info.block_size))
