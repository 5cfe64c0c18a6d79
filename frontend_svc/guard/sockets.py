"""The connections of a port of this process, read from its open files, and who may open further ones.

grpc's core accepts connections itself and shows them to nobody. The kernel does: each is an open file of ours, knows
its peer and how many bytes came, and can be reset. A filter at the listening socket has the kernel drop the packets
that would open another one. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from frontend_svc.guard.packet_filter import Filter

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_TCP_INFO_BYTES = 136
_RECEIVED = slice(128, 136)
"""Where tcpi_bytes_received is in struct tcp_info, since Linux 4.1."""
_UNSPECIFIED = bytes(16)
"""A sockaddr of AF_UNSPEC."""
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
"""Options of sockets that Python does not name."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One that is open."""

    inode: int
    """Its name; no other socket has it as long as this one is open."""
    host: str
    received_bytes: int
    file: int = -1
    """Number of the open file that it was."""


class PortSockets:
    """The sockets that this process has at one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._others: set[int] = set()
        """Inodes of sockets that are none of its connections."""
        self._listeners: list[int] = []
        """Open files of those that listen at the port."""

    def look(self) -> list[Connection]:
        """The connections that are open now, in the order of their files."""
        found, others = [], set()
        for file in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208  # paths take three times as long
            with suppress(OSError):  # closed meanwhile
                status = os.fstat(file)
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                connection = None
                if status.st_ino not in self._others:
                    with socket.socket(fileno=os.dup(file)) as opened:
                        connection = self._describe(opened, file)
                if connection is None:
                    others.add(status.st_ino)
                else:
                    found.append(connection)
        self._others = others
        return found

    def reset(self, connections: Sequence[Connection]) -> None:
        """Ends these at once; what has come and was not read yet is dropped."""
        for each in connections:
            with suppress(OSError), socket.socket(fileno=os.dup(each.file)) as opened:
                if os.fstat(opened.fileno()).st_ino == each.inode:
                    _reset(opened)

    def admit(self, wanted: Filter | None) -> None:
        """Has the kernel drop what `wanted` drops of the packets that open connections; None: none. Their clients send
        them again after a second or more. Where the kernel knows no filters nothing happens."""
        for file in self._listeners:
            with suppress(OSError), socket.socket(fileno=os.dup(file)) as listener:
                if wanted is None:
                    listener.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
                else:
                    listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, wanted.as_option())

    def _describe(self, opened: socket.socket, file: int) -> Connection | None:
        """None: it is no connection of this port."""
        if opened.family not in (socket.AF_INET, socket.AF_INET6) or opened.type != socket.SOCK_STREAM:
            return None
        if opened.getsockname()[1] != self._port:
            return None
        if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            self._listeners.append(file)  # as long as the process lives
            return None
        host = opened.getpeername()[0]
        info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        received = int.from_bytes(info[_RECEIVED], sys.byteorder)
        return Connection(os.fstat(opened.fileno()).st_ino, host, received, file)


def _reset(opened: socket.socket) -> None:
    """Disconnecting a TCP socket sends a reset and drops what it holds; a shutdown would leave it to be read."""
    if _LIBC is None or _LIBC.connect(opened.fileno(), _UNSPECIFIED, len(_UNSPECIFIED)):
        opened.shutdown(socket.SHUT_RDWR)
