"""How long an answer waits for a client that does not read it, and what of it a client has taken."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass

_TCP_INFO_BYTES, _ACKED_AT = 256, 120
"""Where the kernel has `tcpi_bytes_acked` (u64) in its `struct tcp_info`."""
_ACKED = struct.Struct("@Q")


@dataclass
class Patience:
    """Decides from times and byte counts alone whether a client reads fast enough. Times are in seconds."""

    since_s: float
    """From when on bytes wait."""
    first_taken: int
    """What the client had taken then, in bytes."""
    stall_s: float
    """How long it may take nothing."""
    least_bytes_s: float
    """Fewest bytes a second that it takes once that time is over; 0: any number."""

    def __post_init__(self) -> None:
        self._taken, self._taken_s = self.first_taken, self.since_s

    def is_over(self, now: float, taken: int) -> bool:
        """`taken`: bytes until now, counted as `first_taken` is."""
        if taken > self._taken:
            self._taken, self._taken_s = taken, now
        if now - self._taken_s >= self.stall_s:
            return True
        if not self.least_bytes_s:
            return False
        return now - self.since_s >= self.stall_s + (taken - self.first_taken) / self.least_bytes_s


def bytes_taken(transport: asyncio.Transport) -> int:
    """Bytes of all answers of a connection that its client's kernel has acknowledged. Where ours does not say: less by
    what is not even with ours, which rises as well as long as nothing more is written."""
    connection = transport.get_extra_info("socket")
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        taken: int = _ACKED.unpack_from(info, _ACKED_AT)[0]
    except (AttributeError, OSError, struct.error):
        return -transport.get_write_buffer_size()
    return taken
