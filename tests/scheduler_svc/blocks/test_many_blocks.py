"""Pools of so many blocks that nothing is done to all of them at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from scheduler_svc.core.scheduler import FREED_NAMES, Scheduler
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, BlockPool, BlockRing, Hashes
from scheduler_svc.core.state.blocks.content_map import SHARD_BLOCKS, ShardedMap, make_content_map, shards_of
from scheduler_svc.core.state.blocks.pieces import Pieces
from scheduler_svc.core.state.blocks.window_pool import WindowPool
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.idle_check import IdleCheck
from tests.loop_watch.watch import LIMIT_S
from tests.scheduler_svc.harness import WORKER, make_info, make_request, make_scheduler, run_step

MANY = SHARD_BLOCKS + 5
MILLIONS = 4_000_000


def keys(first: int, count: int) -> Hashes:
    """Contents, as hashes are: their first bytes differ."""
    numbers = range(first, first + count)
    return np.frombuffer(
        b"".join(bytes([number % 251]) + number.to_bytes(15, "big") for number in numbers), HASH_DTYPE
    )


def fill(pool: BlockPool, count: int) -> None:
    """Leaves `count` blocks cached."""
    blocks = pool.take(count)
    pool.publish(blocks, keys(0, count))
    pool.release(blocks)


def longest_s(calls: Iterator[Callable[[], object]]) -> float:
    """Processor time of the longest of these calls, each of which would be a callback."""
    took = []
    for call in calls:
        began = time.thread_time()
        call()
        took.append(time.thread_time() - began)
    return max(took)


def test_a_map_in_parts_is_as_a_dictionary() -> None:
    contents = [key.tobytes() for key in keys(0, 2000)]
    whole, parts = make_content_map(SHARD_BLOCKS), make_content_map(MANY)
    assert isinstance(whole, dict) and isinstance(parts, ShardedMap)
    for block, content in enumerate(contents):
        assert parts.setdefault(content, block) == whole.setdefault(content, block) == block
        assert parts.setdefault(content, -1) == block
    for content in contents[::3]:
        assert parts.pop(content) == whole.pop(content)
    assert dict(parts.items()) == whole and len(parts) == len(whole) and set(parts) == set(whole)
    assert [parts.get(content) for content in contents] == [whole.get(content) for content in contents]
    assert [parts.get(content, -1) for content in contents[:3]] == [-1, 1, 2]
    assert [content in parts for content in contents] == [content in whole for content in contents]
    parts_of_it = shards_of(parts)
    assert sum(map(len, parts_of_it)) == len(whole) and max(map(len, parts_of_it)) < len(whole) / 100


@pytest.mark.parametrize("make", [BlockPool, WindowPool])
def test_a_large_pool_goes_through_its_life(make: type[BlockPool]) -> None:
    """Hits, evictions, a reset, a claim: the same as a small one, whose map is one dictionary."""
    pool, size = make(MANY), 3000
    fill(pool, size)
    found = pool.lookup(keys(0, size))
    assert len(found) == size and pool.num_cached == size
    pool.share(found[:10])
    pool.take(MANY - size)
    evicted = pool.take(5)
    assert evicted.tolist() == found[:9:-1][:5].tolist(), "the end of the table is given away first"
    assert pool.reset_cache() == size - 5 and not len(pool.lookup(keys(0, 1)))
    assert pool.num_free == size - 15
    while pool.free_some():
        pass
    pool.vacate()
    pool.check_integrity([])


def test_a_tick_frees_no_more_for_many_pools_than_for_one() -> None:
    """All pools are reset at once; what names their content is freed in as many ticks as it takes."""
    scheduler = Scheduler(SchedulerConfig(), 1, 0.0)
    for number in range(4):
        info = make_info(worker_id=f"w{number}", instance=f"i{number}", num_blocks=FREED_NAMES)
        fill(scheduler.attach_worker(info, None, 0.0).pool, FREED_NAMES)
    pools = [worker.pool for worker in scheduler.workers.values()]
    assert scheduler.reset_prefix_cache() == 4 * FREED_NAMES
    left = []
    for _ in range(6):
        left.append(sum(len(shard) for pool in pools for shard in pool._retired))
        scheduler.tick(0.0)
    assert left == [number * FREED_NAMES for number in (4, 3, 2, 1, 0, 0)]
    assert not scheduler._gone


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda pool: pool._hashed.__setitem__(MANY - 1, True), "wrong ring"),
        (lambda pool: pool._stamps.__setitem__(MANY - 2, 77), "miscount"),
        (lambda pool: pool._hash_of.__setitem__(2, pool._hash_of[1]), "hash map and blocks differ"),
        (lambda pool: pool._fenced.__setitem__(MANY - 1, True), "lost or counted twice"),
        (lambda pool: pool.ref_counts.__setitem__(MANY - 3, 1), "reference counts differ"),
    ],
)
def test_a_check_in_pieces_sees_what_is_wrong(spoil: Callable[[BlockPool], None], words: str) -> None:
    pool = BlockPool(MANY)
    fill(pool, 3000)
    assert sum(1 for _ in pool.check_pieces([], Pieces())) > 0, "it is one piece"
    pool.check_integrity([])
    spoil(pool)
    with pytest.raises(AssertionError, match=words):
        pool.check_integrity([])


def test_a_check_goes_on_with_each_look_and_begins_anew_after_a_change() -> None:
    """J11: what happens to the worker between two pieces is no violation."""
    scheduler = make_scheduler(integrity_check_s=1.0, num_blocks=4 * SHARD_BLOCKS)
    check, worker = IdleCheck(scheduler, lambda: 0.0), scheduler.workers[WORKER]
    worker.pool._hashed[-1] = True
    assert check.look(2.0) is None, "found by the first piece"
    scheduler.submit(make_request("a", 6), 0.0)
    run_step(scheduler)
    assert check.look(2.25) is None and not check.counts, "a step was made meanwhile"
    scheduler.cancel(make_request("a", 6).key, make_request("a", 6).attempt)
    while worker.records or worker.has_own_work:
        run_step(scheduler)
    looks = (check.look(4.0 + number / 4) for number in range(20))
    assert next(filter(None, looks)) == WORKER and check.counts == {WORKER: 1}


def test_dead_entries_are_passed_over_together() -> None:
    """A million of them one by one are a second."""
    ring, own = BlockRing(1 << 20), np.zeros(1 << 20, np.int64)
    ring.fill(1 << 20)
    own[: (1 << 20) - 3] = -1
    ring.num_live = 3
    assert longest_s(iter([lambda: ring.pop(1, own)])) < LIMIT_S
    assert ring.pop(2, own).tolist() == [(1 << 20) - 2, (1 << 20) - 1]


def longest_of_a_life_s() -> float:
    """A pool is made, checked, emptied and freed with 300,000 contents, of which a part stands for the rest."""
    pools: list[BlockPool] = []
    made_s = longest_s(iter([lambda: pools.append(BlockPool(MILLIONS))]))
    pool = pools[0]
    fill(pool, 300_000)
    pieces = pool.check_pieces([], Pieces())
    looks_s = longest_s(itertools.repeat(lambda: next(pieces, None), 150))
    assert next(pieces, "all were done") == "all were done"
    reset_s = longest_s(iter([pool.reset_cache]))
    freed_s = longest_s(itertools.repeat(pool.free_some, 70))
    assert not pool.free_some()
    return max(made_s, looks_s, reset_s, freed_s)


def test_nothing_is_done_to_millions_of_blocks_at_once() -> None:
    """In one of three tries: what else runs on the core, and new pages of memory, count for a callback, too."""
    assert any(longest_of_a_life_s() < LIMIT_S for _ in range(3))
