"""A TCP proxy whose connections can be reset, or carry nothing for a while, in one direction or both."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

CHUNK_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes close() send RST."""


@dataclass(frozen=True)
class Cut:
    """What a cut does to a link: resets all connections, or holds back what is sent by one end or both. Held bytes are
    delivered when the cut ends, as TCP does behind a network that came back."""

    name: str
    resets: bool = False
    holds_up: bool = False
    """What the dialling end says."""
    holds_down: bool = False
    """What the listening end says."""


CUTS = (
    Cut("reset", resets=True),
    Cut("blackhole", holds_up=True, holds_down=True),
    Cut("blackhole up", holds_up=True),
    Cut("blackhole down", holds_down=True),
)


class Proxy:
    """Listens on `port` and carries every connection to `target`, both on this host."""

    def __init__(self, port: int, target: int) -> None:
        self._port, self._target = port, target
        self.num_dials = 0
        """Connections so far."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self.heal()

    async def start(self) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)

    async def close(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        self.reset()

    def cut(self, cut: Cut) -> None:
        """Begins a cut; new connections suffer it, too."""
        if cut.resets:
            self.reset()
        if cut.holds_up:
            self._up.clear()
        if cut.holds_down:
            self._down.clear()

    def heal(self) -> None:
        """Ends all cuts."""
        self._up.set()
        self._down.set()

    def reset(self) -> None:
        """Both ends of all connections get RST."""
        for writer in list(self._writers):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_dials += 1
        with self._counted(writer):
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            except OSError:
                return
            with self._counted(far_writer):
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, far_writer, self._up))
                    group.create_task(_pump(far_reader, writer, self._down))

    @contextlib.contextmanager
    def _counted(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
    """Until the end of what comes, which is passed on like everything else when the way is open."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            await is_open.wait()
            writer.write(data)
            await writer.drain()
    await is_open.wait()
    writer.close()
