"""The source's end of the TCP channel: answers each request for blocks with their rows, from where they lie."""

from __future__ import annotations

import socket
import ssl
import zlib

from signalbox.links.tls.identity import Identity
from signalbox.v1.transfer_offer_pb2 import BlocksRead, ChannelHello, ChannelWelcome, ReadBlocks
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels import tls
from worker_svc.transfer.channels.acceptor import Acceptor, Welcome
from worker_svc.transfer.channels.registrations import Pull, Registrations
from worker_svc.transfer.channels.rows import views_of
from worker_svc.transfer.channels.streams import (
    PlainStream,
    Stream,
    TlsStream,
    Views,
    receive_message,
    send_message,
)
from worker_svc.transfer.errors import TransferError

MOST_HELLO_BYTES = 256
MOST_BLOCKS = 1024
"""Blocks that may be asked for at once."""
MOST_REQUEST_BYTES = 16 + 5 * MOST_BLOCKS
KEEPALIVE_S, NUM_PROBES = 15, 4
"""A target that has vanished is noticed by the system, between two requests."""


class TcpSource:
    """Listens for targets."""

    def __init__(
        self,
        memory: BlockMemory,
        registrations: Registrations,
        listen: tuple[str, int],
        identity: Identity | None,
    ) -> None:
        """identity: certificates that connections show; None: they are in plaintext. Raises OSError when it cannot
        listen there."""
        self._memory, self._registrations, self._identity = memory, registrations, identity
        family = socket.getaddrinfo(*listen, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.create_server(listen, family=family)
        self.port: int = listener.getsockname()[1]
        self._acceptor = Acceptor(listener, self._serve, "transfer-tcp", self._prepare)

    def close(self) -> None:
        """Takes no connections any more."""
        self._acceptor.close()

    def _prepare(self, connection: socket.socket) -> socket.socket:
        keep_alive(connection)
        return connection if self._identity is None else tls.encrypt_source(connection, self._identity)

    def _serve(self, connection: socket.socket, welcome: Welcome) -> None:
        stream = self._stream(connection)
        hello = receive_message(stream, ChannelHello, MOST_HELLO_BYTES)
        pull = self._registrations.find(hello.token)
        if hello.layout_digest != self._memory.digest:
            raise TransferError("the blocks of the target are others than ours")
        pull.attach(stream)
        try:
            welcome()
            send_message(stream, ChannelWelcome())
            while True:
                stream.wait()
                self._answer(stream, pull, receive_message(stream, ReadBlocks, MOST_REQUEST_BYTES), hello)
        finally:
            pull.detach()

    def _stream(self, connection: socket.socket) -> Stream:
        if self._identity is None:
            return PlainStream(connection)
        assert isinstance(connection, ssl.SSLSocket)
        tls.greet(connection, self._identity)
        return TlsStream(connection)

    def _answer(self, stream: Stream, pull: Pull, request: ReadBlocks, hello: ChannelHello) -> None:
        try:
            blocks = self._memory.checked(request.group, request.blocks)
            if len(blocks) > MOST_BLOCKS or not pull.may_read(request.group, blocks):
                raise TransferError("these blocks are not the pull's")
        except TransferError as error:
            send_message(stream, BlocksRead(refusal=str(error)))
            return
        with pull.reading():
            views = views_of(self._memory, request.group, blocks)
            send_message(stream, BlocksRead(num_bytes=sum(map(len, views))))
            stream.send(views)
            if hello.wants_checksums:
                stream.send([memoryview(checksum_of(views))])


def checksum_of(views: Views) -> bytes:
    """CRC-32 of the bytes of `views`, 4 bytes big-endian."""
    crc = 0
    for view in views:
        crc = zlib.crc32(view, crc)
    return crc.to_bytes(4, "big")


def keep_alive(connection: socket.socket) -> None:
    """The system asks whether the other end is still there, and what is sent leaves at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_S),
        ("TCP_KEEPCNT", NUM_PROBES),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
