"""The block pool against the plainest model of itself."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, BlockPool, Hashes

NUM_BLOCKS = 12


def keys(*numbers: int) -> Hashes:
    """Content hashes."""
    return np.frombuffer(b"".join(number.to_bytes(16, "little") for number in numbers), HASH_DTYPE)


class PoolMachine(RuleBasedStateMachine):
    """C1, I6: tables take, share, publish and release; what is findable must hold what it was published with."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.tables: list[list[int]] = []
        self.fenced: list[int] = []
        self.contents: dict[int, int] = {}
        """What each block was published with since it was last allocated."""
        self.next_content = 0

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        if count > self.pool.num_available:
            return
        before = self.pool.generations.copy()
        blocks = self.pool.take(count)
        assert (self.pool.generations[blocks] == before[blocks] + 1).all()
        for block in blocks.tolist():
            self.contents.pop(block, None)
        self.tables.append(blocks.tolist())

    @rule(num_free=st.integers(0, 3), num_cached=st.integers(0, 3))
    def fence(self, num_free: int, num_cached: int) -> None:
        if num_free > self.pool.num_free or num_cached > self.pool.num_cached:
            return
        oldest = self.pool.oldest(num_cached)
        blocks = self.pool.fence(num_free, num_cached).tolist()
        contents = [self.contents.pop(block) for block in blocks[num_free:]]
        assert keys(*contents).tolist() == oldest, "not those that are unused for longest"
        self.fenced += blocks

    @precondition(lambda self: self.fenced)
    @rule()
    def unfence(self) -> None:
        self.pool.unfence(np.array(self.fenced, np.int32))
        self.fenced = []

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pool.release(np.array(table, np.int32))

    @rule(block=st.integers(0, NUM_BLOCKS - 1), fresh=st.booleans())
    def publish(self, block: int, fresh: bool) -> None:
        if block in self.fenced:
            return  # by its generation nobody has it any more
        content = self.next_content if fresh or not self.next_content else self.next_content - 1
        self.next_content = max(self.next_content, content + 1)
        known = content in self.contents.values() or block in self.contents
        self.pool.publish(np.array([block], np.int32), keys(content))
        if not known:
            self.contents[block] = content

    @precondition(lambda self: self.contents)
    @rule(data=st.data())
    def hit(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.contents)))
        found = self.pool.lookup(keys(self.contents[block], 1 << 100))
        assert found.tolist() == [block]
        self.pool.share(found)
        self.tables.append([block])

    @rule()
    def reset(self) -> None:
        assert self.pool.reset_cache() == len(self.contents)
        self.contents.clear()

    @invariant()
    def holds(self) -> None:
        self.pool.check_integrity([np.array(table, np.int32) for table in self.tables])
        for block, content in self.contents.items():
            assert self.pool.lookup(keys(content)).tolist() == [block]


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase


def test_least_recently_used_content_goes_first_and_suffixes_before_prefixes() -> None:
    pool = BlockPool(6)
    first, second = pool.take(3), pool.take(3)
    pool.publish(np.concatenate((first, second)), keys(*range(6)))
    pool.release(second)
    pool.release(first)
    assert pool.take(4).tolist() == [*second[::-1].tolist(), int(first[2])]
    assert pool.lookup(keys(0, 1, 2)).tolist() == first[:2].tolist()
