"""Requests on their way here: each is read from its source by a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from signalbox.errors import SignalboxError
from signalbox.links import rpc
from signalbox.links.readable import EOF
from signalbox.links.rpc_errors import error_of
from signalbox.links.tls.roles import Role
from signalbox.protocol.arrays import unpack_blocks
from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.names import WorkerName
from signalbox.v1 import transfer_pb2, transfer_pb2_grpc
from worker_svc.core.handoff.imports import Import
from worker_svc.core.step import I32
from worker_svc.transfer.channels.reader import BlockReader
from worker_svc.transfer.control.dialogue import NO_PATH, Dialogue, hello_of, part_of
from worker_svc.transfer.control.gate import Gate
from worker_svc.transfer.control.mover import Mover
from worker_svc.transfer.control.news import (
    Arrival,
    CaughtUp,
    HeadArrived,
    ImportBegun,
    ImportFailed,
    ImportGranted,
    ImportOver,
    TailArrived,
)
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)
FEW_BLOCKS = 8
"""So many blocks may be left to be read when a request is frozen: they are part of its pause."""
HEAD_S = 60.0
"""How long a source may take to say how tokens are chosen."""
MOST_STATE_BYTES = 4 << 30


@dataclass(eq=False)
class _Reading:
    """An import that is being read."""

    found: Import
    gate: Gate
    state_version: int
    tables: list[tuple[int, I32]] = field(default_factory=list)
    """Blocks that may be written, by group, from the first index on; empty: none yet."""
    granted: asyncio.Event = field(default_factory=asyncio.Event)
    written: list[set[int]] = field(default_factory=list)
    num_read: int = 0
    channel: BlockReader | None = None
    """How blocks are had; None: in messages."""
    state: bytearray = field(default_factory=bytearray)
    task: asyncio.Task[None] | None = None


class TransferTarget:
    """The imports of a worker. The event loop owns it."""

    def __init__(self, name: WorkerName, mover: Mover, post: Callable[[Arrival], None]) -> None:
        """name: of this worker. post: brings what arrives to the step thread."""
        self._name, self._mover, self._post = name, mover, post
        self._readings: dict[Import, _Reading] = {}

    def take(self, news: ImportBegun | ImportGranted | ImportOver) -> None:
        """Takes what the step thread says."""
        if isinstance(news, ImportBegun):
            reading = self._readings[news.found] = _Reading(news.found, news.gate, news.state_version)
            reading.task = asyncio.create_task(self._run(reading))
            return
        found = self._readings.get(news.found)
        if found is None:
            return
        if isinstance(news, ImportGranted):
            found.tables = news.tables
            found.granted.set()
        elif found.task is not None:
            found.task.cancel()

    async def close(self) -> None:
        """Ends all that is under way."""
        tasks = [reading.task for reading in self._readings.values() if reading.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, reading: _Reading) -> None:
        request = reading.found.request
        try:
            async with rpc.channel(request.address, Role.WORKER) as channel:
                dialogue = Dialogue(transfer_pb2_grpc.TransferServiceStub(channel).Pull())
                await dialogue.run(self._read(reading, dialogue))
        except grpc.aio.AioRpcError as error:
            self._fail(reading, error_of(error, request.address, NO_PATH).message)
        except TransferError as error:
            self._fail(reading, str(error), error.fault)
        except (SignalboxError, ConnectionError) as error:
            self._fail(reading, str(error))
        except Exception as error:  # whatever it is: the scheduler has to know
            logger.exception("a request could not be read from worker %s", request.source.worker_id)
            self._fail(reading, f"{type(error).__name__}: {error}")
        finally:
            del self._readings[reading.found]
            if reading.channel is not None:
                reading.channel.close()

    def _fail(self, reading: _Reading, reason: str, fault: ReadFault = ReadFault.PAIR) -> None:
        source = reading.found.request.source.worker_id
        message = f"not all of it came from worker {source}: {reason}"
        self._post(ImportFailed(reading.found, message, fault))

    async def _read(self, reading: _Reading, dialogue: Dialogue) -> None:
        """From hello to tail. Raises TransferError, and AioRpcError where the stream breaks."""
        found = reading.found
        hello = hello_of(self._name, found.request.transfer, found.request.key, found.num_found)
        head = await dialogue.begin(hello, found.request.source, HEAD_S)
        self._post(HeadArrived(found, head))
        if head.HasField("offer"):
            reading.channel = await self._mover.open(reading.gate, head.offer)
        await dialogue.say_how(reading.channel)
        has_caught_up = False
        while (response := await dialogue.read()) is not EOF:
            kind = response.WhichOneof("part")
            if kind == "blocks":
                await self._take_blocks(reading, dialogue, response.blocks)
                await dialogue.acknowledge(reading.num_read)
                if not has_caught_up and response.blocks.num_left <= FEW_BLOCKS:
                    has_caught_up = True
                    self._post(CaughtUp(found))
            elif kind == "state":
                reading.state += response.state.content
                if len(reading.state) > MOST_STATE_BYTES:
                    raise TransferError("its state is too large")
            else:
                tail = part_of(response, "tail").tail
                await dialogue.finish()
                await self._take_tail(reading, tail)
                return
        raise TransferError("the stream ended ahead of its tail")

    async def _take_blocks(
        self, reading: _Reading, dialogue: Dialogue, message: transfer_pb2.BlocksReady
    ) -> None:
        """Writes blocks when all of them are granted."""
        if message.number != reading.num_read + 1 or len(message.block_ids) % 4:
            raise TransferError("blocks come out of order")
        group, first, count = message.group, message.first, len(unpack_blocks(message.block_ids))
        if count:
            blocks = await self._granted(reading, group, first + count)
            start, table = blocks
            # What lies ahead of the table no query looks at any more.
            skipped = min(max(start - first, 0), count)
            if skipped and message.content:
                raise TransferError(f"block {first} of group {group} lies ahead of its table")
            targets = table[first + skipped - start : first + count - start].tolist()
            if reading.channel is None:
                await self._mover.write(reading.gate, group, targets, message.content)
            else:
                sources = unpack_blocks(message.block_ids)[skipped:].tolist()
                async with dialogue.channel_read():
                    await self._mover.fetch(reading.gate, reading.channel, group, sources, targets)
            reading.written[group].update(range(first + skipped, first + count))
        reading.num_read = message.number

    async def _granted(self, reading: _Reading, group: int, end: int) -> tuple[int, I32]:
        """The table of a group, once it has blocks up to `end`."""
        while True:
            if reading.tables:
                if not reading.written:
                    reading.written = [set() for _ in reading.tables]
                if group >= len(reading.tables):
                    raise TransferError(f"there is no group {group}")
                start, table = reading.tables[group]
                if end <= start + len(table):
                    return start, table
            reading.granted.clear()
            await reading.granted.wait()

    async def _take_tail(self, reading: _Reading, tail: transfer_pb2.PullTail) -> None:
        if tail.num_state_bytes != len(reading.state):
            raise TransferError(f"{len(reading.state)} bytes of its state came, of {tail.num_state_bytes}")
        await self._granted(reading, 0, 0)
        if reading.state:
            await self._mover.write_state(
                reading.gate,
                reading.found.slot,
                reading.state_version,
                tail.num_state_drafts,
                bytes(reading.state),
            )
        self._post(TailArrived(reading.found, tail, reading.written))
