"""The host tier's own rules."""

from __future__ import annotations

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
