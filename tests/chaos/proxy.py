"""TCP proxies whose connections can be reset, delayed, or carry nothing for a while, in one direction or both."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import psutil

CHUNK_BYTES = 1 << 16
MOST_WAITING = 64
"""Chunks of one way that are not passed on yet."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes close() send RST."""


@dataclass(frozen=True)
class Cut:
    """What a cut does to a link: resets all connections, holds back what is sent by one end or both, or delays it. Held
    bytes are delivered when the cut ends, as TCP does behind a network that came back."""

    name: str
    resets: bool = False
    holds_up: bool = False
    """What the dialling end says."""
    holds_down: bool = False
    """What the listening end says."""
    delay_s: float = 0.0
    """Of all that is said."""


CUTS = (
    Cut("reset", resets=True),
    Cut("blackhole", holds_up=True, holds_down=True),
    Cut("blackhole up", holds_up=True),
    Cut("blackhole down", holds_down=True),
    Cut("slow", delay_s=0.3),
)


class Connections:
    """Those that suffer the same cuts."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.up, self.down = asyncio.Event(), asyncio.Event()
        """Set while the way is open."""
        self._writers: set[asyncio.StreamWriter] = set()
        self.heal()

    def cut(self, cut: Cut) -> None:
        """Begins a cut; new connections suffer it, too."""
        if cut.resets:
            self.reset()
        if cut.holds_up:
            self.up.clear()
        if cut.holds_down:
            self.down.clear()
        self.delay_s = cut.delay_s

    def heal(self) -> None:
        """Ends all cuts."""
        self.up.set()
        self.down.set()
        self.delay_s = 0.0

    def reset(self) -> None:
        """Both ends of all connections get RST."""
        for writer in list(self._writers):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    @contextlib.contextmanager
    def counted(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """It is one of them, and is closed behind the block."""
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.close()


class Proxy(Connections):
    """Listens on `port` and carries every connection to `target`, both on this host."""

    def __init__(self, port: int, target: int) -> None:
        super().__init__()
        self._port, self._target = port, target
        self.num_dials = 0
        """Connections so far."""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)

    async def close(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        self.reset()

    def connections_of(self, port: int) -> Connections:
        """Those that a connection from this port belongs to."""
        return self

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_dials += 1
        kind = self.connections_of(writer.get_extra_info("peername")[1])
        with kind.counted(writer):
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            except OSError:
                return
            with kind.counted(far_writer):
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, far_writer, kind, kind.up))
                    group.create_task(_pump(far_reader, writer, kind, kind.down))


class SortingProxy(Proxy):
    """Connections of some of those who dial are a kind of their own."""

    def __init__(self, port: int, target: int, is_other: Callable[[int], bool]) -> None:
        """is_other: whether a connection from this port is of that kind."""
        super().__init__(port, target)
        self.other = Connections()
        self._is_other = is_other

    def connections_of(self, port: int) -> Connections:
        """See Proxy."""
        return self.other if self._is_other(port) else self

    async def close(self) -> None:
        """See Proxy."""
        await super().close()
        self.other.reset()


def dials_from(pids: Iterable[int], port: int) -> bool:
    """One of these processes, or a child of theirs, has a connection from this port."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):
                if any(found.laddr.port == port for found in each.net_connections("tcp") if found.laddr):
                    return True
    return False


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Connections, is_open: asyncio.Event
) -> None:
    """Until the end of what comes, which is passed on like everything else when the way is open."""
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_WAITING)
    filling = asyncio.create_task(_fill(reader, waiting, kind))
    try:
        with contextlib.suppress(OSError):
            while (item := await waiting.get())[1]:
                if (rest := item[0] - time.monotonic()) > 0:
                    await asyncio.sleep(rest)
                await is_open.wait()
                writer.write(item[1])
                await writer.drain()
        await is_open.wait()
        writer.close()
    finally:
        filling.cancel()


async def _fill(
    reader: asyncio.StreamReader, waiting: asyncio.Queue[tuple[float, bytes]], kind: Connections
) -> None:
    """Takes what comes, with the time when it is due; nothing is its end."""
    data = b"-"
    while data:
        try:
            data = await reader.read(CHUNK_BYTES)
        except OSError:
            data = b""
        await waiting.put((time.monotonic() + kind.delay_s, data))
