"""A GGUF file in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from worker_svc.gguf.reader import GgufFile


def describe(files: Sequence[GgufFile]) -> str:
    """How the matrices of a model are stored, those with most bytes first: `GGUF Q4_K, Q6_K`."""
    sizes: Counter[str] = Counter()
    for file in files:
        for tensor in file.tensors.values():
            if len(tensor.shape) > 1:
                sizes[tensor.storage.name] += tensor.num_bytes
    return f"GGUF {', '.join(name for name, _ in sizes.most_common())}".strip()
