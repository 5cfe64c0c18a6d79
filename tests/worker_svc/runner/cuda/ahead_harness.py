"""Drives a CudaRunner one step ahead of its tokens, by the rules of `run_ahead`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.worker_svc.runner.runner_harness import GREEDY, Driver, Request
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.run_ahead import certainly_ended, is_granted, samples_on_device
from worker_svc.runner.cuda.runner import CudaRunner, Launched

UNKNOWN = 511
"""Stands where a token is in flight; a runner that read it would give other outputs."""


@dataclass
class InFlight:
    """A launched step: which requests get its samples, and at which places of their tokens."""

    launched: Launched
    samples: list[tuple[Request, int]]
    slots: NDArray[np.int32]
    was_ahead: NDArray[np.bool_]
    """[N] the sample's row ran on a token in flight."""


@dataclass
class Totals:
    """What happened, so that a test can tell that it did."""

    launched_ahead: int = 0
    waited: int = 0
    overruns: int = 0


class AheadDriver(Driver):
    """As `Driver`, with up to `depth` steps in flight. A request ends at its stop token or at its length."""

    def __init__(self, runner: CudaRunner, depth: int = 2, seed: int = 0) -> None:
        super().__init__(runner, seed=seed)
        self.depth, self.totals = depth, Totals()
        self.stops: dict[int, int] = {}
        """By slot."""
        self._cuda_runner = runner
        self._steps: deque[InFlight] = deque()
        self._unknown: dict[int, int] = {}
        """Tokens in flight by slot."""
        self._ended: list[Request] = []

    def start(
        self, prompt: list[int], max_tokens: int, params: SamplingParams = GREEDY, stop: int | None = None
    ) -> Request:
        """Adds a request and computes its prompt."""
        request = self.add(prompt, max_tokens, params)
        if stop is not None:
            self.stops[request.slot] = stop
        while self._steps:
            self._collect()
        self._launch({request.slot: request.num_prompt})
        return request

    def finish_all(self) -> None:
        """Decodes until all requests have ended, then collects what is left."""
        while any(request.is_decoding for request in self.requests):
            self._launch({})
        while self._steps:
            self._collect()

    def end(self, request: Request) -> None:
        """The request is over; its blocks and its slot may be given to another."""
        self._ended.append(request)
        self.requests.remove(request)

    def reuse_blocks(self) -> None:
        """Gives back what ended requests hold."""
        for request in self._ended:
            self._free_blocks += request.blocks
            self._free_slots.append(request.slot)
        self._ended = []

    def _launch(self, chunks: dict[int, int]) -> None:
        while len(self._steps) >= self.depth or (self._steps and not self._may_launch(chunks)):
            self._collect()
        if not (chunks or any(request.is_decoding for request in self.requests)):
            return
        rows, batch = self.build(chunks)
        ahead = np.array([self._unknown.get(r.slot, 0) > 0 for r, _ in rows])
        self.totals.launched_ahead += bool(ahead.any())
        launched = self._cuda_runner.launch(batch, ahead)
        samples = []
        for i, (request, count) in enumerate(rows):
            request.num_computed += count
            if i in batch.sample_rows:
                samples.append((request, len(request.tokens)))
                request.tokens.append(UNKNOWN)
                self._unknown[request.slot] = self._unknown.get(request.slot, 0) + 1
        slots, was_ahead = batch.slots[batch.sample_rows], ahead[batch.sample_rows]
        self._steps.append(InFlight(launched, samples, slots, was_ahead))

    def _may_launch(self, chunks: dict[int, int]) -> bool:
        if not (chunks or any(request.is_decoding for request in self.requests)):
            return True
        rows, batch = self.build(chunks)
        decoding = [r for r, _ in rows][: batch.num_decode_rows]
        counts = np.array([self._unknown.get(r.slot, 0) for r in decoding])
        limits = np.array([r.num_prompt + r.max_tokens for r in decoding])
        positions = batch.positions[batch.query_starts[:-1]][: len(decoding)]
        assert not certainly_ended(positions, limits).any(), "such a row is not in the batch"
        granted = is_granted(
            positions, np.array([len(r.blocks) for r in decoding]), self.runner.info.block_size
        )
        needs_host = ~samples_on_device(batch)[: len(decoding)]
        may = bool(((counts == 0) | (granted & ~needs_host)).all())
        self.totals.waited += not may
        return may

    def _collect(self) -> None:
        step = self._steps.popleft()
        tokens = self._cuda_runner.collect(step.launched).token_ids
        over = [request not in self.requests for request, _ in step.samples]
        ended = np.zeros(len(self._tokens), np.bool_)
        ended[[r.slot for (r, _), gone in zip(step.samples, over, strict=True) if gone]] = True
        dropped = np.flatnonzero(step.was_ahead & ended[step.slots])
        assert dropped.tolist() == np.flatnonzero(over).tolist()
        self.totals.overruns += len(dropped)
        for i, ((request, place), token) in enumerate(zip(step.samples, tokens.tolist(), strict=True)):
            self._unknown[request.slot] -= 1
            if i in dropped:
                continue
            request.tokens[place] = token
            if token == self.stops.get(request.slot):
                del request.tokens[place + 1 :]
                self.end(request)
