"""What a target says on the control stream, and what it expects there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import grpc

from signalbox.links import versions
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.links.readable import EOF, read_message
from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.names import WorkerName
from signalbox.v1 import shared_pb2, transfer_pb2
from worker_svc.transfer.channels.reader import BlockReader
from worker_svc.transfer.control.beats import FIRST_S, Hearing
from worker_svc.transfer.errors import TransferError

Stream = grpc.aio.StreamStreamCall[Any, Any]

LAST_ERROR_S = 0.5
"""Seconds that a target waits for the source's error after its channel has failed."""
NO_PATH = "the scheduler hears that worker: look for what is between the two hosts (a firewall, a wrong --advertise)"
"""What to do where nothing answers at a worker's address."""


def hello_of(
    name: WorkerName, number: int, key: bytes, num_found: int = 0, *, is_export: bool = False
) -> transfer_pb2.PullHello:
    """The hello of worker `name`."""
    return transfer_pb2.PullHello(
        transfer=number,
        key=key,
        target=shared_pb2.WorkerRef(worker_id=name.worker_id, worker_instance=name.instance),
        protocol=versions.ours(),
        num_found=num_found,
        is_export=is_export,
        beats=True,
    )


class Dialogue:
    """One control stream, at its target. One coroutine at a time reads and says things, in `run`."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._hearing = stream, Hearing()
        self._hearing.expect(FIRST_S)
        self._writing = asyncio.Lock()
        self._is_done = False
        """All has been said."""

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Does `work`, which reads and says things here, with heartbeats beside it. Raises what it raises, and
        TransferError when the source is silent (HO19)."""
        working, beating = asyncio.create_task(work), asyncio.create_task(self._beat())
        try:
            await asyncio.wait((working, beating), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                beating.result()
            else:
                working.result()
        finally:
            for task in (working, beating):
                task.cancel()
            await asyncio.gather(working, beating, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self._hearing.check()
            if self._writing.locked():
                continue  # something is on its way, perhaps to nobody
            with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # `work` meets that
                await self._say(transfer_pb2.PullRequest())

    async def begin(
        self, hello: transfer_pb2.PullHello, source: WorkerName, most_s: float
    ) -> transfer_pb2.PullHead:
        """Says hello, and returns the head, which may take `most_s` seconds. TransferError, and AioRpcError where the
        stream breaks."""
        await self._say(transfer_pb2.PullRequest(hello=hello))
        try:
            async with asyncio.timeout(most_s):
                first = await self.read()
        except TimeoutError:
            raise TransferError("it does not say what there is to be read") from None
        head = part_of(first, "head").head
        if (head.source.worker_id, head.source.worker_instance) != source:
            raise TransferError("another worker answers there")
        return head

    async def read(self) -> Any:
        """The next message that says something; EOF when the stream has ended. Raises AioRpcError, and ConnectionError
        for one that cannot be parsed."""
        while True:
            response = await read_message(self._stream)
            is_beat = response is not EOF and response.WhichOneof("part") is None
            self._hearing.heard(is_beat=is_beat)
            if not is_beat:
                return response

    @contextlib.asynccontextmanager
    async def channel_read(self) -> AsyncIterator[None]:
        """Surrounds a read from the source's channel. Raises TransferError: that of the read, or the source's own. A
        source that withdraws closes the channel and sends its error here, and either may come first (HO21, PB9)."""
        try:
            yield
        except TransferError as error:
            raise (await self._last_error() or error) from error

    async def _last_error(self) -> TransferError | None:
        """The error that the source sends within LAST_ERROR_S; None: it sends none."""
        with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError, ConnectionError):
            async with asyncio.timeout(LAST_ERROR_S):
                while (response := await self.read()) is not EOF:
                    if response.WhichOneof("part") == "error":
                        return error_in(response)
        return None

    async def say_how(self, channel: BlockReader | None) -> None:
        """Says how blocks are had; None: in messages."""
        by = transfer_pb2.BLOCKS_BY_CONTENT if channel is None else transfer_pb2.BLOCKS_BY_CHANNEL
        await self._say(transfer_pb2.PullRequest(blocks_by=by))

    async def acknowledge(self, num_read: int) -> None:
        """Says what was read. To a source that has said all, nothing has to be said: what it said last is to be
        read."""
        with contextlib.suppress(asyncio.InvalidStateError):
            await self._say(transfer_pb2.PullRequest(num_read=num_read))

    async def finish(self) -> None:
        """Nothing more is said."""
        async with self._writing:
            self._is_done = True
            await self._stream.done_writing()

    async def _say(self, request: transfer_pb2.PullRequest) -> None:
        async with self._writing:
            if not self._is_done:
                await self._stream.write(request)


def error_in(response: transfer_pb2.PullResponse) -> TransferError:
    """The source's error. Without a fault it is the pair's."""
    fault = ReadFault(response.fault) or ReadFault.PAIR
    return TransferError(response.error.message[:200] or "its source gives it up", fault)


def part_of(response: Any, kind: str) -> transfer_pb2.PullResponse:
    """A response that is of one kind. TransferError if it is another, or the source's error."""
    if response is EOF:
        raise TransferError("the stream ended")
    assert isinstance(response, transfer_pb2.PullResponse)
    if response.WhichOneof("part") == "error":
        raise error_in(response)
    if response.WhichOneof("part") != kind:
        raise TransferError(f"something else than its {kind} comes")
    return response
