"""Which block has a content: a dictionary, or several where one would grow too large."""

from __future__ import annotations

from collections.abc import Iterator

SHARD_BLOCKS = 1 << 18
"""Blocks of a pool up to which one dictionary is enough. Now and then one moves all of its entries to a larger table,
in the middle of a step: 2^18 of them in some 10 ms, 4,000,000 in half a second. To free them takes as long."""
_NUM_SHARDS = 256
"""By the first byte of a content, which is a hash: all have about as many."""


class ShardedMap:
    """As a `dict[bytes, int]`, whose keys are hashes; what moves at once is a small part of it."""

    def __init__(self) -> None:
        self._shards: list[dict[bytes, int]] = [{} for _ in range(_NUM_SHARDS)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def __contains__(self, content: object) -> bool:
        return isinstance(content, bytes) and content in self._shards[content[0]]

    def __iter__(self) -> Iterator[bytes]:
        for shard in self._shards:
            yield from shard

    def get(self, content: bytes, default: int | None = None) -> int | None:
        """As of a dict."""
        return self._shards[content[0]].get(content, default)

    def setdefault(self, content: bytes, block: int) -> int:
        """As of a dict."""
        return self._shards[content[0]].setdefault(content, block)

    def pop(self, content: bytes) -> int:
        """As of a dict."""
        return self._shards[content[0]].pop(content)

    def items(self) -> Iterator[tuple[bytes, int]]:
        """As of a dict; it must not be changed meanwhile."""
        for shard in self._shards:
            yield from shard.items()

    def take_shards(self) -> list[dict[bytes, int]]:
        """Its parts, for whoever frees them one by one. It is not to be used any more."""
        shards, self._shards = self._shards, []
        return shards


ContentMap = dict[bytes, int] | ShardedMap


def make_content_map(num_blocks: int) -> ContentMap:
    """An empty one for the contents of so many blocks."""
    return {} if num_blocks <= SHARD_BLOCKS else ShardedMap()


def shards_of(contents: ContentMap) -> list[dict[bytes, int]]:
    """The parts of one that is not used any more."""
    return contents.take_shards() if isinstance(contents, ShardedMap) else [contents]
