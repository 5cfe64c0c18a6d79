"""What is read here by other workers: each export with all that can be read of it, and the streams that read it."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial

import numpy as np

from signalbox.errors import (
    InvalidRequestError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
)
from signalbox.links.versions import check_versions
from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.names import WorkerName
from signalbox.v1 import generation_pb2, shared_pb2, transfer_pb2, worker_pb2
from worker_svc.core.handoff.exports import Export, Stretch, Tail
from worker_svc.transfer.channels.block_server import BlockServer
from worker_svc.transfer.channels.registrations import new_token
from worker_svc.transfer.control.beats import Hearing, with_beats
from worker_svc.transfer.control.feed import Feed, FeedStream, Responses
from worker_svc.transfer.control.mover import Mover
from worker_svc.transfer.control.news import (
    CacheExportBegun,
    CacheExportOver,
    ExportBegun,
    ExportGrew,
    ExportKept,
    ExportOver,
    ExportRecalled,
    SourceNews,
)
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)
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


FeedName = tuple[bool, int]
"""Whether it is of the cache, and its number."""


class TransferSource:
    """The exports of a worker. The event loop owns it."""

    def __init__(
        self,
        name: WorkerName,
        mover: Mover,
        unread: Unread,
        post: Callable[[ExportKept], None],
        server: BlockServer | None = None,
    ) -> None:
        """name: of this worker. post: brings what became of exports to the step thread. server: the channels that are
        offered; None: blocks travel in messages."""
        self._name, self._mover, self._unread, self._server = name, mover, unread, server
        self._post = post
        self._feeds: dict[FeedName, Feed] = {}
        self._waiting: dict[FeedName, list[asyncio.Event]] = {}

    def take(self, news: SourceNews) -> None:
        """Takes what the step thread says."""
        if isinstance(news, ExportBegun):
            export = news.export
            feed = Feed(export.key, export.target, len(export.said), news.gate, export)
            self._begin((False, export.transfer), feed)
        elif isinstance(news, CacheExportBegun):
            order = news.order
            stretches = [
                Stretch(group, 0, np.array([e.block for e in order.blocks if e.group == group], np.int32))
                for group in range(news.num_groups)
            ]
            feed = Feed(order.key, order.target, news.num_groups, news.gate, None, stretches, is_whole=True)
            self._begin((True, order.number), feed)
        elif isinstance(news, CacheExportOver):
            over = self._feeds.pop((True, news.order.number), None)
            if over is not None:
                over.end("it is over")
        else:
            self._follow(news)

    def _begin(self, name: FeedName, feed: Feed) -> None:
        self._feeds[name] = feed
        for event in self._waiting.pop(name, []):
            event.set()

    def _follow(self, news: ExportGrew | ExportOver | ExportRecalled) -> None:
        name = (False, news.export.transfer)
        feed = self._feeds.get(name)
        if feed is None or feed.export is not news.export:
            return
        if isinstance(news, ExportGrew):
            feed.stretches += news.stretches
            feed.is_whole = news.is_frozen
            feed.changed.set()
        elif isinstance(news, ExportRecalled):
            if not feed.has_tail:
                feed.end("its source has no scheduler, and goes on with it")
                self._post(ExportKept(news.export))
        else:
            del self._feeds[name]
            feed.end(news.reason)

    async def pull(
        self, hello: transfer_pb2.PullHello, requests: AsyncIterator[transfer_pb2.PullRequest]
    ) -> Responses:
        """What a target is told that has said hello; `requests` are the others of its stream. Raises SignalboxError
        ahead of everything else."""
        check_versions(hello.protocol, f"worker {hello.target.worker_id[:64]!r}", "this worker")
        if not hello.beats:
            async for part in self._pull(hello, requests, Hearing()):
                yield part
            return
        hearing = Hearing()
        try:
            async with aclosing(with_beats(self._pull(hello, requests, hearing), hearing)) as parts:
                async for part in parts:
                    yield part
        except TransferError as error:
            yield _error(str(error), error.fault)

    async def _pull(
        self,
        hello: transfer_pb2.PullHello,
        requests: AsyncIterator[transfer_pb2.PullRequest],
        hearing: Hearing,
    ) -> AsyncGenerator[transfer_pb2.PullResponse, None]:
        """As `pull`, without heartbeats. hearing: of the target."""
        feed = await self._find(hello)
        feed.is_read = True
        stream, token = FeedStream(feed, self._mover, hello.num_found, hearing), new_token()
        if self._server is not None:
            self._server.register(token, stream.may_read)
            feed.gate.on_close(partial(self._server.withdraw, token))
        if hello.beats:
            hearing.expect_beats()
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

    async def _told(self, feed: Feed, stream: FeedStream, token: bytes) -> Responses:
        """From head to tail, or to what ends it."""
        export = feed.export
        try:
            head = self._head(export)
            if self._server is not None:
                head.offer.CopyFrom(self._server.offer(token))
            yield transfer_pb2.PullResponse(head=head)
            async for part in stream.blocks():
                yield part
            if export is None:
                await stream.all_read()
                yield transfer_pb2.PullResponse(tail=transfer_pb2.PullTail())
                return
            assert export.tail is not None
            async for part in stream.state(export.slot, export.tail):
                yield part
            if feed.over:
                raise TransferError(feed.over, ReadFault.WITHDRAWN)
            tail = self._tail(export, stream.num_state_bytes)
            feed.has_tail = True
            yield transfer_pb2.PullResponse(tail=tail)
        except TransferError as error:
            yield _error(feed.over, ReadFault.WITHDRAWN) if feed.over else _error(str(error), error.fault)

    async def _find(self, hello: transfer_pb2.PullHello) -> Feed:
        """The export that a target asks for. The key is compared in a time that does not tell how much was right."""
        name = (hello.is_export, hello.transfer)
        if name not in self._feeds:
            await self._wait(name)
        feed = self._feeds.get(name)
        if feed is None:
            raise UnavailableError("nothing is handed over under that number")
        target = WorkerName(hello.target.worker_id, hello.target.worker_instance)
        if not hmac.compare_digest(feed.key, hello.key) or target != feed.target:
            raise PermissionDeniedError("the request is handed over to another worker, or under another key")
        if feed.is_read:
            raise InvalidRequestError("the request is read already")
        return feed

    async def _wait(self, name: FeedName) -> None:
        """Waits for an export that our scheduler has told its target of ahead of us."""
        if sum(map(len, self._waiting.values())) >= MOST_WAITING:
            raise ResourceExhaustedError("too many wait for requests that nobody has spoken of")
        event = asyncio.Event()
        self._waiting.setdefault(name, []).append(event)
        try:
            async with asyncio.timeout(WAIT_S):
                await event.wait()
        except TimeoutError:
            raise UnavailableError("nothing is handed over under that number") from None
        finally:
            waiting = self._waiting.get(name, [])
            if event in waiting:
                waiting.remove(event)
                if not waiting:
                    del self._waiting[name]

    def _head(self, export: Export | None) -> transfer_pb2.PullHead:
        source = shared_pb2.WorkerRef(worker_id=self._name.worker_id, worker_instance=self._name.instance)
        if export is None:
            return transfer_pb2.PullHead(source=source)
        return transfer_pb2.PullHead(
            source=source,
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
            raise TransferError("too much of its output is unread", ReadFault.REQUEST)
        return message


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


def _error(message: str, fault: ReadFault) -> transfer_pb2.PullResponse:
    error = generation_pb2.Error(code="UnavailableError", message=message)
    return transfer_pb2.PullResponse(error=error, fault=fault)  # type: ignore[arg-type]
