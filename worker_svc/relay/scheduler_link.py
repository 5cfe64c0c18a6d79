"""The relay's one stream to the scheduler, with the links of all its workers in it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from signalbox.errors import InvalidRequestError, SignalboxError, UnavailableError, from_code
from signalbox.links import rpc, versions
from signalbox.links.heartbeat import HEARTBEAT_S, Silence
from signalbox.links.leader import Leader, LeaderSearch
from signalbox.links.outbox import MAX_BATCH_BYTES, Outbox, OutboxFullError, split
from signalbox.links.readable import EOF, read_message
from signalbox.v1 import generation_pb2, scheduler_pb2, scheduler_pb2_grpc
from worker_svc.relay.worker_link import WorkerLink

logger = logging.getLogger(__name__)

MAX_OUTBOX = 100_000
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 2.0
CALL_S = 1.0
Stream = grpc.aio.StreamStreamCall[Any, Any]
OnAttached = Callable[[bool], Awaitable[None]]


@dataclass(slots=True)
class Traffic:
    """One direction of all streams so far."""

    num_messages: int = 0
    num_entries: int = 0
    """Entries in these messages."""

    def count(self, num_entries: int) -> None:
        """Counts one more message."""
        self.num_messages += 1
        self.num_entries += num_entries


class SharedSchedulerLink:
    """Dials the scheduler for as long as it runs. When the stream breaks, the links of all workers end: they say hello
    again, with snapshots, when there is a new one."""

    def __init__(
        self, addresses: str, relay_id: str, window_s: float, silence_s: float, on_attached: OnAttached
    ) -> None:
        """addresses: `host:port,host:port`. `window_s`: how long an entry waits for others. silence_s: a scheduler that
        says nothing for so long is gone. `on_attached` hears whether there is a stream."""
        self._addresses, self._relay_id, self._window_s = addresses, relay_id, window_s
        self._search, self._silence_s = LeaderSearch(addresses), silence_s
        self._silence = Silence(silence_s, 0.0)
        self._on_attached = on_attached
        self._numbers = itertools.count(1)
        self._links: dict[int, WorkerLink] = {}
        self._outbox: Outbox[scheduler_pb2.RelayedRequest] | None = None
        """Set while there is a stream that the scheduler has taken."""
        self._stream: Stream | None = None
        self._leader: Leader | None = None
        """The scheduler to which the stream is, or was last."""
        self.num_attached = 0
        """How often the scheduler has taken a stream."""
        self.num_opened = 0
        """Links of workers so far."""
        self.up, self.down = Traffic(), Traffic()

    @property
    def is_attached(self) -> bool:
        """The scheduler has taken the stream."""
        return self._outbox is not None

    @property
    def num_workers(self) -> int:
        """How many workers have a link."""
        return len(self._links)

    def leader(self) -> scheduler_pb2.FindLeaderResponse:
        """Whether workers may open links here: the relay stands for the scheduler that leads, while it has a stream."""
        if self._outbox is None or self._leader is None:
            return scheduler_pb2.FindLeaderResponse()
        return scheduler_pb2.FindLeaderResponse(
            is_leader=True, scheduler_epoch=self._leader.term, scheduler_instance=self._leader.instance
        )

    async def call(self, method: str, request: bytes) -> bytes:
        """A call of the scheduler that leads, beside the stream. Raises UnavailableError without a stream, and what the
        call fails with."""
        if self._outbox is None or self._leader is None:
            raise UnavailableError(
                f"the relay {self._relay_id} has no link to the scheduler at {self._addresses}"
            )
        call = self._leader.channel.unary_unary(method, request_serializer=None, response_deserializer=None)
        answer: bytes = await call(request, timeout=CALL_S)
        return answer

    def waiting(self) -> tuple[int, int]:
        """How many messages wait for the scheduler's stream, and for those of workers."""
        up = 0 if self._outbox is None else len(self._outbox)
        return up, sum(len(link.outbox) for link in self._links.values())

    # -- for workers --

    def open(self, first: bytes) -> WorkerLink:
        """A worker's first message came. Its link gets its number now, not when the worker dialled: the scheduler takes
        new links in rising order. Raises UnavailableError when there is no stream to the scheduler."""
        if self._outbox is None:
            raise UnavailableError(
                f"the relay {self._relay_id} has no link to the scheduler at {self._addresses}"
            )
        link = WorkerLink(next(self._numbers))
        self._links[link.number] = link
        self.num_opened += 1
        self.send(link, first)
        return link

    def send(self, link: WorkerLink, message: bytes) -> None:
        """Takes a serialized AttachWorkerRequest of a worker on its way."""
        self._put(link, scheduler_pb2.RelayedRequest(link=link.number, message=message))

    def close(self, link: WorkerLink) -> None:
        """Ends a worker's link: its stream has ended."""
        self._put(link, scheduler_pb2.RelayedRequest(link=link.number, closed=scheduler_pb2.LinkClosed()))
        self._links.pop(link.number, None)

    def _put(self, link: WorkerLink, entry: scheduler_pb2.RelayedRequest) -> None:
        """What belongs to a link that the scheduler has closed, or to a stream that is gone, is of no use any more."""
        if self._outbox is None or link.number not in self._links:
            return
        try:
            self._outbox.put(entry)
        except OutboxFullError as error:
            logger.warning("leaving the scheduler's stream: %s", error)
            if self._stream is not None:
                self._stream.cancel()

    # -- the stream --

    async def run(self) -> None:
        """Dials the scheduler, and again whenever the stream ends, until cancelled."""
        retry_s = FIRST_RETRY_S
        try:
            while True:
                reason = "the scheduler ended the stream"
                try:
                    self._leader = await self._search.find()
                    await self._attach(self._leader)
                except UnavailableError as error:
                    reason = error.message
                except grpc.aio.AioRpcError as error:
                    reason = error.details() or error.code().name
                except ConnectionError as error:
                    reason = str(error)
                finally:
                    was_attached = await self._detach()
                logger.warning("no link to the scheduler at %s: %s", self._addresses, reason)
                retry_s = FIRST_RETRY_S if was_attached else retry_s
                await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
        finally:
            await self._search.close()

    async def _attach(self, leader: Leader) -> None:
        """One stream, from hello to its end."""
        stream = self._stream = scheduler_pb2_grpc.SchedulerServiceStub(leader.channel).AttachWorkers()
        outbox = Outbox[scheduler_pb2.RelayedRequest](MAX_OUTBOX)
        self._silence = Silence(self._silence_s, _now())
        try:
            await rpc.run_until_first_ends(
                self._read(stream, outbox), self._write(outbox, stream), self._watch_silence()
            )
        finally:
            stream.cancel()

    async def _watch_silence(self) -> None:
        """Waits until the scheduler has been silent for too long. It speaks to workers: while there are none, it need
        not."""
        while not self._silence.is_silent(_now()):
            await asyncio.sleep(HEARTBEAT_S)
            if self.is_attached and not self._links:
                self._silence.heard(_now())
        logger.warning("the scheduler has been silent for %.1f s", self._silence.lasts_s(_now()))

    async def _detach(self) -> bool:
        """The stream ended: so do all links. Returns whether there was one."""
        was_attached, self._outbox, self._stream = self._outbox is not None, None, None
        links, self._links = self._links, {}
        for link in links.values():
            link.end(UnavailableError(f"the relay {self._relay_id} lost its link to the scheduler"))
        if was_attached:
            await self._on_attached(False)
        return was_attached

    async def _read(self, stream: Stream, outbox: Outbox[scheduler_pb2.RelayedRequest]) -> None:
        while (message := await read_message(stream)) is not EOF:
            self._silence.heard(_now())
            if self._outbox is None:  # the scheduler has taken the hello
                self._check_versions(message.protocol)
                logger.info("attached to the scheduler at %s", self._leader.address if self._leader else "")
                self._outbox = outbox
                self.num_attached += 1
                await self._on_attached(True)
            self.down.count(len(message.entries))
            for entry in message.entries:
                self._take(entry)

    def _check_versions(self, theirs: generation_pb2.ProtocolVersions) -> None:
        """Raises ConnectionError when we do not understand each other."""
        try:
            versions.check_versions(theirs, "the scheduler", f"the relay {self._relay_id}")
        except InvalidRequestError as error:
            raise ConnectionError(error.message) from None

    def _take(self, entry: scheduler_pb2.RelayedResponse) -> None:
        link = self._links.get(entry.link)
        if link is None:
            return  # its worker went, and the scheduler hears of it
        if entry.WhichOneof("entry") == "message":
            link.deliver(entry.message)
            return
        del self._links[entry.link]
        link.end(_reason(entry.closed))

    async def _write(self, outbox: Outbox[scheduler_pb2.RelayedRequest], stream: Stream) -> None:
        """The one writer of the stream: hello, then what comes within the window travels in one message."""
        hello = scheduler_pb2.RelayHello(
            relay_id=self._relay_id, window_us=round(self._window_s * 1e6), protocol=versions.ours()
        )
        await stream.write(scheduler_pb2.AttachWorkersRequest(hello=hello))
        while True:
            entries = await outbox.take(self._window_s)
            for part in split(entries, lambda entry: len(entry.message), MAX_BATCH_BYTES):
                await stream.write(scheduler_pb2.AttachWorkersRequest(entries=part))
                self.up.count(len(part))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _reason(closed: scheduler_pb2.LinkClosed) -> SignalboxError | None:
    if not closed.HasField("error"):
        return None
    return from_code(closed.error.code, closed.error.message, closed.error.field)
