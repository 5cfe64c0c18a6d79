"""Which part of something that is counted each rank has."""

from __future__ import annotations

from typing import NamedTuple

UNITS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Widths are divided at multiples of the largest of these that gives all ranks as much, else something: kernels and
groups of whole numbers like them large."""


class Share(NamedTuple):
    """A half-open range of what there is `total` of."""

    start: int
    end: int
    total: int

    @property
    def size(self) -> int:
        """How many it has."""
        return self.end - self.start

    @property
    def is_whole(self) -> bool:
        """It has all."""
        return self.size == self.total

    def of(self, length: int) -> slice:
        """Range of the same part of `length`, which is a multiple of the total."""
        assert length % self.total == 0, f"{length} is no multiple of {self.total}"
        each = length // self.total
        return slice(self.start * each, self.end * each)


class HeadShares(NamedTuple):
    """Heads of a rank: its query heads look at its KV heads, and at no others."""

    queries: Share
    keys: Share


def even(total: int, rank: int, size: int) -> Share:
    """The share of `rank` of `size`: as many as others', or one more or less."""
    return Share(total * rank // size, total * (rank + 1) // size, total)


def width(total: int, rank: int, size: int) -> Share | None:
    """The share of a width; None: it has not one column for each."""
    fitting = [unit for unit in UNITS if total % unit == 0 and total // unit >= size]
    unit = next((unit for unit in fitting if total // unit % size == 0), fitting[0] if fitting else None)
    if unit is None:
        return None
    share = even(total // unit, rank, size)
    return Share(share.start * unit, share.end * unit, total)


def heads(num_heads: int, num_kv_heads: int, rank: int, size: int) -> HeadShares | None:
    """The heads of `rank`: KV heads are divided, or each of them is at several ranks; None: neither can be."""
    if num_kv_heads >= size:
        keys = even(num_kv_heads, rank, size)
        each = num_heads // num_kv_heads
        return HeadShares(Share(keys.start * each, keys.end * each, num_heads), keys)
    if size % num_kv_heads or num_heads % size:
        return None
    key = rank * num_kv_heads // size
    return HeadShares(even(num_heads, rank, size), Share(key, key + 1, num_kv_heads))
