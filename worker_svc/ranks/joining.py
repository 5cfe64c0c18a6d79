"""How ranks of several hosts come together: each dials rank 0 twice, for what it is told and for what it says."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import threading
import time
from dataclasses import dataclass, field

from signalbox.errors import StartupError
from signalbox.links.tls.identity import Identity
from signalbox.v1 import ranks_pb2
from worker_svc.ranks import frames
from worker_svc.ranks.place import RankPlace
from worker_svc.transfer.channels.tls import encrypt_source, encrypt_target, greet
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)
JOIN_S = 600.0
"""How long ranks wait for each other: images are pulled, nodes come."""
HELLO_S = 5.0
"""How long a connection may take to say which rank it is."""
DIAL_S = 0.5
MOST_STRANGERS = 16
TOLD, SAYS = ranks_pb2.RANK_CHANNEL_TOLD, ranks_pb2.RANK_CHANNEL_SAYS
VERSION = hashlib.sha256(ranks_pb2.DESCRIPTOR.serialized_pb).hexdigest()[:16]
"""Ranks of one release speak with each other, and with no others."""


@dataclass
class Gathering:
    """The connections of all ranks, as they come."""

    num_ranks: int
    identity: Identity | None
    channels: dict[tuple[int, int], socket.socket] = field(default_factory=dict)
    """By rank and channel."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_STRANGERS))

    def wait(self, listener: socket.socket, patience_s: float) -> None:
        """Takes what connects until all are here, then closes the port. StartupError when time is over."""
        accepting = threading.Thread(target=self._accept, args=(listener,), name="ranks-joining", daemon=True)
        accepting.start()
        with self._changed:
            are_here = self._changed.wait_for(
                lambda: len(self.channels) == 2 * (self.num_ranks - 1), patience_s
            )
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        if not are_here:
            here = {rank for rank, _ in self.channels}
            missing = sorted(set(range(1, self.num_ranks)) - here)
            raise StartupError(f"rank {missing[0] if missing else 1} has not come in {patience_s:.0f} s")

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._meet, args=(connection, address[0]), daemon=True).start()

    def _meet(self, connection: socket.socket, host: str) -> None:
        try:
            connection.settimeout(HELLO_S)
            if self.identity is not None:
                connection = encrypt_source(connection, self.identity)
                greet(connection, self.identity)
                connection.settimeout(HELLO_S)
            hello = frames.receive(connection, ranks_pb2.RankHello, frames.HELLO_BYTES)
            if hello is None:
                raise ValueError("it said nothing")
            self._take(hello, connection)
        except (OSError, ValueError, TransferError) as error:
            logger.warning("what connected from %s is no rank: %s", host, error)
            connection.close()
        finally:
            self._room.release()

    def _take(self, hello: ranks_pb2.RankHello, connection: socket.socket) -> None:
        if hello.version != VERSION:
            raise ValueError("it is of another release")
        if hello.num_ranks != self.num_ranks or not 0 < hello.rank < self.num_ranks:
            raise ValueError(f"it is rank {hello.rank} of {hello.num_ranks}")
        if hello.channel not in (TOLD, SAYS):
            raise ValueError("it is for nothing")
        connection.settimeout(None)
        with self._changed:
            # A rank that was started again dials again: the newest counts until all are here.
            former = self.channels.pop((hello.rank, hello.channel), None)
            self.channels[hello.rank, hello.channel] = connection
            self._changed.notify_all()
        if former is not None:
            former.close()


def listen(address: str) -> socket.socket:
    """The port where other ranks connect. StartupError where it cannot be had."""
    host, _, port = address.rpartition(":")
    try:
        return socket.create_server((host.strip("[]"), int(port)), backlog=MOST_STRANGERS)
    except OSError as error:
        raise StartupError(f"ranks cannot be listened for at {address}: {error.strerror}") from None


def dial(place: RankPlace, identity: Identity | None, patience_s: float = JOIN_S) -> list[socket.socket]:
    """The two connections to rank 0: what it tells, and what we say. StartupError when it does not come."""
    give_up = time.monotonic() + patience_s
    while True:
        try:
            return [_dial_one(place, identity, channel) for channel in (TOLD, SAYS)]
        except (OSError, TransferError) as error:
            if time.monotonic() > give_up:
                raise StartupError(f"rank 0 is not reached at {place.leader}: {error}") from None
            time.sleep(DIAL_S)


def _dial_one(place: RankPlace, identity: Identity | None, channel: ranks_pb2.RankChannel) -> socket.socket:
    host, _, port = place.leader.rpartition(":")
    connection = socket.create_connection((host.strip("[]"), int(port)), HELLO_S)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if identity is not None:
            connection = encrypt_target(connection, identity)
            greet(connection, identity)
        hello = ranks_pb2.RankHello(
            version=VERSION, rank=place.rank, num_ranks=place.num_ranks, channel=channel
        )
        frames.send(connection, hello)
        connection.settimeout(None)
        return connection
    except BaseException:
        connection.close()
        raise
