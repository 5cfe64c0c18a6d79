"""Connections whose every exchange has an end: frames of protobuf, and bytes straight from and into rows of blocks."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from worker_svc.transfer.errors import TransferError

STALL_S = 10.0
"""Most seconds that a frame, or the blocks of one answer, may take from first to last byte."""
MOST_VIEWS = 1024
"""Pieces of memory that the system takes in one call (IOV_MAX)."""
RECORD_BYTES = 16 << 10
"""Bytes of a TLS record: smaller pieces are joined."""
PIECE_BYTES = 256 << 10
"""Bytes that are encrypted between two looks at the clock."""
_LENGTH = struct.Struct(">I")
_TIMEVAL = struct.Struct("ll")
AnyMessage = TypeVar("AnyMessage", bound=Message)
Views = Sequence[memoryview]


class Stream(Protocol):
    """A connection. One thread sends and receives; any may abort it."""

    def send(self, views: Views) -> None:
        """All bytes of `views`, in order, within STALL_S. TransferError."""

    def receive(self, views: Views) -> None:
        """Fills `views` within STALL_S. TransferError, also when the other end has closed."""

    def wait(self) -> None:
        """Returns when there is something to receive, or the end of it, however long that takes."""

    def abort(self) -> None:
        """Whoever waits here, or will, is told at once that it has ended. Any thread."""

    def close(self) -> None:
        """Lets it go. What it had sent may still arrive."""


class _Socket:
    """What both kinds have in common."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # not connected any more
            # An SSLSocket's own forgets its encryption, under the thread that is sending.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class PlainStream(_Socket):
    """A connection in plaintext. The system fills rows itself, and comes back when all are full."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        connection.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(
                socket.SOL_SOCKET, option, _TIMEVAL.pack(*divmod(int(STALL_S * 1e6), 10**6))
            )

    def send(self, views: Views) -> None:
        self._move(views, self._socket.sendmsg)

    def receive(self, views: Views) -> None:
        self._move(views, lambda part: self._socket.recvmsg_into(part, 0, socket.MSG_WAITALL)[0])

    def wait(self) -> None:
        while True:
            try:
                self._socket.recv(1, socket.MSG_PEEK)
                return
            except BlockingIOError:
                continue
            except OSError as error:
                raise _ended(error) from None

    def _move(self, views: Views, call: Callable[[list[memoryview]], int]) -> None:
        deadline = time.monotonic() + STALL_S
        for start in range(0, len(views), MOST_VIEWS):
            part = list(views[start : start + MOST_VIEWS])
            while part:
                try:
                    moved = call(part)
                except OSError as error:
                    raise _ended(error) from None
                if not moved:
                    raise TransferError("the other end has closed the channel")
                part = _behind(part, moved)
                if part and time.monotonic() > deadline:
                    raise _stalled()


class TlsStream(_Socket):
    """A connection that is encrypted. Pieces are joined to records at one end and cut at the other."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        super().__init__(connection)
        self._socket: ssl.SSLSocket = connection

    def send(self, views: Views) -> None:
        joined = bytearray()
        deadline = time.monotonic() + STALL_S
        for view in views:
            if len(view) >= RECORD_BYTES and not joined:
                self._send(view, deadline)
                continue
            joined += view
            if len(joined) >= RECORD_BYTES:
                self._send(joined, deadline)
                joined = bytearray()
        if joined:
            self._send(joined, deadline)

    def receive(self, views: Views) -> None:
        deadline = time.monotonic() + STALL_S
        for view in views:
            start = 0
            while start < len(view):
                self._socket.settimeout(_left(deadline))
                try:
                    received = self._socket.recv_into(view[start:])
                except OSError as error:
                    raise _ended(error) from None
                if not received:
                    raise TransferError("the other end has closed the channel")
                start += received

    def wait(self) -> None:
        if self._socket.pending():
            return
        self._socket.settimeout(None)
        try:
            # Below the encryption, which would take what it reads.
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except OSError as error:
            raise _ended(error) from None

    def _send(self, piece: memoryview | bytearray, deadline: float) -> None:
        view = memoryview(piece)
        for start in range(0, len(view), PIECE_BYTES):
            self._socket.settimeout(_left(deadline))
            try:
                self._socket.sendall(view[start : start + PIECE_BYTES])
            except OSError as error:
                raise _ended(error) from None


def send_message(stream: Stream, message: Message) -> None:
    """A frame: its length, 4 bytes big-endian, and the message. TransferError."""
    content = message.SerializeToString()
    stream.send([memoryview(_LENGTH.pack(len(content)) + content)])


def receive_message(stream: Stream, kind: type[AnyMessage], most_bytes: int) -> AnyMessage:
    """The next frame, of at most so many bytes. TransferError, also if it is something else."""
    head = bytearray(_LENGTH.size)
    stream.receive([memoryview(head)])
    (length,) = _LENGTH.unpack(head)
    if length > most_bytes:
        raise TransferError(f"a frame of {length} bytes, where {most_bytes} are the most")
    content = bytearray(length)
    if length:
        stream.receive([memoryview(content)])
    try:
        return kind.FromString(bytes(content))
    except DecodeError:
        raise TransferError("a frame that is none of ours") from None


def _behind(views: list[memoryview], num_bytes: int) -> list[memoryview]:
    """What is left of `views` behind so many bytes."""
    for number, view in enumerate(views):
        if num_bytes < len(view):
            return [view[num_bytes:], *views[number + 1 :]]
        num_bytes -= len(view)
    return []


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise _stalled()
    return left


def _stalled() -> TransferError:
    return TransferError(f"the other end took longer than {STALL_S:g} s")


def _ended(error: OSError) -> TransferError:
    if isinstance(error, BlockingIOError | TimeoutError):
        return _stalled()
    return TransferError(f"the channel has ended: {error.strerror or error}")
