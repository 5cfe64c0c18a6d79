"""The target's end of shared memory: maps the source's cache, and copies rows from it to its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import DecodeError

from signalbox.v1.transfer_offer_pb2 import ChannelHello, ChannelWelcome
from worker_svc.transfer.block_memory import BlockMemory, pairs
from worker_svc.transfer.channels.kept_mappings import Bytes, KeptMappings, map_file
from worker_svc.transfer.channels.shared_source import check_same_user, socket_address
from worker_svc.transfer.errors import TransferError
from worker_svc.transfer.row_copies import CopyBlocks, Rows
from worker_svc.transfer.shared_memory import is_sealed

OPEN_S = 3.0
MOST_WELCOME_BYTES = 128 << 10


class SharedReader:
    """A mapping of a source's cache."""

    channel = "shared memory"

    def __init__(
        self, memory: BlockMemory, path: str, token: bytes, mappings: KeptMappings | None = None
    ) -> None:
        """memory: where blocks are written. mappings: those of the pulls before; None: this one has its own.
        TransferError if nobody hands out memory there for this token."""
        self._memory = memory
        welcome, fd = ask(path, ChannelHello(token=token, layout_digest=memory.digest))
        try:
            check_strips(memory, welcome, fd)
            mapped = map_file(fd) if mappings is None else mappings.map(fd)
        except OSError as error:
            raise TransferError(f"the source's memory cannot be mapped: {error.strerror or error}") from None
        finally:
            os.close(fd)
        strips = strips_in(mapped, memory, welcome)
        self._num_blocks = [min((len(rows) for rows in group), default=0) for group in strips]
        self._copiers: list[CopyBlocks] | None = [
            memory.copier_of(targets, sources) for targets, sources in zip(memory.groups, strips, strict=True)
        ]

    def read(self, group: int, source_blocks: Sequence[int], target_blocks: Sequence[int]) -> None:
        """Copies blocks; see `BlockReader`."""
        sources, targets = pairs(self._memory, group, source_blocks, target_blocks)
        copiers = self._copiers
        if copiers is None:
            raise TransferError("the channel is closed")
        if not len(sources):
            return
        if sources.max() >= self._num_blocks[group]:
            raise TransferError("the source has no such block")
        copiers[group](targets, sources)

    def close(self) -> None:
        """Lets the mapping go; a read that is under way ends as it would have. See `BlockReader`."""
        self._copiers = None


def ask(path: str, hello: ChannelHello) -> tuple[ChannelWelcome, int]:
    """What the source at `path` answers, and the descriptor that comes with it. TransferError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(OPEN_S)
        try:
            with socket_address(Path(path)) as address:
                connection.connect(address)
            check_same_user(connection)
            connection.send(hello.SerializeToString())
            content, fds, _, _ = socket.recv_fds(connection, MOST_WELCOME_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise TransferError(f"{path}: {error.strerror or error}") from None
    if not fds:
        raise TransferError(f"{path}: the source hands out nothing for this token")
    try:
        return ChannelWelcome.FromString(content), fds[0]
    except DecodeError:
        os.close(fds[0])
        raise TransferError(f"{path}: a frame that is none of ours") from None


def check_strips(memory: BlockMemory, welcome: ChannelWelcome, fd: int) -> None:
    """TransferError if the strips of a file do not fit to `memory`, or it can be cut off."""
    size = os.fstat(fd).st_size
    if not is_sealed(fd) or not size:
        raise TransferError("the source's memory could be cut off while it is read")
    ours = [rows for group in memory.groups for rows in group]
    fits = len(welcome.strips) == len(ours) and all(
        strip.bytes_per_block == rows.shape[1]
        and strip.offset + strip.num_blocks * strip.bytes_per_block <= size
        for strip, rows in zip(welcome.strips, ours, strict=True)
    )
    if not fits:
        raise TransferError("the source's memory does not have the blocks that it says")


def strips_in(mapped: Bytes, memory: BlockMemory, welcome: ChannelWelcome) -> list[list[Rows]]:
    """[groups][strips] of `[num_blocks, bytes_per_block]`, as `memory` has them: parts of `mapped`."""
    found = iter(
        mapped[strip.offset :][: strip.num_blocks * strip.bytes_per_block].reshape(
            strip.num_blocks, strip.bytes_per_block
        )
        for strip in welcome.strips
    )
    return [[next(found) for _ in group] for group in memory.groups]
