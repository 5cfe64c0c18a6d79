"""Memories of blocks for tests: random bytes, in memory that others can map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind
from signalbox.v1.transfer_offer_pb2 import TransferOffer
from worker_svc.transfer.block_memory import BlockMemory, strip_of
from worker_svc.transfer.channels.block_server import BlockServer
from worker_svc.transfer.channels.registrations import new_token
from worker_svc.transfer.shared_memory import SharedMemory, room_for

WINDOW = BlockGroup(kind=BlockGroupKind.WINDOW, reach=8, num_blocks=0)
ROW_BYTES = ((96, 96, 48), (64, 32))
"""Bytes of a block in each strip of the spine, and of a group of windows."""


def make_memory(
    num_blocks: int = 40, rows: Sequence[Sequence[int]] = ROW_BYTES, seed: int | None = None
) -> BlockMemory:
    """Blocks of two groups. seed: of their bytes; None: they are zero."""
    shared = SharedMemory(room_for(*(num_blocks * size for group in rows for size in group)))
    groups = [
        [strip_of(shared.take(num_blocks * size).reshape(num_blocks, size)) for size in group]
        for group in rows
    ]
    memory = BlockMemory(groups, [WINDOW] * (len(rows) - 1), 4, shared)
    if seed is not None:
        random = np.random.default_rng(seed)
        for group in memory.groups:
            for strip in group:
                strip[:] = random.integers(1, 255, strip.shape, dtype=np.uint8)
    return memory


@contextmanager
def offered(memory: BlockMemory, *, by: str) -> Iterator[tuple[BlockServer, TransferOffer]]:
    """A source, and its offer of one channel for a pull that may read everything."""
    server = BlockServer(memory, listen="127.0.0.1:0")
    token = new_token()
    server.register(token, lambda group, blocks: True)
    offer = server.offer(token)
    offer.ClearField("tcp_address" if by == "shared memory" else "socket_path")
    try:
        yield server, offer
    finally:
        server.close()


def assert_moved(
    source: BlockMemory, target: BlockMemory, group: int, blocks: Sequence[int], into: Sequence[int]
) -> None:
    """Asserts that blocks of the target have the bytes of the source's, and all others of the group none."""
    assert target.read(group, into) == source.read(group, blocks)
    others = np.delete(np.arange(len(target.groups[group][0])), list(into))
    assert not any(rows[others].any() for rows in target.groups[group])
