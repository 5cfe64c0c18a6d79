"""What of one slot, or of the cache, can be read by another worker, and a stream that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.names import WorkerName
from signalbox.v1 import transfer_pb2
from worker_svc.core.handoff.exports import Export, Stretch, Tail
from worker_svc.transfer.control.beats import Hearing
from worker_svc.transfer.control.gate import Gate
from worker_svc.transfer.control.mover import Mover
from worker_svc.transfer.errors import TransferError
from worker_svc.transfer.row_copies import I64

PIECE_BYTES = 4 << 20
"""Blocks travel, and gates are passed, in pieces of about so many bytes."""
MOST_UNREAD = 8
"""Pieces that may be under way."""
Responses = AsyncIterator[transfer_pb2.PullResponse]


@dataclass(eq=False)
class Feed:
    """What one other worker may read, by now."""

    key: bytes = field(repr=False)
    target: WorkerName
    num_groups: int
    gate: Gate
    export: Export | None
    """The slot that it is of; None: its blocks are the cache's (PB)."""
    stretches: list[Stretch] = field(default_factory=list)
    is_whole: bool = False
    """No blocks come any more: the slot is frozen."""
    is_read: bool = False
    has_tail: bool = False
    """The tail is on its way: the target may have all of it."""
    over: str = ""
    """Why it is over; empty: it is not."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, reason: str) -> None:
        """Nothing of it is read any more."""
        self.over = reason
        self.changed.set()


class FeedStream:
    """One stream that reads a feed."""

    def __init__(self, feed: Feed, mover: Mover, num_found: int, hearing: Hearing) -> None:
        """num_found: blocks at the head of each table that the target has. hearing: of the target."""
        self._hearing = hearing
        self._feed, self._mover, self._num_found = feed, mover, num_found
        self._num_taken = 0
        """Stretches that were taken from the feed."""
        self._rest: list[Stretch] = []
        """What was taken, and not sent."""
        self._num_sent = self._num_read = 0
        self._blocks_by: transfer_pb2.BlocksBy = transfer_pb2.BLOCKS_BY_UNSPECIFIED
        self._told: list[set[int]] = [set() for _ in range(feed.num_groups)]
        """Blocks of each group that were said to be ready."""
        self.num_state_bytes = 0
        """Bytes of the state, once it is on its way."""

    async def read(self, requests: AsyncIterator[transfer_pb2.PullRequest]) -> None:
        """Takes acknowledgements, for as long as they come."""
        async for request in requests:
            self._hearing.heard()
            self._num_read = max(self._num_read, request.num_read)
            self._blocks_by = self._blocks_by or request.blocks_by
            self._feed.changed.set()

    def may_read(self, group: int, blocks: I64) -> bool:
        """Whether blocks were said to be ready. What a window has passed since is garbage to the target, too, which
        has no use for it."""
        return set(blocks.tolist()) <= self._told[group]

    async def blocks(self) -> Responses:
        """Blocks as they can be read, to the last. TransferError when it is over."""
        feed, has_said = self._feed, False
        while True:
            feed.changed.clear()
            self._take()
            if feed.over:
                raise TransferError(feed.over, ReadFault.WITHDRAWN)
            if not self._blocks_by or self._num_sent - self._num_read >= MOST_UNREAD:
                await feed.changed.wait()
            elif self._rest or not has_said:
                yield await self._next()
                has_said = True
            elif feed.is_whole:
                return
            else:
                await feed.changed.wait()

    async def state(self, slot: int, tail: Tail) -> Responses:
        """The recurrent state of the frozen slot. TransferError when it is over."""
        state = await self._mover.read_state(self._feed.gate, slot, tail)
        self.num_state_bytes = len(state)
        for start in range(0, len(state), PIECE_BYTES):
            part = transfer_pb2.StatePart(content=state[start : start + PIECE_BYTES])
            yield transfer_pb2.PullResponse(state=part)

    async def all_read(self) -> None:
        """Returns when the target has acknowledged all that was sent, which could be read until now (PB4).
        TransferError when it is over."""
        feed = self._feed
        while not feed.over and self._num_read < self._num_sent:
            feed.changed.clear()
            await feed.changed.wait()
        if feed.over:
            raise TransferError(feed.over, ReadFault.WITHDRAWN)
        with feed.gate.passing():
            pass

    def _take(self) -> None:
        for group, first, blocks in self._feed.stretches[self._num_taken :]:
            skipped = min(max(self._num_found - first, 0), len(blocks))
            if skipped < len(blocks):
                size = max(PIECE_BYTES // max(self._mover.bytes_per_block(group), 1), 1)
                self._rest += _cut(Stretch(group, first + skipped, blocks[skipped:]), size)
        self._num_taken = len(self._feed.stretches)

    async def _next(self) -> transfer_pb2.PullResponse:
        """The next blocks; none, if there are none yet."""
        self._num_sent += 1
        message = transfer_pb2.BlocksReady(number=self._num_sent)
        if self._rest:
            stretch, content = self._rest.pop(0), b""
            if self._blocks_by == transfer_pb2.BLOCKS_BY_CONTENT:
                stretch, content = await self._mover.read(self._feed.gate, stretch)
            group, first, blocks = stretch
            self._told[group].update(blocks.tolist())
            message.group, message.first = group, first
            message.block_ids, message.content = blocks.astype("<u4").tobytes(), content
        message.num_left = sum(len(stretch.blocks) for stretch in self._rest)
        return transfer_pb2.PullResponse(blocks=message)


def _cut(stretch: Stretch, size: int) -> Iterator[Stretch]:
    """A stretch in pieces of at most so many blocks."""
    group, first, blocks = stretch
    for start in range(0, len(blocks), size):
        yield Stretch(group, first + start, blocks[start : start + size])
