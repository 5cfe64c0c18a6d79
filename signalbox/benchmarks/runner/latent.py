"""Attention of one layer on latents against the same on expanded keys and values, on the CPU's kernels.

    python -m signalbox.benchmarks.runner.latent --heads 128 --context 2048 --rows 4

One thread. Prints a JSON line: milliseconds of a processor for a decode step of so many rows (the fastest of
`--repeats`, in turns), the products with the absorbed projections included, and bytes per position of both.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from worker_svc.runner.attention.attention import PagedBatch, attend, native_kernels
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape, bytes_per_block
from worker_svc.runner.attention.latent import AbsorbedProjections
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cpu.latent import NativeProjections

BLOCK_SIZE = 16
NOPE_DIM, ROPE_DIM, VALUE_DIM, LATENT_DIM = 128, 64, 128, 512
"""Dimensions of DeepSeek V2, V3 and Kimi K2."""


def make_batch(shape: LayerShape, rows: int, context: int) -> PagedBatch:
    """A decode step of rows with so many positions each, over random numbers."""
    width = -(-context // BLOCK_SIZE)
    cache = KVCache(
        [shape],
        num_blocks=rows * width,
        block_size=BLOCK_SIZE,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    for stored in cache.layers[0].stored:
        stored.normal_()
    return PagedBatch(
        cache=cache,
        num_decode_rows=rows,
        query_starts=np.arange(rows + 1, dtype=np.int32),
        positions=np.full(rows, context - 1, np.int32),
        block_tables=np.arange(rows * width, dtype=np.int32).reshape(rows, width),
        device=torch.device("cpu"),
    )


def fastest_ms(calls: list[Callable[[], object]], repeats: int) -> list[float]:
    """Least time of each call by the processor's clock, in turns: what else the machine does hits all alike."""
    times = [[float("inf")] for _ in calls]
    for _ in range(repeats):
        for call, taken in zip(calls, times, strict=True):
            start = time.thread_time()
            call()
            taken.append((time.thread_time() - start) * 1e3)
    return [min(taken) for taken in times]


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("heads", 128), ("context", 2048), ("rows", 4), ("repeats", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    weight = torch.randn(options.heads * (NOPE_DIM + VALUE_DIM), LATENT_DIM).mul_(LATENT_DIM**-0.5).bfloat16()
    dims = {"kv_lora_rank": LATENT_DIM, "qk_rope_head_dim": ROPE_DIM, "qk_nope_head_dim": NOPE_DIM}
    attn = SimpleNamespace(**dims, v_head_dim=VALUE_DIM, kv_b_proj=SimpleNamespace(weight=weight))
    absorbed = AbsorbedProjections(attn)
    kernels = native_kernels()
    if kernels is not None and kernels.has_dot:
        absorbed = NativeProjections(absorbed, kernels)
    scores = Scores((NOPE_DIM + ROPE_DIM) ** -0.5)
    query = torch.randn(options.rows, options.heads, NOPE_DIM + ROPE_DIM).bfloat16()
    expanded_shape = LayerShape(options.heads, NOPE_DIM + ROPE_DIM, VALUE_DIM)
    latent, expanded = (
        make_batch(shape, options.rows, options.context) for shape in (absorbed.layer_shape, expanded_shape)
    )

    def on_latents() -> torch.Tensor:
        return absorbed.outputs(attend(absorbed.queries(query), latent.cache.layers[0], latent, scores))

    def on_expanded() -> torch.Tensor:
        return attend(query, expanded.cache.layers[0], expanded, scores)

    ours, theirs = fastest_ms([on_latents, on_expanded], options.repeats)
    sizes = [bytes_per_block([shape], 1, torch.bfloat16) for shape in (absorbed.layer_shape, expanded_shape)]
    print(
        json.dumps(
            vars(options)
            | {"latent_ms": round(ours, 3), "expanded_ms": round(theirs, 3), "ratio": round(theirs / ours, 2)}
            | {"latent_bytes": sizes[0], "expanded_bytes": sizes[1]}
        )
    )


if __name__ == "__main__":
    main()
