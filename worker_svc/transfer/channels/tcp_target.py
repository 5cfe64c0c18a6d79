"""The target's end of the TCP channel: asks for blocks some batches ahead, and has them put into its rows."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence

from signalbox.links.tls.identity import Identity
from signalbox.v1.transfer_offer_pb2 import BlocksRead, ChannelHello, ChannelWelcome, ReadBlocks
from worker_svc.transfer.block_memory import BlockMemory, pairs
from worker_svc.transfer.channels import tls
from worker_svc.transfer.channels.rows import views_of
from worker_svc.transfer.channels.streams import PlainStream, Stream, TlsStream, receive_message, send_message
from worker_svc.transfer.channels.tcp_source import MOST_BLOCKS, checksum_of, keep_alive
from worker_svc.transfer.errors import TransferError
from worker_svc.transfer.row_copies import I64

CONNECT_S = 3.0
BATCH_BYTES = 4 << 20
"""Blocks are asked for in batches of about so many bytes."""
MOST_AHEAD = 3
"""Batches that are asked for ahead of the one that arrives: what is under way is bounded by them."""
MOST_ANSWER_BYTES = 1024


class TcpReader:
    """A connection to a source."""

    channel = "tcp"

    def __init__(
        self,
        memory: BlockMemory,
        address: tuple[str, int],
        token: bytes,
        *,
        identity: Identity | None = None,
        checksums: bool = False,
    ) -> None:
        """memory: where blocks are written. identity: the certificates to show; None: in plaintext. TransferError if
        there is no source that takes the token."""
        self._memory, self._checksums = memory, checksums
        self._reading = threading.Lock()
        self._stream = connect(address, identity)
        try:
            hello = ChannelHello(token=token, layout_digest=memory.digest, wants_checksums=checksums)
            send_message(self._stream, hello)
            receive_message(self._stream, ChannelWelcome, MOST_ANSWER_BYTES)
        except TransferError:
            self._stream.close()
            raise

    def read(self, group: int, source_blocks: Sequence[int], target_blocks: Sequence[int]) -> None:
        """Asks for blocks, and waits for all of them; see `BlockReader`."""
        with self._reading:
            try:
                self._read(group, *pairs(self._memory, group, source_blocks, target_blocks))
            except BaseException:
                self._stream.close()
                raise

    def close(self) -> None:
        """Ends the connection; see `BlockReader`."""
        self._stream.abort()
        with self._reading:  # whoever is in there uses the socket
            self._stream.close()

    def _read(self, group: int, sources: I64, targets: I64) -> None:
        due: deque[I64] = deque()
        for start, end in batches(len(sources), self._memory.bytes_per_block(group)):
            if len(due) > MOST_AHEAD:
                self._take(group, due.popleft())
            send_message(self._stream, ReadBlocks(group=group, blocks=sources[start:end]))
            due.append(targets[start:end])
        while due:
            self._take(group, due.popleft())

    def _take(self, group: int, targets: I64) -> None:
        """The answer that is due next."""
        answer = receive_message(self._stream, BlocksRead, MOST_ANSWER_BYTES)
        if answer.refusal:
            raise TransferError(f"the source refuses: {answer.refusal}")
        views = views_of(self._memory, group, targets)
        expected = sum(map(len, views))
        if answer.num_bytes != expected:
            raise TransferError(f"{answer.num_bytes} bytes come, where {expected} were asked for")
        self._stream.receive(views)
        if self._checksums:
            checksum = bytearray(4)
            self._stream.receive([memoryview(checksum)])
            if bytes(checksum) != checksum_of(views):
                raise TransferError("blocks arrived with another checksum than they left with")


def connect(address: tuple[str, int], identity: Identity | None) -> Stream:
    """A connection that is ready for frames. TransferError."""
    connection: socket.socket | None = None
    try:
        connection = socket.create_connection(address, timeout=CONNECT_S)
        keep_alive(connection)
        if identity is None:
            return PlainStream(connection)
        connection = encrypted = tls.encrypt_target(connection, identity)
        tls.greet(encrypted, identity)
        return TlsStream(encrypted)
    except (OSError, TransferError) as error:
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()
        raise TransferError(
            f"{address[0]}:{address[1]}: {getattr(error, 'strerror', None) or error}"
        ) from None


def batches(num_blocks: int, bytes_per_block: int) -> Iterator[tuple[int, int]]:
    """`[start, end)` of each part of so many blocks that is asked for at once."""
    size = min(max(1, BATCH_BYTES // max(1, bytes_per_block)), MOST_BLOCKS)
    for start in range(0, num_blocks, size):
        yield start, min(start + size, num_blocks)
