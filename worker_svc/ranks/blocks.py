"""Blocks that lie in parts at all ranks, as bytes of one: those of rank 0, then those of the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from signalbox.v1 import ranks_pb2
from worker_svc.ranks.leader import Leader
from worker_svc.runner.attention.block_bytes import BlockBytes
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.errors import TransferError

I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
PIECE_BYTES = 32 << 20
"""What goes in one call: steps wait for it."""


class GroupBlocks:
    """The `BlockBytes` of a group of ranks. Reads and writes take their turn between steps."""

    def __init__(self, leader: Leader, own: BlockMemory) -> None:
        self._leader, self._own = leader, own
        call = ranks_pb2.RankCall(block_sizes=True)
        self._sizes = [
            np.frombuffer(said, "<u8").tolist() for said in leader.gather(call, lambda: sizes_of(own))
        ]

    def bytes_per_block(self, group: int) -> int:
        """Bytes of a block in all layers of its group, at all ranks."""
        return sum(sizes[group] for sizes in self._sizes)

    def read(self, group: int, blocks: Sequence[int]) -> bytes:
        """What is in blocks of a group. TransferError where there are none such."""
        call = ranks_pb2.RankCall(read_blocks=ranks_pb2.RankBlocks(group=group, blocks=blocks))
        return b"".join(self._leader.gather(call, lambda: self._own.read(group, blocks)))

    def write(self, group: int, blocks: Sequence[int], content: bytes) -> None:
        """Puts what `read` gave elsewhere into blocks. TransferError where the bytes are not theirs: nothing is written
        then."""
        self._own.checked(group, blocks)
        parts = cut(content, [sizes[group] * len(blocks) for sizes in self._sizes], "blocks")
        calls = [
            ranks_pb2.RankCall(write_blocks=ranks_pb2.RankBlocks(group=group, blocks=blocks, content=part))
            for part in parts[1:]
        ]
        self._leader.run_apart(calls, lambda: self._own.write(group, blocks, parts[0]))


class GroupRecords:
    """The `BlockMemory` of a disk over a group of ranks: a record is the parts of all ranks, one behind the other.
    Reads and writes take their turn between steps."""

    def __init__(self, leader: Leader, own: BlockBytes) -> None:
        self._leader, self._own = leader, own
        call = ranks_pb2.RankCall(record_sizes=True)
        said = leader.gather(call, lambda: np.array(own.record_bytes(), "<u8").tobytes())
        self._sizes = [np.frombuffer(sizes, "<u8").tolist() for sizes in said]

    def record_bytes(self) -> list[int]:
        """Bytes of a block of each group, at all ranks."""
        return [sum(sizes) for sizes in zip(*self._sizes, strict=True)]

    def reads_aside(self, group: int, blocks: I32) -> Callable[[], U8]:
        """What reads blocks, a record each."""
        pieces = self._pieces(group, blocks)
        own = [self._own.reads_aside(group, piece) for piece in pieces]

        def read() -> U8:
            return np.concatenate([self._read(group, *both) for both in zip(pieces, own, strict=True)])

        return read

    def writes_aside(self, group: int, blocks: I32) -> Callable[[U8], None]:
        """What writes records into blocks."""
        pieces = self._pieces(group, blocks)
        own = [self._own.writes_aside(group, piece) for piece in pieces]

        def write(records: U8) -> None:
            parts = np.split(records, np.cumsum([len(piece) for piece in pieces])[:-1])
            for piece, part, put in zip(pieces, parts, own, strict=True):
                self._write(group, piece, part, put)

        return write

    def _pieces(self, group: int, blocks: I32) -> list[I32]:
        """So many blocks at a time as steps can wait for."""
        at_once = max(1, PIECE_BYTES // max(1, self.record_bytes()[group]))
        return [blocks[first : first + at_once] for first in range(0, max(1, len(blocks)), at_once)]

    def _read(self, group: int, blocks: I32, own: Callable[[], U8]) -> U8:
        call = ranks_pb2.RankCall(read_records=ranks_pb2.RankBlocks(group=group, blocks=blocks.tolist()))
        parts = self._leader.gather(call, lambda: own().tobytes())
        return np.hstack([np.frombuffer(part, np.uint8).reshape(len(blocks), -1) for part in parts])

    def _write(self, group: int, blocks: I32, records: U8, own: Callable[[U8], None]) -> None:
        ends = np.cumsum([sizes[group] for sizes in self._sizes])
        mine, *others = np.split(records, ends[:-1], axis=1)
        told = [
            ranks_pb2.RankBlocks(group=group, blocks=blocks.tolist(), content=part.tobytes())
            for part in others
        ]
        calls = [ranks_pb2.RankCall(write_records=each) for each in told]
        self._leader.run_apart(calls, lambda: own(np.ascontiguousarray(mine)))


def sizes_of(memory: BlockMemory) -> bytes:
    """Bytes of a block of each group, as a column."""
    return np.array([memory.bytes_per_block(group) for group in range(len(memory.groups))], "<u8").tobytes()


def cut(content: bytes, sizes: Sequence[int], what: str) -> list[bytes]:
    """Parts of these sizes. TransferError if they are not all of it."""
    if len(content) != sum(sizes):
        raise TransferError(f"{what} have {sum(sizes)} bytes, not {len(content)}")
    ends = np.cumsum(sizes).tolist()
    return [content[end - size : end] for size, end in zip(sizes, ends, strict=True)]
