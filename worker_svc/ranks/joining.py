"""How ranks of several hosts come together: each dials rank 0 twice, for what it is told and for what it says."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field

from signalbox import __version__
from signalbox.errors import StartupError
from signalbox.links.tls.identity import Identity
from signalbox.v1 import ranks_pb2
from worker_svc.ranks import frames
from worker_svc.ranks.place import RankPlace
from worker_svc.transfer.channels.tcp_source import keep_alive
from worker_svc.transfer.channels.tls import encrypt_source, encrypt_target, greet
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)
JOIN_S = 600.0
"""How long ranks wait for each other: images are pulled, nodes come."""
HELLO_S = 5.0
"""How long a connection may take to say which rank it is."""
DIAL_S = 0.5
PATH_S = 60.0
"""Longest time for which the host of another rank may acknowledge nothing."""
MOST_STRANGERS = 16
TOLD, SAYS = ranks_pb2.RANK_CHANNEL_TOLD, ranks_pb2.RANK_CHANNEL_SAYS
VERSION = f"{__version__} {hashlib.sha256(ranks_pb2.DESCRIPTOR.serialized_pb).hexdigest()[:16]}"
"""Ranks of one release speak with each other, and with no others."""


class RefusedError(Exception):
    """Rank 0 does not want this one, now or ever."""


@dataclass
class Gathering:
    """The connections of all ranks, as they come."""

    num_ranks: int
    identity: Identity | None
    channels: dict[tuple[int, int], socket.socket] = field(default_factory=dict)
    """By rank and channel."""
    _strangers: set[socket.socket] = field(default_factory=set)
    _is_over: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, listener: socket.socket, patience_s: float) -> None:
        """Takes what connects until all are here, then closes the port. StartupError when time is over."""
        accepting = threading.Thread(target=self._accept, args=(listener,), name="ranks-joining", daemon=True)
        accepting.start()
        with self._changed:
            are_here = self._changed.wait_for(
                lambda: len(self.channels) == 2 * (self.num_ranks - 1), patience_s
            )
            self._is_over = True  # who says hello from now on takes nobody's place
            strangers = list(self._strangers)
        for connection in (listener, *strangers):
            _hang_up(connection)
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
            try:
                watch_path(connection)
                if self.identity is not None:
                    connection = encrypt_source(connection, self.identity)
            except OSError as error:
                logger.warning("what connected from %s is no rank: %s", address[0], error)
                connection.close()
                continue
            with self._changed:
                has_room = len(self._strangers) < 2 * self.num_ranks + MOST_STRANGERS
                if has_room:
                    self._strangers.add(connection)
            if not has_room:
                connection.close()
                continue
            # One deadline for all that it has to say, however slowly it says it.
            deadline = threading.Timer(HELLO_S, _hang_up, [connection])
            deadline.daemon = True
            deadline.start()
            meeting = (connection, address[0], deadline)
            threading.Thread(target=self._meet, args=meeting, daemon=True).start()

    def _meet(self, connection: socket.socket, host: str, deadline: threading.Timer) -> None:
        try:
            if isinstance(connection, ssl.SSLSocket) and self.identity is not None:
                greet(connection, self.identity)
            connection.settimeout(HELLO_S)
            hello = frames.receive(connection, ranks_pb2.RankHello, frames.HELLO_BYTES)
            deadline.cancel()
            if hello is None:
                raise ValueError("it said nothing")
            refusal = self._refusal_of(hello)
            frames.send(connection, ranks_pb2.RankWelcome(refusal=refusal))
            if refusal:
                raise ValueError(refusal)
            self._take(hello, connection)
        except (OSError, ValueError, TransferError) as error:
            logger.warning("what connected from %s is no rank: %s", host, error)
            connection.close()
        finally:
            deadline.cancel()
            with self._changed:
                self._strangers.discard(connection)

    def _refusal_of(self, hello: ranks_pb2.RankHello) -> str:
        if hello.version != VERSION:
            return "it is of another release"
        if hello.num_ranks != self.num_ranks or not 0 < hello.rank < self.num_ranks:
            return f"it is rank {hello.rank} of {hello.num_ranks}, and there are {self.num_ranks}"
        return "" if hello.channel in (TOLD, SAYS) else "it is for nothing"

    def _take(self, hello: ranks_pb2.RankHello, connection: socket.socket) -> None:
        connection.settimeout(None)
        with self._changed:
            if self._is_over:
                raise ValueError("all ranks are here")
            # A rank that was started again dials again: the newest counts until all are here.
            former = self.channels.pop((hello.rank, hello.channel), None)
            self.channels[hello.rank, hello.channel] = connection
            self._changed.notify_all()
        if former is not None:
            former.close()


def watch_path(connection: socket.socket) -> None:
    """What is sent leaves at once, and the system ends the connection when the other host acknowledges nothing for
    PATH_S: a host that is gone ends no connection."""
    keep_alive(connection)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # for what was sent: keepalive asks only where nothing was
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(PATH_S * 1e3))


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def listen(address: str) -> socket.socket:
    """The port where other ranks connect. StartupError where it cannot be had."""
    host, _, port = address.rpartition(":")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=MOST_STRANGERS)
    except OSError as error:
        raise StartupError(f"ranks cannot be listened for at {address}: {error.strerror}") from None


def dial(place: RankPlace, identity: Identity | None, patience_s: float = JOIN_S) -> list[socket.socket]:
    """The two connections to rank 0: what it tells, and what we say. StartupError when it does not come, or refuses."""
    give_up = time.monotonic() + patience_s
    while True:
        try:
            return [_dial_one(place, identity, channel) for channel in (TOLD, SAYS)]
        except RefusedError as error:
            raise StartupError(f"rank 0 at {place.leader} refuses this one: {error}") from None
        except (OSError, TransferError) as error:
            if time.monotonic() > give_up:
                raise StartupError(f"rank 0 is not reached at {place.leader}: {error}") from None
            time.sleep(DIAL_S)


def _dial_one(place: RankPlace, identity: Identity | None, channel: ranks_pb2.RankChannel) -> socket.socket:
    host, _, port = place.leader.rpartition(":")
    connection = socket.create_connection((host.strip("[]"), int(port)), HELLO_S)
    try:
        watch_path(connection)
        if identity is not None:
            connection = encrypt_target(connection, identity)
            greet(connection, identity)
        hello = ranks_pb2.RankHello(
            version=VERSION, rank=place.rank, num_ranks=place.num_ranks, channel=channel
        )
        frames.send(connection, hello)
        connection.settimeout(HELLO_S)
        welcome = frames.receive(connection, ranks_pb2.RankWelcome, frames.HELLO_BYTES)
        if welcome is None:
            raise OSError("it has hung up")
        if welcome.refusal:
            raise RefusedError(welcome.refusal)
        connection.settimeout(None)
        return connection
    except BaseException:
        connection.close()
        raise
