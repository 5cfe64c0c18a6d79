"""Random rows in a cache that is otherwise not a number, and their attention in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tests.worker_svc.runner.reference import attend_in_float64
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.triton.batch import TritonBatch

Row = tuple[int, int]
"""Number of positions known before, number of query tokens."""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Heads:
    """Query heads, KV heads, head dimensions."""

    num_heads: int
    num_kv_heads: int
    dim: int
    value_dim: int
    values_in_keys: bool = False


class Case:
    """The rows' queries, keys and values. Blocks are in random order; what no row has written is NaN."""

    def __init__(
        self,
        rows: list[Row],
        num_decode_rows: int,
        heads: Heads,
        *,
        block_size: int = 16,
        split: int = 64,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.heads, self.split = heads, split
        lengths = [known + new for known, new in rows]
        width = -(-max(lengths) // block_size) + 1
        order = np.random.default_rng(seed).permutation(len(rows) * width).astype(np.int32)
        self.cache = KVCache(
            [LayerShape(heads.num_kv_heads, heads.dim, heads.value_dim, heads.values_in_keys)],
            num_blocks=len(rows) * width,
            block_size=block_size,
            dtype=dtype,
            device=CPU,
        )
        self.cache.fill(float("nan"))
        self.layer = self.cache.layers[0]
        self.rows, self.num_decode_rows = rows, num_decode_rows
        self.block_tables = order.reshape(len(rows), width)
        # Widely spread scores, so that a key too many or too few shows.
        self.keys = [(2 * torch.randn(n, heads.num_kv_heads, heads.dim)).to(dtype) for n in lengths]
        self.values = [torch.randn(n, heads.num_kv_heads, heads.value_dim).to(dtype) for n in lengths]
        if heads.values_in_keys:
            self.values = [keys[..., : heads.value_dim] for keys in self.keys]
        self.queries = [torch.randn(n, heads.num_heads, heads.dim).to(dtype) for _, n in rows]
        for i, n in enumerate(lengths):
            blocks = torch.from_numpy(self.block_tables[i]).long()[torch.arange(n) // block_size]
            self.layer.write(self.keys[i], self.values[i], blocks, torch.arange(n) % block_size)

    def batch(self, chosen: list[int] | None = None) -> TritonBatch:
        """The batch of the `chosen` rows, of all by default."""
        rows = list(range(len(self.rows))) if chosen is None else chosen
        return TritonBatch(
            cache=self.cache,
            num_decode_rows=sum(i < self.num_decode_rows for i in rows),
            query_starts=np.cumsum([0] + [self.rows[i][1] for i in rows]).astype(np.int32),
            positions=np.concatenate([np.arange(a, a + n) for a, n in (self.rows[i] for i in rows)]).astype(
                np.int32
            ),
            block_tables=self.block_tables[rows],
            device=CPU,
            split=self.split,
        )

    def attend(self, scores: Scores, chosen: list[int] | None = None) -> torch.Tensor:
        """Attention of the `chosen` rows by the kernel."""
        queries = self.queries if chosen is None else [self.queries[i] for i in chosen]
        return self.batch(chosen).attend_at_once(torch.cat(queries), self.layer, scores)

    def error(self, scores: Scores) -> float:
        """Largest difference to float64 of all rows."""
        return float((self.attend(scores).double() - self.expected(scores)).abs().max())

    def expected(self, scores: Scores) -> torch.Tensor:
        """`[T, Hq, Dv]` float64, head by head, without blocks."""
        parts = zip(self.queries, self.keys, self.values, self.rows, strict=True)
        return torch.cat([attend_in_float64(q, k, v, known, scores) for q, k, v, (known, _) in parts])
