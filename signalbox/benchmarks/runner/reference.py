"""What a served model is compared with: plain transformers `generate`, and what this machine can read and compute.

    python -m signalbox.benchmarks.runner.reference --model DIR --streams 1 32 --prompt-tokens 128 --output-tokens 128

One JSON object per line: first the machine with the sizes of the model, then transformers for each number of streams.
`signalbox bench serve --reference` runs this beside its own figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch
from torch import nn

from signalbox.benchmarks.runner.bench import add_load, copy_bandwidth, measure_transformers
from worker_svc.runner.attention.kv_cache import bytes_per_block
from worker_svc.runner.model.loading import LoadedModel, load_model

READ_BYTES = 256 << 20
GEMM_SIZE = 2048
TRIES = 5


def read_bandwidth() -> float:
    """Bytes per second that can be read from memory, the best of a few: a sum, or a copy where that is faster."""
    source = torch.ones(READ_BYTES // 4, dtype=torch.float32)
    best = copy_bandwidth()
    for _ in range(TRIES):
        started = time.perf_counter()
        source.sum()
        best = max(best, READ_BYTES / (time.perf_counter() - started))
    return best


def gemm_rate(dtype: torch.dtype) -> float:
    """Floating-point operations per second in a product of two large square matrices, the best of a few."""
    left, right = (torch.randn(GEMM_SIZE, GEMM_SIZE).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(TRIES):
        started = time.perf_counter()
        left @ right
        best = max(best, 2 * GEMM_SIZE**3 / (time.perf_counter() - started))
    return best


def count_read(module: Any) -> int:
    """Parameters that each step reads whole: all but embeddings that are only looked up."""
    used = {
        id(parameter): parameter.numel()
        for part in module.modules()
        if not isinstance(part, nn.Embedding)
        for parameter in part.parameters(recurse=False)
    }
    return sum(used.values())


def describe(model: LoadedModel) -> dict[str, Any]:
    """Machine and model as one line."""
    config = model.module.config
    experts = ("num_experts", "num_local_experts", "n_routed_experts")
    head = model.module.get_output_embeddings()
    return {
        "system": "machine",
        "dtype": str(model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "read_bytes_s": round(read_bandwidth()),
        "gemm_flop_s": round(gemm_rate(model.dtype)),
        "num_params": count_read(model.module),
        "num_head_params": 0 if head is None else head.weight.numel(),
        "param_bytes": model.dtype.itemsize,
        "kv_bytes_per_token": bytes_per_block(model.layer_shapes, 1, model.dtype),
        "is_dense": not any(getattr(config, name, None) for name in experts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_load(parser)
    parser.add_argument("--repeat", type=int, default=3, help="medians of so many runs (%(default)s)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    model = load_model(options.model, dtype=options.dtype)
    print(json.dumps(describe(model)), flush=True)
    dtype = model.dtype
    del model
    for streams in options.streams:
        runs = [
            measure_transformers(options.model, dtype, streams, options.prompt_tokens, options.output_tokens)
            for _ in range(options.repeat)
        ]
        rates = {
            name: round(statistics.median(getattr(run, name) for run in runs), 1)
            for name in ("output_tok_s", "decode_tok_s")
        }
        print(json.dumps({"system": "transformers", "streams": streams} | rates), flush=True)


if __name__ == "__main__":
    main()
