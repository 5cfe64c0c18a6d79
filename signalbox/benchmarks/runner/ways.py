"""Attention of many tokens of one request on the CPU, as a prompt's and as outputs that are computed again (rule Y2):
`python -m signalbox.benchmarks.runner.ways`. Milliseconds of one layer in bfloat16, the best of some rounds."""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from worker_svc.runner.attention.attention import PagedBatch, attend
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.attention.ways import cut_rows

BLOCK_SIZE = 16
SHAPES = ((9, 3, 64), (16, 8, 128))
"""Query heads, KV heads, dimensions of a head."""
KNOWN = (256, 1024, 4000)
"""Positions ahead of the tokens."""


def main() -> None:
    """Prints a line for each shape and context."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for shape in SHAPES:
        for known in KNOWN:
            as_prompt, again = (
                best_ms(shape, known, arguments.tokens, num_prompt, arguments.rounds)
                for num_prompt in (known + arguments.tokens, known)
            )
            print(f"heads {shape}, {known} known: as a prompt {as_prompt:.2f} ms, again {again:.2f} ms")


def best_ms(
    shape: tuple[int, int, int], known: int, num_tokens: int, num_prompt_tokens: int, rounds: int
) -> float:
    """One layer's attention of `num_tokens` behind `known` ones, of a request of so many prompt tokens."""
    num_heads, num_kv_heads, dim = shape
    num_blocks = -(-(known + num_tokens) // BLOCK_SIZE)
    cache = KVCache(
        [LayerShape(num_kv_heads, dim, dim)],
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    layer = cache.layers[0]
    layer.keys.normal_()
    layer.values.normal_()
    positions = np.arange(known, known + num_tokens, dtype=np.int32)
    cut = cut_rows(np.array([0, num_tokens], np.int32), positions, 0, np.array([num_prompt_tokens], np.int32))
    table = np.random.default_rng(0).permutation(num_blocks).astype(np.int32)
    batch = PagedBatch(
        cache=cache,
        num_decode_rows=0,
        query_starts=cut.query_starts,
        positions=positions,
        block_tables=np.repeat(table[None], len(cut.ways), 0),
        device=torch.device("cpu"),
        ways=cut.ways,
    )
    query = torch.randn(num_tokens, num_heads, dim).bfloat16()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        attend(query, layer, batch, Scores(scaling=dim**-0.5))
        times.append(time.perf_counter() - started)
    return 1e3 * min(times)


if __name__ == "__main__":
    main()
