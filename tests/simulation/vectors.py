"""A simulated model that pools: its hidden states are hashes of what it reads back through the block tables, so that a
wrong block, or a position that was skipped or read twice, shows in the vector."""

from __future__ import annotations

import numpy as np

from worker_svc.core.batch import Batch, Sampled
from worker_svc.core.requests.pooling import PoolingMode, PoolingParams
from worker_svc.runner.sim.model import U64, SimRunner, content, mix


def hidden_state(totals: U64) -> np.ndarray:  # type: ignore[type-arg]
    """`[P]` the one element of the hidden state at positions whose contents up to there sum to `totals`."""
    return (mix(totals + np.uint64(1)) % np.uint64(1009)).astype(np.float32)


def expected_vector(prompt: list[int], mode: PoolingMode) -> float:
    """What an undisturbed run of `prompt` gives, unscaled."""
    tokens = np.array(prompt, np.int32)
    totals = np.cumsum(content(tokens, np.arange(len(tokens), dtype=np.int32)), dtype=np.uint64)
    start, end = PoolingParams(mode).positions(len(prompt))
    return float(hidden_state(totals)[start:end].sum(dtype=np.float64) / (end - start))


class PoolingSimRunner(SimRunner):
    """The simulated runner, with hidden states of one element."""

    def execute(self, batch: Batch) -> Sampled:
        """Samples, and sums the hidden states that are asked for."""
        sampled = super().execute(batch)
        for row, start, end in batch.pooled:
            sampled.pooled[row] = self._sum(batch, row, batch.positions[start:end])
        return sampled

    def _sum(self, batch: Batch, row: int, positions: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        length = int(positions[-1]) + 1
        table = batch.block_tables[row, : -(-length // self.info.block_size)]
        totals = np.cumsum(self._cache[table].reshape(-1)[:length], dtype=np.uint64)
        return hidden_state(totals[positions]).sum(keepdims=True, dtype=np.float32)
