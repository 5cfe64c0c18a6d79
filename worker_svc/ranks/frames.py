"""Messages on a socket between two ranks: four bytes of length, then the message."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
LENGTH = struct.Struct("<I")
MOST_BYTES = 1 << 30
"""Largest message; a longer one is none of ours."""
HELLO_BYTES = 1024
"""Largest one of somebody who has not said who it is."""


def send(connection: socket.socket, message: Message) -> int:
    """Sends a message, and says how many bytes that took. OSError when the other end is gone."""
    raw = message.SerializeToString()
    if len(raw) > MOST_BYTES:
        raise ValueError(f"a message of {len(raw)} bytes is too large for ranks")
    connection.sendall(LENGTH.pack(len(raw)) + raw)
    return LENGTH.size + len(raw)


def receive(connection: socket.socket, kind: type[M], most_bytes: int = MOST_BYTES) -> M | None:
    """The next message; None: the other end is gone. ValueError where it is none."""
    head = _exactly(connection, LENGTH.size)
    if head is None:
        return None
    (length,) = LENGTH.unpack(head)
    if length > most_bytes:
        raise ValueError(f"a message of {length} bytes between ranks")
    raw = _exactly(connection, length)
    return None if raw is None else kind.FromString(raw)


def _exactly(connection: socket.socket, length: int) -> bytes | None:
    raw = bytearray(length)
    view, at = memoryview(raw), 0
    while at < length:
        try:
            count = connection.recv_into(view[at:])
        except OSError:
            return None
        if not count:
            return None
        at += count
    return bytes(raw)
