"""What is read here by other workers: each export with all that can be read of it, and the streams that read it."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from signalbox.errors import (
    InvalidRequestError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
)
from signalbox.links.versions import check_versions
from signalbox.v1 import generation_pb2, scheduler_pb2, transfer_pb2, worker_pb2
from worker_svc.core.handoff.exports import Export, Stretch, Tail
from worker_svc.core.handoff.orders import WorkerName
from worker_svc.transfer.block_memory import I64
from worker_svc.transfer.channels.block_server import BlockServer
from worker_svc.transfer.channels.registrations import new_token
from worker_svc.transfer.control.gate import Gate
from worker_svc.transfer.control.mover import Mover
from worker_svc.transfer.control.news import ExportBegun, ExportGrew, ExportOver
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)
PIECE_BYTES = 4 << 20
"""Blocks travel, and gates are passed, in pieces of about so many bytes."""
MOST_UNREAD = 8
"""Pieces that may be under way."""
MOST_WAITING = 64
"""Streams that wait for an export that nobody has spoken of yet."""
WAIT_S = 60.0
"""How long they wait: the step that tells of it may stand behind a long one."""
LINGER_S = 10.0
"""How long a stream is kept behind its last message, for the target to end it."""
MOST_TAIL_BYTES = 48 << 20
"""Largest tail: outputs that no frontend reads are not carried about."""
Unread = Callable[[str, int], list[worker_pb2.OutputBatch]]
"""A callable that returns what a frontend has not acknowledged of one of its attempts."""
Responses = AsyncIterator[transfer_pb2.PullResponse]


@dataclass(eq=False)
class _Feed:
    """An export, and what can be read of it by now."""

    export: Export
    gate: Gate
    stretches: list[Stretch] = field(default_factory=list)
    is_frozen: bool = False
    is_read: bool = False
    over: str = ""
    """Why it is over; empty: it is not."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class TransferSource:
    """The exports of a worker. The event loop owns it."""

    def __init__(
        self, name: WorkerName, mover: Mover, unread: Unread, server: BlockServer | None = None
    ) -> None:
        """name: of this worker. server: the channels that are offered; None: blocks travel in messages."""
        self._name, self._mover, self._unread, self._server = name, mover, unread, server
        self._feeds: dict[int, _Feed] = {}
        self._waiting: dict[int, list[asyncio.Event]] = {}

    def take(self, news: ExportBegun | ExportGrew | ExportOver) -> None:
        """Takes what the step thread says."""
        transfer = news.export.transfer
        if isinstance(news, ExportBegun):
            self._feeds[transfer] = _Feed(news.export, news.gate)
            for event in self._waiting.pop(transfer, []):
                event.set()
            return
        feed = self._feeds.get(transfer)
        if feed is None or feed.export is not news.export:
            return
        if isinstance(news, ExportGrew):
            feed.stretches += news.stretches
            feed.is_frozen = news.is_frozen
        else:
            feed.over = news.reason
            del self._feeds[transfer]
        feed.changed.set()

    async def pull(
        self, hello: transfer_pb2.PullHello, requests: AsyncIterator[transfer_pb2.PullRequest]
    ) -> Responses:
        """What a target is told that has said hello; `requests` are the others of its stream. Raises SignalboxError
        ahead of everything else."""
        check_versions(hello.protocol, f"worker {hello.target.worker_id[:64]!r}", "this worker")
        feed = await self._find(hello)
        feed.is_read = True
        stream, token = _Stream(feed, self._mover, hello.num_found), new_token()
        if self._server is not None:
            self._server.register(token, stream.may_read)
            feed.gate.on_close(partial(self._server.withdraw, token))
        reader = asyncio.create_task(stream.read(requests))
        try:
            async for part in self._told(feed, stream, token):
                yield part
            # The target writes, too: a stream that ends meanwhile would be broken to it, and its last words lost.
            await asyncio.wait((reader,), timeout=LINGER_S)
        finally:
            feed.is_read = False
            reader.cancel()
            if self._server is not None:
                await self._mover.end(partial(self._server.withdraw, token))

    async def _told(self, feed: _Feed, stream: _Stream, token: bytes) -> Responses:
        """From head to tail, or to what ends it."""
        try:
            head = self._head(feed.export)
            if self._server is not None:
                head.offer.CopyFrom(self._server.offer(token))
            yield transfer_pb2.PullResponse(head=head)
            async for part in stream.parts():
                yield part
            yield transfer_pb2.PullResponse(tail=self._tail(feed.export, stream.num_state_bytes))
        except TransferError as error:
            yield _error(feed.over or str(error))

    async def _find(self, hello: transfer_pb2.PullHello) -> _Feed:
        """The export that a target asks for. The key is compared in a time that does not tell how much was right."""
        if hello.transfer not in self._feeds:
            await self._wait(hello.transfer)
        feed = self._feeds.get(hello.transfer)
        if feed is None:
            raise UnavailableError("nothing is handed over under that number")
        target = WorkerName(hello.target.worker_id, hello.target.worker_instance)
        if not hmac.compare_digest(feed.export.key, hello.key) or target != feed.export.target:
            raise PermissionDeniedError("the request is handed over to another worker, or under another key")
        if feed.is_read:
            raise InvalidRequestError("the request is read already")
        return feed

    async def _wait(self, transfer: int) -> None:
        """Waits for an export that our scheduler has told its target of ahead of us."""
        if sum(map(len, self._waiting.values())) >= MOST_WAITING:
            raise ResourceExhaustedError("too many wait for requests that nobody has spoken of")
        event = asyncio.Event()
        self._waiting.setdefault(transfer, []).append(event)
        try:
            async with asyncio.timeout(WAIT_S):
                await event.wait()
        except TimeoutError:
            raise UnavailableError("nothing is handed over under that number") from None
        finally:
            waiting = self._waiting.get(transfer, [])
            if event in waiting:
                waiting.remove(event)
                if not waiting:
                    del self._waiting[transfer]

    def _head(self, export: Export) -> transfer_pb2.PullHead:
        return transfer_pb2.PullHead(
            source=scheduler_pb2.WorkerRef(
                worker_id=self._name.worker_id, worker_instance=self._name.instance
            ),
            payload=export.payload,
            token_ids=export.token_ids.astype("<i4").tobytes(),
            num_prompt_tokens=export.num_prompt_tokens,
        )

    def _tail(self, export: Export, num_state_bytes: int) -> transfer_pb2.PullTail:
        """The tail of a frozen export. TransferError if it is too long."""
        tail, ref = export.tail, export.ref
        assert tail is not None
        message = build_tail(tail, len(export.token_ids), self._unread(ref.frontend_instance, ref.attempt))
        message.num_state_bytes = num_state_bytes
        if message.ByteSize() > MOST_TAIL_BYTES:
            raise TransferError("too much of its output is unread")
        return message


class _Stream:
    """One stream that reads a feed."""

    def __init__(self, feed: _Feed, mover: Mover, num_found: int) -> None:
        """num_found: blocks at the head of each table that the target has."""
        self._feed, self._mover, self._num_found = feed, mover, num_found
        self._num_taken = 0
        """Stretches that were taken from the feed."""
        self._rest: list[Stretch] = []
        """What was taken, and not sent."""
        self._num_sent = self._num_read = 0
        self._blocks_by: transfer_pb2.BlocksBy = transfer_pb2.BLOCKS_BY_UNSPECIFIED
        self._told: list[set[int]] = [set() for _ in feed.export.said]
        """Blocks of each group that were said to be ready."""
        self.num_state_bytes = 0
        """Bytes of the state, once it is on its way."""

    async def read(self, requests: AsyncIterator[transfer_pb2.PullRequest]) -> None:
        """Takes acknowledgements, for as long as they come."""
        async for request in requests:
            self._num_read = max(self._num_read, request.num_read)
            self._blocks_by = self._blocks_by or request.blocks_by
            self._feed.changed.set()

    def may_read(self, group: int, blocks: I64) -> bool:
        """Whether blocks were said to be ready. What a window has passed since is garbage to the target, too, which
        has no use for it."""
        return set(blocks.tolist()) <= self._told[group]

    async def parts(self) -> Responses:
        """Blocks as they can be read, to the last of the frozen request, and its state. TransferError when it is
        over."""
        feed, has_said = self._feed, False
        while True:
            feed.changed.clear()
            self._take()
            if feed.over:
                raise TransferError(feed.over)
            if not self._blocks_by or self._num_sent - self._num_read >= MOST_UNREAD:
                await feed.changed.wait()
            elif self._rest or not has_said:
                yield await self._next()
                has_said = True
            elif feed.is_frozen:
                break
            else:
                await feed.changed.wait()
        assert feed.export.tail is not None
        state = await self._mover.read_state(feed.gate, feed.export.slot, feed.export.tail)
        self.num_state_bytes = len(state)
        for start in range(0, len(state), PIECE_BYTES):
            part = transfer_pb2.StatePart(content=state[start : start + PIECE_BYTES])
            yield transfer_pb2.PullResponse(state=part)

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


def build_tail(tail: Tail, num_known: int, unread: list[worker_pb2.OutputBatch]) -> transfer_pb2.PullTail:
    """The tail of a request as a message. num_known: tokens that the head has said."""
    return transfer_pb2.PullTail(
        token_ids=tail.token_ids[num_known:].astype("<i4").tobytes(),
        num_computed_tokens=tail.num_computed,
        num_read_positions=tail.num_read,
        sealed_hashes=b"".join(tail.sealed),
        chain_hash=tail.chain_hash,
        unread=unread,
        num_state_drafts=tail.num_state_drafts,
    )


def _error(message: str) -> transfer_pb2.PullResponse:
    return transfer_pb2.PullResponse(error=generation_pb2.Error(code="UnavailableError", message=message))
