"""Cached blocks on their way here: each pull is read from its source by a task of its own (PB)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import grpc

from signalbox.errors import SignalboxError
from signalbox.links import rpc
from signalbox.links.rpc_errors import error_of
from signalbox.links.tls.roles import Role
from signalbox.protocol.arrays import unpack_blocks
from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.names import WorkerName
from signalbox.protocol.parts.pulls import PullOrder
from signalbox.v1 import transfer_pb2, transfer_pb2_grpc
from worker_svc.transfer.channels.reader import BlockReader
from worker_svc.transfer.control.dialogue import NO_PATH, Dialogue, hello_of, part_of
from worker_svc.transfer.control.mover import Mover
from worker_svc.transfer.control.news import PullArrival, PullBegun, PullFailed, PullOver, PullRead
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)
LEAST_S = 0.05
"""A pull may take so long at least, however soon its tokens would be computed."""


class PullTarget:
    """The pulls of a worker. The event loop owns it."""

    def __init__(self, name: WorkerName, mover: Mover, post: Callable[[PullArrival], None]) -> None:
        """name: of this worker. post: brings what came of them to the step thread."""
        self._name, self._mover, self._post = name, mover, post
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """By the step that began them."""

    def take(self, news: PullBegun | PullOver) -> None:
        """Takes what the step thread says."""
        step_id = news.order.step_id
        if isinstance(news, PullBegun):
            task = self._tasks[step_id] = asyncio.create_task(self._run(news))
            task.add_done_callback(lambda done: self._forget(step_id, done))
        elif step_id in self._tasks:
            self._tasks[step_id].cancel()

    def _forget(self, step_id: int, done: asyncio.Task[None]) -> None:
        if self._tasks.get(step_id) is done:
            del self._tasks[step_id]

    async def close(self) -> None:
        """Ends all that is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, begun: PullBegun) -> None:
        order, started = begun.order, time.monotonic()
        took: list[float] = []
        try:
            async with (
                asyncio.timeout(max(order.most_us / 1e6, LEAST_S)),
                rpc.channel(order.address, Role.WORKER) as channel,
            ):
                dialogue = Dialogue(transfer_pb2_grpc.TransferServiceStub(channel).Pull())
                await dialogue.run(self._read(begun, dialogue, took))
        except TimeoutError:
            self._fail(order, "it takes longer than computing")
        except grpc.aio.AioRpcError as error:
            self._fail(order, error_of(error, order.address, NO_PATH).message)
        except asyncio.InvalidStateError:
            self._fail(order, "the stream ended")
        except TransferError as error:
            self._fail(order, str(error), error.fault)
        except (SignalboxError, ConnectionError) as error:
            self._fail(order, str(error))
        except Exception as error:  # whatever it is: the scheduler has to know
            logger.exception("blocks could not be read from worker %s", order.source.worker_id)
            self._fail(order, f"{type(error).__name__}: {error}")
        else:
            self._post(PullRead(order, time.monotonic() - started, self._block_ns(begun, took[0])))

    def _fail(self, order: PullOrder, reason: str, fault: ReadFault = ReadFault.PAIR) -> None:
        source = order.source.worker_id
        self._post(PullFailed(order, f"not all blocks came from worker {source}: {reason}", fault))

    def _block_ns(self, begun: PullBegun, seconds: float) -> list[float]:
        """What a block of each group took, by its bytes."""
        groups = range(begun.num_groups)
        sizes = [self._mover.bytes_per_block(group) for group in groups]
        counts = [len(begun.order.targets(group)) for group in groups]
        num_bytes = sum(size * count for size, count in zip(sizes, counts, strict=True))
        byte_ns = seconds * 1e9 / max(num_bytes, 1)
        return [size * byte_ns if count else 0.0 for size, count in zip(sizes, counts, strict=True)]

    async def _read(self, begun: PullBegun, dialogue: Dialogue, took: list[float]) -> None:
        """From hello to tail. Appends the seconds that the blocks took to `took`. Raises TransferError, and AioRpcError
        where the stream breaks."""
        order, gate = begun.order, begun.gate
        hello = hello_of(self._name, order.number, order.key, is_export=True)
        head = await dialogue.begin(hello, order.source, max(order.most_us / 1e6, LEAST_S))
        channel, started = None, time.monotonic()
        if head.HasField("offer"):
            channel = await self._mover.open(gate, head.offer)
        try:
            await dialogue.say_how(channel)
            await self._read_blocks(begun, dialogue, channel)
        finally:
            if channel is not None:
                channel.close()
        took.append(time.monotonic() - started)

    async def _read_blocks(self, begun: PullBegun, dialogue: Dialogue, channel: BlockReader | None) -> None:
        """All blocks, and the source's word that they were its to show."""
        targets = [begun.order.targets(group) for group in range(begun.num_groups)]
        num_read = [0 for _ in targets]
        while True:
            response = await dialogue.read()
            if isinstance(response, transfer_pb2.PullResponse) and response.WhichOneof("part") == "tail":
                break
            message = part_of(response, "blocks").blocks
            async with dialogue.channel_read():
                await self._write(begun, message, targets, num_read, channel)
            await dialogue.acknowledge(message.number)
        await dialogue.finish()
        if num_read != [len(each) for each in targets]:
            raise TransferError(f"{sum(num_read)} blocks came, of {sum(map(len, targets))}")

    async def _write(
        self,
        begun: PullBegun,
        message: transfer_pb2.BlocksReady,
        targets: list[list[int]],
        num_read: list[int],
        channel: BlockReader | None,
    ) -> None:
        """Writes the next blocks of a group."""
        if len(message.block_ids) % 4 or message.group >= len(targets):
            raise TransferError("it shows blocks of a group that there is not")
        sources = unpack_blocks(message.block_ids).tolist()
        group, first, end = message.group, message.first, message.first + len(sources)
        if not sources:
            return
        if first != num_read[group] or end > len(targets[group]):
            raise TransferError("blocks come out of order")
        into = targets[group][first:end]
        if channel is None:
            await self._mover.write(begun.gate, group, into, message.content)
        else:
            await self._mover.fetch(begun.gate, channel, group, sources, into)
        num_read[group] = end
