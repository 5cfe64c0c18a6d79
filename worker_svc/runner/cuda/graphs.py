"""Decode steps of fixed sizes: everything from the state of the slots to the logits, as one CUDA graph each."""

from __future__ import annotations

import logging
from typing import Any

import torch

from worker_svc.runner.attention import attention
from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.cpu.direct_forward import ModuleForward
from worker_svc.runner.cuda.buckets import bucket_for
from worker_svc.runner.cuda.state import DecodeState
from worker_svc.runner.sampling.finite import state_sums
from worker_svc.runner.triton.batch import DecodeBatch, make_decode_items

logger = logging.getLogger(__name__)
WARM_UPS = 2
"""Runs before a capture: Triton compiles its kernels, libraries choose theirs."""


class DecodeStep:
    """A decode step of `size` rows that reads all it needs from `state`, on the device."""

    def __init__(
        self,
        module: Any,
        cache: KVCache,
        state: DecodeState,
        of_layers: tuple[int, ...],
        size: int,
        num_splits: int,
    ) -> None:
        """of_layers: `[layers]` number of each layer's group; empty: all are the spine's."""
        self._forward, self._cache, self._state = ModuleForward(module), cache, state
        self._of_layers, self._num_splits = of_layers, num_splits
        self._items = make_decode_items(size, num_splits, state.device)
        self.slots = torch.full((size,), state.num_slots, dtype=torch.int64, device=state.device)
        """[size] what to run; rows that fill up are of the slot behind the last one."""

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the KV of the rows' tokens. Returns the logits `[size, V]`, and whether the hidden states are finite
        `[size]`. Copies nothing from or to the host."""
        tokens, positions = self._state.tokens[self.slots], self._state.positions[self.slots]
        batch = DecodeBatch(
            self._cache,
            positions,
            self._state.block_tables[:, self.slots],
            of_layers=self._of_layers,
            items=self._items,
            num_splits=self._num_splits,
        )
        with attention.running(batch):
            forwarded = self._forward.all(tokens, positions.to(torch.int64))
        return forwarded.logits, state_sums(forwarded.states).isfinite()


class CapturedStep:
    """A `DecodeStep` as a graph: one launch for all kernels. Not to be made while another thread uses the device."""

    def __init__(self, step: DecodeStep, pool: Any) -> None:
        self.slots = step.slots
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                step.run()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._results = step.run()

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Runs the step as `DecodeStep.run` does; the next run of any size overwrites the results."""
        self._graph.replay()
        return self._results


class DecodeSteps:
    """The decode steps of all batch sizes, captured as graphs or not."""

    def __init__(
        self,
        module: Any,
        cache: KVCache,
        state: DecodeState,
        of_layers: tuple[int, ...],
        sizes: tuple[int, ...],
        num_splits: int,
    ) -> None:
        self._sizes = sizes
        self._steps: dict[int, DecodeStep | CapturedStep] = {
            size: DecodeStep(module, cache, state, of_layers, size, num_splits) for size in sizes
        }

    def for_rows(self, count: int) -> DecodeStep | CapturedStep | None:
        """The smallest that holds `count` rows; None if that are too many."""
        size = bucket_for(count, self._sizes)
        return None if size is None else self._steps[size]

    @property
    def num_captured(self) -> int:
        """How many of the steps are graphs."""
        return sum(isinstance(step, CapturedStep) for step in self._steps.values())

    def capture(self) -> None:
        """Captures all, the largest first, so that the others find its memory; they never run at the same time.

        Without a graph a step runs all the same: one that cannot be captured (a model whose code waits for the
        device) is left as it is, and logged.
        """
        pool = torch.cuda.graph_pool_handle()
        for size in sorted(self._sizes, reverse=True):
            step = self._steps[size]
            assert isinstance(step, DecodeStep)
            try:
                self._steps[size] = CapturedStep(step, pool)
            except RuntimeError as error:
                logger.warning("Decode steps run without CUDA graphs, which is slower: %s", error)
                return
