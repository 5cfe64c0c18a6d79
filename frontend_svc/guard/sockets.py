"""The connections of a port of this process, read from its open files.

grpc's core accepts connections itself and shows them to nobody. The kernel does: each is an open file of ours, knows
its peer and how many bytes came, and can be reset. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_TCP_INFO_BYTES = 136
_RECEIVED = slice(128, 136)
"""tcpi_bytes_received of struct tcp_info, since Linux 4.1."""
_UNSPECIFIED = bytes(16)
"""A sockaddr of AF_UNSPEC."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One that is open."""

    inode: int
    """Its name; no other socket has it as long as this one is open."""
    host: str
    received_bytes: int


class PortSockets:
    """The connections that this process has accepted at one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._others: set[int] = set()
        """Inodes of sockets that are none of them."""

    def look(self) -> list[Connection]:
        """The connections that are open now, in the order of their files."""
        found, others = [], set()
        for fd in _open_files():
            try:
                status = os.fstat(fd)
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                if status.st_ino in self._others:
                    others.add(status.st_ino)
                    continue
                with socket.socket(fileno=os.dup(fd)) as opened:
                    connection = self._describe(opened)
            except OSError:  # closed meanwhile
                continue
            if connection is None:
                others.add(status.st_ino)
            else:
                found.append(connection)
        self._others = others
        return found

    def reset(self, inodes: Collection[int]) -> int:
        """Ends these at once; what has come and was not read yet is dropped. How many were still there."""
        count = 0
        for fd in _open_files():
            try:
                if os.fstat(fd).st_ino not in inodes:
                    continue
                with socket.socket(fileno=os.dup(fd)) as opened:
                    if os.fstat(opened.fileno()).st_ino in inodes:
                        _reset(opened)
                        count += 1
            except OSError:
                continue
        return count

    def _describe(self, opened: socket.socket) -> Connection | None:
        """None: it is no connection of this port."""
        if opened.family not in (socket.AF_INET, socket.AF_INET6) or opened.type != socket.SOCK_STREAM:
            return None
        if opened.getsockname()[1] != self._port:
            return None
        try:
            host = opened.getpeername()[0]
        except OSError:  # it listens, or has ended
            return None
        info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        received = int.from_bytes(info[_RECEIVED], sys.byteorder)
        return Connection(os.fstat(opened.fileno()).st_ino, host, received)


def _open_files() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


def _reset(opened: socket.socket) -> None:
    """Disconnecting a TCP socket sends a reset and drops what it holds; a shutdown would leave it to be read."""
    if _LIBC is None or _LIBC.connect(opened.fileno(), _UNSPECIFIED, len(_UNSPECIFIED)):
        opened.shutdown(socket.SHUT_RDWR)
