"""The host tier's own rules."""

from __future__ import annotations

import random

import pytest

from scheduler_svc.core.state.blocks.host_cache import HostCache


def test_the_least_recently_used_content_makes_room() -> None:
    """X1."""
    cache = HostCache(2)
    first, second = cache.store(b"a", frozenset()), cache.store(b"b", frozenset())
    assert cache.lookup([b"a"]) == [first]
    cache.touch([b"a"])
    assert cache.store(b"c", frozenset()) == second
    assert cache.lookup([b"b"]) == [] and cache.lookup([b"a", b"c", b"d"]) == [first, second]
    cache.check_integrity()


def test_what_is_about_to_be_read_is_not_overwritten() -> None:
    """X1."""
    cache = HostCache(1)
    block = cache.store(b"a", frozenset())
    assert block is not None
    assert cache.store(b"b", frozenset({block})) is None
    assert cache.lookup([b"a"]) == [block]


def test_known_content_is_not_copied_again() -> None:
    cache = HostCache(2)
    cache.store(b"a", frozenset())
    assert cache.store(b"a", frozenset()) is None
    assert cache.clear() == 1 and len(cache) == 0
    cache.check_integrity()


class PlainCache:
    """Says which contents are there, by a list in the order of last use, and which of them are copied."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.contents: list[bytes] = []
        self.copied: set[bytes] = set()

    def store(self, content: bytes, read: set[bytes]) -> bool:
        """Whether the content gets a block."""
        if content in self.contents:
            self.contents.remove(content)
            self.contents.append(content)
            return False
        if len(self.contents) == self.num_blocks:
            idle = [each for each in self.contents if each not in self.copied | read]
            if not idle:
                return False
            self.contents.remove(idle[0])
        self.contents.append(content)
        return True


@pytest.mark.parametrize("num_blocks", [0, 1, 3, 6])
def test_many_contents_are_stored_one_after_the_other(num_blocks: int) -> None:
    """X1: each makes room as if it had come alone, and what is copied or about to be read stays."""
    rng = random.Random(num_blocks)
    cache, plain = HostCache(num_blocks), PlainCache(num_blocks)
    for _ in range(400):
        contents = [bytes([rng.randrange(9)]) for _ in range(rng.randrange(4))]
        read = {content for content in plain.contents if not rng.randrange(4)}
        stored = cache.store_all(contents, set(cache.find(list(read))))
        assert [block is not None for block in stored] == [plain.store(content, read) for content in contents]
        assert all(cache.holds(content) for content in plain.contents)
        assert len(cache) == len(plain.contents)
        _copy_others(rng, cache, plain)
        cache.check_integrity(block for content in plain.copied for block in cache.lookup([content]))


def _copy_others(rng: random.Random, cache: HostCache, plain: PlainCache) -> None:
    """Ends the copies that are under way, and begins others."""
    cache.unpin(block for content in plain.copied for block in cache.lookup([content]))
    plain.copied = {content for content in plain.contents if not rng.randrange(5)}
    cache.pin(block for content in plain.copied for block in cache.lookup([content]))
