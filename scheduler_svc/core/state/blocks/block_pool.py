"""The KV blocks of one worker: who holds them, what they contain, which goes next.

A block is held (reference count above 0), cached (count 0, its content known by a hash, in the order of last use),
fenced (copied beside the steps, nobody's until that has ended) or free (count 0, content worthless). held + cached +
fenced + free = all. Each allocation raises the block's generation, so that late news about an earlier holder's content
can be told apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.blocks.content_map import make_content_map, shards_of
from scheduler_svc.core.state.blocks.pieces import OBJECT_COST, PIECE_COST, TABLE_COST, Pieces, do_all
from signalbox.protocol.hash_chain import HASH_BYTES

Blocks = NDArray[np.int32]
NO_BLOCKS: Blocks = np.empty(0, np.int32)
FRESH = 0
"""Stamp of all blocks that were never used."""
OUT = -1
"""Stamp of a block that waits in no ring."""
WIDEST_SPAN = 1 << 16
"""Entries that are looked at together, where many are dead: what they take fits a processor's cache."""

HASH_DTYPE = np.dtype(f"V{HASH_BYTES}")
"""One hash as an opaque element; numpy's S16 would strip trailing zero bytes."""
Hashes = NDArray[np.void]
FREED_SHARDS = 4
"""At a time: in a pool of 4,000,000 blocks some 60,000 names, which take 10 to 20 ms."""


class BlockRing:
    """A queue of (block, stamp). An entry whose stamp is no longer the block's own is dead and skipped when met, so
    that a block leaves the middle of the queue by forgetting its stamp."""

    def __init__(self, capacity: int) -> None:
        self._blocks = np.zeros(
            2 * capacity + 1, np.int32
        )  # of zeros only what is written takes memory and time
        self._stamps = np.zeros(2 * capacity + 1, np.int64)
        self._head = 0
        self._tail = 0
        self.num_live = 0

    def fill(self, count: int) -> None:
        """Puts `count` blocks, in order, all of them FRESH, into a ring that was never used."""
        self._tail = self.num_live = count
        self._blocks[:count] = np.arange(count, dtype=np.int32)

    def push(self, blocks: Blocks, stamps: NDArray[np.int64], own: NDArray[np.int64]) -> None:
        """Appends `blocks`; `own` is the pool's stamp per block, already set to `stamps` for them."""
        count = len(blocks)
        if self._tail + count > len(self._blocks):
            self._compact(own)
        self._blocks[self._tail : self._tail + count] = blocks
        self._stamps[self._tail : self._tail + count] = stamps
        self._tail += count
        self.num_live += count

    def pop(self, count: int, own: NDArray[np.int64]) -> Blocks:
        """Takes the `count` oldest live blocks. The caller has checked `num_live`."""
        taken: list[Blocks] = []
        self.num_live -= count
        span = count
        while count:
            head, end = self._head, min(self._head + span, self._tail)
            assert head < end, "ring holds fewer live blocks than it counts"
            blocks = self._blocks[head:end]
            live = own[blocks] == self._stamps[head:end]
            if span > count and np.count_nonzero(live) > count:
                end = head + int(np.flatnonzero(live)[count - 1]) + 1
                blocks, live = blocks[: end - head], live[: end - head]
            blocks = blocks.copy() if np.count_nonzero(live) == len(live) else blocks[live]
            self._head = end
            count -= len(blocks)
            span = max(count, min(2 * span, WIDEST_SPAN))  # there may be millions of dead ones
            taken.append(blocks)
        return taken[0] if len(taken) == 1 else np.concatenate(taken) if taken else np.empty(0, np.int32)

    def peek(self, count: int, own: NDArray[np.int64]) -> Blocks:
        """The `count` oldest live blocks, or all if there are fewer."""
        span = count
        while True:
            window = slice(self._head, min(self._head + span, self._tail))
            blocks = self._blocks[window]
            live: Blocks = blocks[own[blocks] == self._stamps[window]][:count]
            if len(live) == count or window.stop == self._tail:
                return live
            span *= 2

    def live_pieces(self, own: NDArray[np.int64]) -> Iterator[Blocks]:
        """All live blocks, oldest first, from WIDEST_SPAN entries at a time."""
        for first in range(self._head, self._tail, WIDEST_SPAN):
            blocks = self._blocks[first : min(first + WIDEST_SPAN, self._tail)]
            live: Blocks = blocks[own[blocks] == self._stamps[first : first + len(blocks)]]
            yield live

    def _compact(self, own: NDArray[np.int64]) -> None:
        """Moves live entries to the beginning. Piece by piece: new memory for all of them costs more than the rest."""
        end = 0
        for first in range(self._head, self._tail, WIDEST_SPAN):
            blocks = self._blocks[first : min(first + WIDEST_SPAN, self._tail)]
            stamps = self._stamps[first : first + len(blocks)]
            live = own[blocks] == stamps
            blocks, stamps = blocks[live], stamps[live]
            self._blocks[end : end + len(blocks)] = blocks
            self._stamps[end : end + len(stamps)] = stamps
            end += len(blocks)
        self._head, self._tail = 0, end


class BlockPool:
    """All blocks of one worker, with the prefix cache's map from content hash to block."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.ref_counts = np.zeros(num_blocks, np.int32)
        """Number of block tables that a block stands in."""
        self.generations = np.zeros(num_blocks, np.uint32)
        self._stamps = np.zeros(num_blocks, np.int64)
        """Stamp of the block's live ring entry; OUT while it has none."""
        self._next_stamp = FRESH + 1
        self._fenced = np.zeros(num_blocks, np.bool_)
        self.num_fenced = 0
        """Blocks that are copied beside the steps."""
        self._free = BlockRing(num_blocks)
        self._cached = BlockRing(num_blocks)
        self._block_of = make_content_map(num_blocks)
        self._retired: list[dict[bytes, int]] = []
        """Names of content that is gone."""
        self._hash_of = np.zeros(num_blocks, HASH_DTYPE)
        self._hashed = np.zeros(num_blocks, np.bool_)
        """The block's content is known; its hash stands in `_hash_of` and leads back to it in `_block_of`."""
        self.evicted: list[tuple[int, bytes]] | None = None
        """Every (block, content) that lost its place and is worth saving in a host tier; None: there is no tier."""
        self._free.fill(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks without holder and without content."""
        return self._free.num_live

    @property
    def num_cached(self) -> int:
        """Blocks without holder whose content can still be hit."""
        return self._cached.num_live

    @property
    def num_available(self) -> int:
        """Blocks that `take` could give."""
        return self._free.num_live + self._cached.num_live

    @property
    def has_content(self) -> NDArray[np.bool_]:
        """Per block, whether its content can be hit; not to be written by others."""
        return self._hashed

    def take(self, count: int) -> Blocks:
        """Allocates `count` blocks: free ones first, then the cached ones unused for longest, which lose their content.

        The caller has checked `num_available`.
        """
        from_free = min(count, self._free.num_live)
        blocks = self._allocate(from_free, count - from_free)
        self.ref_counts[blocks] = 1
        return blocks

    def fence(self, num_free: int, num_cached: int) -> Blocks:
        """Allocates so many free blocks, and behind them so many of the cached ones unused for longest, to what runs
        beside the steps. The caller has checked that there are that many."""
        blocks = self._allocate(num_free, num_cached)
        self._fenced[blocks] = True
        self.num_fenced += len(blocks)
        return blocks

    def unfence(self, blocks: Blocks) -> None:
        """What ran beside the steps has ended: `blocks` are free."""
        self._fenced[blocks] = False
        self.num_fenced -= len(blocks)
        self._enqueue(self._free, blocks)

    def take_evicted(self) -> list[tuple[int, bytes]]:
        """The blocks that have lost their place since the last call, and their content, if there is a host tier."""
        if not self.evicted:
            return []
        evicted, self.evicted = self.evicted, []
        return evicted

    def oldest(self, count: int) -> list[bytes]:
        """Contents, as far as a host tier would save them, of the cached blocks that would be given away first."""
        blocks = self._next_cached(count)[self._num_worthless(count) :]
        contents: list[bytes] = self._hash_of[blocks].tolist()
        return contents

    def next_blocks(self, count: int) -> Blocks:
        """The blocks that `take` would give, or all that it could."""
        free = self._free.peek(count, self._stamps)
        if len(free) == count:
            return free.copy()
        return np.concatenate((free, self._next_cached(count - len(free))))

    def share(self, blocks: Blocks) -> None:
        """Adds a holder to blocks that were found, whose request goes on from them."""
        self.hold(blocks)

    def hold(self, blocks: Blocks) -> None:
        """Adds a holder to blocks whose content is known."""
        idle = blocks[self.ref_counts[blocks] == 0]
        self._stamps[idle] = OUT
        self._leave_cached(idle)
        self.ref_counts[blocks] += 1

    def vacate(self) -> None:
        """Nobody holds a block any more: what is held is to be claimed anew."""
        held = np.flatnonzero(self.ref_counts).astype(np.int32)
        self.ref_counts[:] = 0
        hashed = self._hashed[held]
        self._enqueue(self._free, held[~hashed])
        self._enqueue(self._cached, held[hashed])

    def claim(self, blocks: Blocks) -> None:
        """Adds a holder to blocks that a worker says are held, each as often as it stands there, in a pool that is
        being rebuilt. What is known of their content stays known."""
        blocks, counts = np.unique(blocks, return_counts=True)
        idle = blocks[self.ref_counts[blocks] == 0]
        cached = idle[self._hashed[idle]]
        self._stamps[idle] = OUT
        self._leave_cached(cached)
        self._free.num_live -= len(idle) - len(cached)
        self.generations[idle] += 1
        self.ref_counts[blocks] += counts.astype(np.int32)

    def release(self, blocks: Blocks) -> None:
        """Removes one holder of each of `blocks` (a block table in order). Later blocks are evicted first: a prefix is
        worth more than its continuation."""
        self.ref_counts[blocks] -= 1
        idle = blocks[self.ref_counts[blocks] == 0][::-1]
        hashed = self._hashed[idle]
        self._enqueue(self._free, idle[~hashed])
        self._enqueue(self._cached, idle[hashed])

    def publish(self, blocks: Blocks, hashes: Hashes) -> None:
        """Makes the content of `blocks` findable. Content that another block already has is left with that one."""
        known = self._hashed[blocks]
        if np.count_nonzero(known):
            blocks, hashes = blocks[~known], hashes[~known]
        # `map` over bound methods keeps the loop over dictionary entries out of the interpreter.
        owners = list(map(self._block_of.setdefault, hashes.tolist(), blocks.tolist()))
        new = blocks == np.array(owners, np.int32)
        if np.count_nonzero(new) < len(new):
            blocks, hashes = blocks[new], hashes[new]
        self._hash_of[blocks] = hashes
        self._hashed[blocks] = True
        idle = blocks[self._stamps[blocks] != OUT]
        if len(idle):
            self._free.num_live -= len(idle)
            self._enqueue(self._cached, idle)

    def restate(self, blocks: Blocks, hashes: Hashes) -> None:
        """The content of `blocks`, whatever was known of it."""
        self.forget(blocks[self._hashed[blocks] & (self._hash_of[blocks] != hashes)])
        self.publish(blocks, hashes)

    def forget(self, blocks: Blocks) -> None:
        """What was known of the content of `blocks` is wrong. Held blocks stay with their holders."""
        blocks = np.unique(blocks[self._hashed[blocks]]).astype(np.int32)
        idle = blocks[self.ref_counts[blocks] == 0]
        self._forget(blocks)
        self._leave_cached(idle)
        self._enqueue(self._free, idle)

    def lookup(self, hashes: Hashes) -> Blocks:
        """The blocks of the longest known prefix of `hashes`."""
        if (
            not len(hashes) or hashes[0].tobytes() not in self._block_of
        ):  # what is not cached at all is found out first
            return NO_BLOCKS
        found = list(map(self._block_of.get, hashes.tolist()))
        if None in found:
            del found[found.index(None) :]
        return np.array(found, np.int32)

    def has(self, content: bytes) -> bool:
        """A block has this content."""
        return content in self._block_of

    def find(self, hashes: Hashes) -> Blocks:
        """The block with each of these contents; -1: there is none."""
        if not len(self._block_of):
            return np.full(len(hashes), -1, np.int32)
        return np.array([self._block_of.get(content, -1) for content in hashes.tolist()], np.int32)

    def outdate(self, blocks: Blocks) -> None:
        """Late news of the content of those of `blocks` that nobody holds do not count."""
        self.generations[np.unique(blocks[self.ref_counts[blocks] == 0])] += 1

    def contents(self, blocks: Blocks) -> Hashes:
        """What is known of `blocks`, which have content, or were said to have before."""
        found: Hashes = self._hash_of[blocks]
        return found

    def owners(self, hashes: Hashes) -> Blocks:
        """The blocks that have any of these contents."""
        found = map(self._block_of.get, hashes.tolist())
        return np.array([block for block in found if block is not None], np.int32)

    def prefix_length(self, hashes: bytes) -> int:
        """How many blocks of a hash chain are known, found by bisection: what follows a missing block was evicted
        before it, so it is missing too, but for rare cases that only cost a worse guess."""
        low, high = 0, len(hashes) // HASH_BYTES
        while low < high:
            middle = (low + high) // 2
            if hashes[middle * HASH_BYTES : (middle + 1) * HASH_BYTES] in self._block_of:
                low = middle + 1
            else:
                high = middle
        return low

    def num_idle(self, blocks: Blocks) -> int:
        """How many of `blocks` have no holder: sharing these makes them unavailable."""
        return int(np.count_nonzero(self.ref_counts[blocks] == 0))

    def reset_cache(self) -> int:
        """Forgets all content; returns how many blocks had some. Held blocks stay with their holders."""
        num_hashed = len(self._block_of)
        idle = self._idle_cached()
        self._hashed[:] = False
        self.retire()
        self._leave_cached(idle)
        self._enqueue(self._free, idle)
        return num_hashed

    def retire(self) -> None:
        """The pool is gone, or all content is: what names it is freed by `free_some`."""
        self._retired += filter(None, shards_of(self._block_of))
        self._block_of = make_content_map(self.num_blocks)

    def free_some(self) -> int:
        """Frees some of the names that `retire` has left; returns how many. 0: nothing was left."""
        num_freed = sum(map(len, self._retired[-FREED_SHARDS:]))
        del self._retired[-FREED_SHARDS:]
        return num_freed

    # -- checks --

    @property
    def version(self) -> tuple[int, ...]:
        """Another one when blocks were allocated, released or published: what was checked in part before is checked
        anew then."""
        return (
            self._next_stamp,
            self._free.num_live,
            self.num_cached,
            len(self._block_of),
            self.num_fenced,
        )

    def check_integrity(self, tables: list[Blocks]) -> None:
        """Asserts all invariants; `tables` are the block tables of all requests that hold blocks."""
        do_all(self.check_pieces(tables, Pieces()))

    def check_pieces(self, tables: list[Blocks], pieces: Pieces) -> Iterator[None]:
        """As `check_integrity`, piece by piece: the caller sees to it that `version` stays as it is."""
        all_held = np.concatenate(tables) if tables else NO_BLOCKS
        counts = np.bincount(all_held, minlength=self.num_blocks)
        assert np.array_equal(counts, self.ref_counts), "reference counts differ from the tables"
        del counts
        for table in tables:
            assert len(np.unique(table)) == len(table), "a block stands twice in one table"
            if pieces.is_full(TABLE_COST + len(table)):
                yield
        waits = np.zeros(self.num_blocks, np.bool_)
        yield from self._check_waiting(self._free.live_pieces(self._stamps), self.num_free, waits, pieces)
        yield from self._check_waiting(self._cached_pieces(), self.num_cached, waits, pieces, is_cached=True)
        yield from self._check_places(waits, pieces)
        yield from self._check_contents(pieces)

    def _check_waiting(
        self,
        found: Iterator[Blocks],
        count: int,
        waits: NDArray[np.bool_],
        pieces: Pieces,
        *,
        is_cached: bool = False,
    ) -> Iterator[None]:
        """The blocks of a ring, marked in `waits`, are as many as it counts, and have content or have none."""
        for blocks in found:
            count -= len(blocks)
            assert not waits[blocks].any(), "a block is counted twice"
            waits[blocks] = True
            assert (self._hashed[blocks] == is_cached).all(), "a block waits in the wrong ring"
            if pieces.is_full(WIDEST_SPAN):
                yield
        assert count == 0, "rings miscount"

    def _check_places(self, waits: NDArray[np.bool_], pieces: Pieces) -> Iterator[None]:
        """Each block is held, fenced, or in a ring. One that stands twice in a ring is lacking elsewhere."""
        num_waiting = num_fenced = num_hashed = 0
        for first in range(0, self.num_blocks, WIDEST_SPAN):
            part = slice(first, first + WIDEST_SPAN)
            held, fenced, hashed = self.ref_counts[part] > 0, self._fenced[part], self._hashed[part]
            places = held.astype(np.int8) + fenced + waits[part]
            assert (places == 1).all(), "a block is lost or counted twice"
            assert not (fenced & hashed).any(), "a fenced block can be hit"
            num_waiting += int(np.count_nonzero(waits[part]))
            num_fenced += int(np.count_nonzero(fenced))
            num_hashed += int(np.count_nonzero(hashed))
            if pieces.is_full(WIDEST_SPAN):
                yield
        assert num_waiting == self.num_available, "a block is counted twice"
        assert num_fenced == self.num_fenced, "fenced blocks are miscounted"
        assert num_hashed == len(self._block_of), "hash map and blocks differ"

    def _check_contents(self, pieces: Pieces) -> Iterator[None]:
        entries = iter(self._block_of.items())
        while piece := list(islice(entries, PIECE_COST // OBJECT_COST)):
            blocks = np.fromiter((block for _, block in piece), np.int32, len(piece))
            contents = b"".join([content for content, _ in piece])
            assert self._hash_of[blocks].tobytes() == contents, "hash map and blocks differ"
            assert self._hashed[blocks].all(), "hash map and blocks differ"
            if pieces.is_full(OBJECT_COST * len(piece)):
                yield

    def _allocate(self, num_free: int, num_cached: int) -> Blocks:
        blocks = self._free.pop(num_free, self._stamps) if num_free else NO_BLOCKS
        if num_cached:
            evicted, num_worthless = self._pop_cached(num_cached)
            if self.evicted is not None:
                saved = evicted[num_worthless:]
                self.evicted += zip(saved.tolist(), self._hash_of[saved].tolist(), strict=True)
            self._forget(evicted)
            blocks = np.concatenate((blocks, evicted)) if num_free else evicted
        self._stamps[blocks] = OUT
        self.generations[blocks] += 1
        return blocks

    # -- the order in which cached blocks go --

    def _next_cached(self, count: int) -> Blocks:
        """So many cached blocks that would be given away first, or all."""
        return self._cached.peek(count, self._stamps)

    def _num_worthless(self, count: int) -> int:
        """How many of so many cached blocks, the first to be given away, hold nothing that is worth a place in the host
        tier."""
        return 0

    def _pop_cached(self, count: int) -> tuple[Blocks, int]:
        """Takes so many cached blocks; returns them, and how many of them, the first ones, are worthless."""
        return self._cached.pop(count, self._stamps), 0

    def _leave_cached(self, blocks: Blocks) -> None:
        """Cached blocks, whose stamps are not what they were, are counted as such no more."""
        self._cached.num_live -= len(blocks)

    def _cached_pieces(self) -> Iterator[Blocks]:
        """All cached blocks, in order, some at a time."""
        return self._cached.live_pieces(self._stamps)

    def _idle_cached(self) -> Blocks:
        """All cached blocks, in order."""
        return np.concatenate((NO_BLOCKS, *self._cached_pieces()))

    def _enqueue(self, ring: BlockRing, blocks: Blocks) -> None:
        if not len(blocks):
            return
        stamps = np.arange(self._next_stamp, self._next_stamp + len(blocks))
        self._next_stamp += len(blocks)
        self._stamps[blocks] = stamps
        ring.push(blocks, stamps, self._stamps)

    def _forget(self, blocks: Blocks) -> None:
        self._hashed[blocks] = False
        deque(map(self._block_of.pop, self._hash_of[blocks].tolist()), maxlen=0)
