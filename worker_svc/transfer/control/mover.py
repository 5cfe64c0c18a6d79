"""Reads and writes what lies in a runner, in threads beside the steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from worker_svc.core.batch import HandoffRunner
from worker_svc.core.handoff.exports import Stretch, Tail
from worker_svc.transfer.control.gate import Gate

NUM_THREADS = 2
T = TypeVar("T")


class Piece(NamedTuple):
    """A stretch of blocks with what is in them."""

    stretch: Stretch
    content: bytes


class Mover:
    """What is read and written passes a gate, piece by piece. Raises TransferError where that is closed, or where the
    bytes are none of the runner's."""

    def __init__(self, runner: HandoffRunner) -> None:
        assert runner.block_memory is not None
        self._runner, self._memory = runner, runner.block_memory
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="transfers")

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

    def close(self) -> None:
        """What has not begun is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
