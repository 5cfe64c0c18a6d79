"""The batch sizes for which CUDA graphs exist; a step runs on the smallest that holds it."""

from __future__ import annotations

from bisect import bisect_left

LARGEST_BUCKET = 256
"""Larger decode steps run without a graph: their kernels take longer than launching them."""
SIZES = (1, 2, 4, *range(8, 128, 8), *range(128, LARGEST_BUCKET, 16))


def bucket_sizes(largest: int) -> tuple[int, ...]:
    """Ascending sizes up to `largest`, which is the last."""
    return (*(size for size in SIZES if size < largest), largest)


def bucket_for(count: int, sizes: tuple[int, ...]) -> int | None:
    """The smallest of ascending `sizes` that is at least `count`; None if all are smaller."""
    index = bisect_left(sizes, count)
    return sizes[index] if index < len(sizes) else None
