"""Measures what rounded weights cost a model: its perplexity on a text, and the error of single matrices.

    python -m signalbox.benchmarks.runner.perplexity --model DIR --quantization none int8 int4

The text is `pydoc_data.topics` of the standard library, the language reference of Python: English with code in it.
Windows of 512 tokens are read one by one, each without what stood before. One JSON object per line: `perplexity` is of
all tokens of a window but its first, `of_second_halves` of the last 255, which are those that llama.cpp's
llama-perplexity counts. `--write-text FILE` writes the text for that.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from tokenizers import Tokenizer

from signalbox.cli.commands.arguments import NUMBER_TYPES, number_type
from signalbox.cli.models.name import model_directory
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch, native_kernels
from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.cpu.rounded_weights import rounding
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.torch_runner import load_checked

WINDOW_TOKENS = 512
BLOCK_SIZE = 16
MATRIX_SHAPE = (1024, 1024)
DEGREES_OF_FREEDOM = 3.0
"""Degrees of freedom of the numbers with heavy tails."""


def read_text() -> str:
    """The text, which depends on the version of Python."""
    return "\n\n".join(topics[name] for name in sorted(topics))


def read_windows(model_dir: Path, num_windows: int) -> list[list[int]]:
    """The first tokens of the text."""
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    ids: list[int] = tokenizer.encode(read_text(), add_special_tokens=False).ids
    starts = range(0, min(len(ids) - WINDOW_TOKENS, num_windows * WINDOW_TOKENS), WINDOW_TOKENS)
    return [ids[start : start + WINDOW_TOKENS] for start in starts]


@dataclass
class Losses:
    """Negative log-probabilities of tokens, `[tokens]` for each window."""

    windows: list[torch.Tensor] = field(default_factory=list)

    def perplexity(self, first: int = 0) -> float:
        """e to their mean, from the token `first` of each window on, which is the one behind its first for 0."""
        return math.exp(float(torch.cat([losses[first:] for losses in self.windows]).mean()))


@torch.inference_mode()
def read_losses(model: LoadedModel, windows: list[list[int]]) -> Losses:
    """What the model makes of each token but the first of a window."""
    num_blocks = WINDOW_TOKENS // BLOCK_SIZE
    cache = KVCache(
        model.layer_shapes,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        dtype=model.dtype,
        device=model.device,
    )
    found = Losses()
    for window in windows:
        tokens = torch.tensor(window)
        batch = PagedBatch(
            cache=cache,
            num_decode_rows=0,
            query_starts=np.array([0, WINDOW_TOKENS], np.int32),
            positions=np.arange(WINDOW_TOKENS, dtype=np.int32),
            block_tables=np.arange(num_blocks, dtype=np.int32)[None],
            device=model.device,
        )
        with attention.running(batch):
            positions = torch.arange(WINDOW_TOKENS)[None]
            output = model.module(input_ids=tokens[None], position_ids=positions, use_cache=False)
        found.windows.append(F.cross_entropy(output.logits[0, :-1].float(), tokens[1:], reduction="none"))
    return found


def matrix_errors() -> Iterator[dict[str, object]]:
    """Root mean square errors of rounded random matrices, in root mean squares of these."""
    torch.manual_seed(0)
    round_matrix = rounding(native_kernels())
    matrices = {
        "gaussian": torch.randn(MATRIX_SHAPE),
        "student-t, 3 degrees of freedom": torch.distributions.StudentT(DEGREES_OF_FREEDOM).sample(
            torch.Size(MATRIX_SHAPE)
        ),
    }
    for kind, matrix in matrices.items():
        for bits in (8, 4):
            error = (round_matrix(matrix, bits).dequantise() - matrix).square().mean().sqrt()
            yield {
                "matrix": kind,
                "bits": bits,
                "relative_error": round(float(error / matrix.square().mean().sqrt()), 5),
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=model_directory, required=True)
    parser.add_argument("--dtype", default="bfloat16", type=number_type, choices=NUMBER_TYPES[1:])
    parser.add_argument("--quantization", nargs="+", default=["none", "int8", "int4"])
    parser.add_argument("--windows", type=int, default=40, help="of 512 tokens (%(default)s)")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--write-text", type=Path, help="write the text to this file, and do nothing else")
    options = parser.parse_args()
    if options.write_text is not None:
        options.write_text.write_text(read_text())
        return
    if options.threads:
        torch.set_num_threads(options.threads)
    for line in matrix_errors():
        print(json.dumps(line), flush=True)
    windows = read_windows(options.model, options.windows)
    for name in options.quantization:
        model = load_checked(options.model, options.dtype, "cpu", BLOCK_SIZE, Quantization(name))
        found: dict[str, object] = {
            "quantization": name,
            "dtype": options.dtype,
            "tokens": len(windows) * WINDOW_TOKENS,
        }
        losses = read_losses(model, windows)
        found["perplexity"] = round(losses.perplexity(), 3)
        found["of_second_halves"] = round(losses.perplexity(WINDOW_TOKENS // 2), 3)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
