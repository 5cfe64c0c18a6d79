"""Blocks that lie in parts at all ranks, as bytes of one: those of rank 0, then those of the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from signalbox.v1 import ranks_pb2
from worker_svc.ranks.leader import Leader
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.errors import TransferError


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


def sizes_of(memory: BlockMemory) -> bytes:
    """Bytes of a block of each group, as a column."""
    return np.array([memory.bytes_per_block(group) for group in range(len(memory.groups))], "<u8").tobytes()


def cut(content: bytes, sizes: Sequence[int], what: str) -> list[bytes]:
    """Parts of these sizes. TransferError if they are not all of it."""
    if len(content) != sum(sizes):
        raise TransferError(f"{what} have {sum(sizes)} bytes, not {len(content)}")
    ends = np.cumsum(sizes).tolist()
    return [content[end - size : end] for size, end in zip(sizes, ends, strict=True)]
