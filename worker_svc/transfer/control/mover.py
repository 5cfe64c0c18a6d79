"""Reads and writes what lies in a runner, in threads beside the steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from signalbox.v1.transfer_offer_pb2 import TransferOffer
from worker_svc.core.batch import HandoffRunner
from worker_svc.core.handoff.exports import Stretch, Tail
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels.choice import choose
from worker_svc.transfer.channels.kept_mappings import KeptMappings
from worker_svc.transfer.channels.names import ALL
from worker_svc.transfer.channels.reader import BlockReader
from worker_svc.transfer.control.gate import Gate

NUM_THREADS, NUM_OPENING_THREADS = 4, 4
"""Threads that read and write, and those that reach other workers: a dead one takes its thread for seconds."""
T = TypeVar("T")


class Piece(NamedTuple):
    """A stretch of blocks with what is in them."""

    stretch: Stretch
    content: bytes


class Mover:
    """What is read and written passes a gate, piece by piece. Raises TransferError where that is closed, or where the
    bytes are none of the runner's."""

    def __init__(
        self,
        runner: HandoffRunner,
        *,
        checksums: bool = False,
        channels: Sequence[str] = ALL,
    ) -> None:
        """checksums: blocks that come by TCP are checked. channels: those that are taken, the best first."""
        assert runner.block_memory is not None
        self._checksums, self._mappings = checksums, KeptMappings()
        self._channels = channels
        self._runner, self._memory = runner, runner.block_memory
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="transfers")
        self._opening = ThreadPoolExecutor(NUM_OPENING_THREADS, thread_name_prefix="transfers-open")

    def bytes_per_block(self, group: int) -> int:
        """Bytes of a block in all layers of its group."""
        return self._memory.bytes_per_block(group)

    async def read(self, gate: Gate, stretch: Stretch) -> Piece:
        """What is in a stretch, but for the blocks at its head that are no more the slot's."""

        def read() -> Piece:
            with gate.passing() as firsts:
                group, first, blocks = stretch
                skipped = min(max(firsts[group] - first, 0), len(blocks))
                rest = Stretch(group, first + skipped, blocks[skipped:])
                return Piece(rest, self._memory.read(group, rest.blocks.tolist()))

        return await self._run(read)

    async def write(self, gate: Gate, group: int, blocks: Sequence[int], content: bytes) -> None:
        """Puts what `read` gave elsewhere into blocks."""

        def write() -> None:
            with gate.passing():
                self._memory.write(group, blocks, content)

        await self._run(write)

    async def open(self, gate: Gate, offer: TransferOffer) -> BlockReader | None:
        """The channel by which blocks of an offer are had; None: by none. The gate closes it."""
        memory = self._memory
        if not isinstance(memory, BlockMemory):
            return None

        def open_channel() -> BlockReader | None:
            reader = choose(
                offer,
                memory,
                checksums=self._checksums,
                mappings=self._mappings,
                names=self._channels,
            )
            if reader is not None:
                gate.on_close(reader.close)
            return reader

        return await self._run(open_channel, self._opening)

    async def fetch(
        self, gate: Gate, reader: BlockReader, group: int, sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        """Has the content of another worker's blocks come into ours."""

        def fetch() -> None:
            with gate.passing():
                reader.read(group, sources, targets)

        await self._run(fetch)

    async def read_state(self, gate: Gate, slot: int, tail: Tail) -> bytes:
        """The recurrent state of a frozen slot; empty: it has none."""

        def read() -> bytes:
            with gate.passing():
                assert tail.state_version is not None
                return self._runner.read_state(slot, tail.state_version, tail.num_state_drafts)

        return b"" if tail.state_version is None else await self._run(read)

    async def write_state(self, gate: Gate, slot: int, version: int, num_drafts: int, content: bytes) -> None:
        """Puts what `read_state` gave elsewhere into a version of a slot's."""

        def write() -> None:
            with gate.passing():
                self._runner.write_state(slot, version, num_drafts, content)

        await self._run(write)

    async def end(self, closer: Callable[[], None]) -> None:
        """Has a channel ended, which may have to wait for what is under way on it."""
        await self._run(closer)

    def close(self) -> None:
        """What has not begun is dropped."""
        for threads in (self._threads, self._opening):
            threads.shutdown(wait=False, cancel_futures=True)
        self._mappings.close()

    async def _run(self, work: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads or self._threads, work)
