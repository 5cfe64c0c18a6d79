"""A peer that is hostile or confused costs its own connection, whichever end it is (TR6, TR7)."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from signalbox.v1.transfer_offer_pb2 import (
    BlocksRead,
    ChannelHello,
    ChannelWelcome,
    ReadBlocks,
    TransferOffer,
)
from tests.signalbox.runtime.test_threads import die_at_birth
from tests.worker_svc.transfer.memories import assert_moved, make_memory, offered
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels import streams, tcp_source
from worker_svc.transfer.channels.acceptor import MOST_STRANGERS, Acceptor, Welcome
from worker_svc.transfer.channels.streams import PlainStream, receive_message, send_message
from worker_svc.transfer.channels.tcp_target import TcpReader
from worker_svc.transfer.errors import TransferError

STALL_S = 0.5


@pytest.fixture(autouse=True)
def short_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long here."""
    monkeypatch.setattr(streams, "STALL_S", STALL_S)


@pytest.fixture
def source() -> Iterator[tuple[BlockMemory, TransferOffer]]:
    memory = make_memory(seed=1)
    with offered(memory, by="tcp") as (_, offer):
        yield memory, offer


def address_of(offer: TransferOffer) -> tuple[str, int]:
    host, _, port = offer.tcp_address.rpartition(":")
    return host, int(port)


def framed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def hello_of(offer: TransferOffer, **change: object) -> bytes:
    said = {"token": offer.token, "layout_digest": offer.layout_digest, **change}
    return framed(ChannelHello(**said).SerializeToString())  # type: ignore[arg-type]


def is_closed_by_the_source(connection: socket.socket) -> bool:
    """Reads all that comes, which ends."""
    connection.settimeout(20)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def assert_still_serves(memory: BlockMemory, offer: TransferOffer) -> None:
    """A pull gets its blocks as if nothing had been; a connection that ended a moment ago may still be known."""
    target = make_memory()
    for _ in range(200):
        try:
            reader = TcpReader(target, address_of(offer), offer.token)
            break
        except TransferError:
            time.sleep(0.02)
    reader.read(0, [3, 5], [1, 2])
    assert_moved(memory, target, 0, [3, 5], [1, 2])
    reader.close()


def threads_of_channels() -> int:
    return sum(thread.name.startswith("transfer") for thread in threading.enumerate())


Case = Callable[[TransferOffer], bytes]
FIRST_WORDS: dict[str, Case] = {
    "nothing": lambda offer: b"",
    "http": lambda offer: b"GET / HTTP/1.1\r\n\r\n",
    "a huge frame": lambda offer: struct.pack(">I", 0xFFFFFFFF) + b"x" * 1000,
    "a frame of nothing": lambda offer: framed(b""),
    "no protobuf": lambda offer: framed(b"\xff" * 40),
    "half a frame": lambda offer: hello_of(offer)[:20],
    "a wrong token": lambda offer: hello_of(offer, token=bytes(16)),
    "an empty token": lambda offer: hello_of(offer, token=b""),
    "a long token": lambda offer: hello_of(offer, token=offer.token * 4),
    "other blocks": lambda offer: hello_of(offer, layout_digest="0" * 64),
}
REQUESTS: dict[str, Case] = {
    "a huge frame": lambda offer: struct.pack(">I", 0x7FFFFFFF),
    "no protobuf": lambda offer: framed(b"\xff" * 40),
    "half a frame": lambda offer: framed(ReadBlocks(blocks=range(40)).SerializeToString())[:-9],
    "more blocks than fit a frame": lambda offer: framed(ReadBlocks(blocks=[300] * 5000).SerializeToString()),
}


@pytest.mark.parametrize("words", FIRST_WORDS)
def test_whoever_shows_no_token_is_sent_away(words: str, source: tuple[BlockMemory, TransferOffer]) -> None:
    """TR3, TR6"""
    memory, offer = source
    with socket.create_connection(address_of(offer)) as connection:
        connection.sendall(FIRST_WORDS[words](offer))
        assert is_closed_by_the_source(connection)
    assert_still_serves(memory, offer)


@pytest.mark.parametrize("words", REQUESTS)
def test_whoever_asks_for_nonsense_is_sent_away(
    words: str, source: tuple[BlockMemory, TransferOffer]
) -> None:
    """TR6"""
    memory, offer = source
    with socket.create_connection(address_of(offer)) as connection:
        connection.sendall(hello_of(offer) + REQUESTS[words](offer))
        assert is_closed_by_the_source(connection)
    assert_still_serves(memory, offer)


def test_blocks_that_are_not_there_or_too_many_are_refused(
    source: tuple[BlockMemory, TransferOffer],
) -> None:
    """TR6: the connection goes on behind a refusal."""
    _, offer = source
    with socket.create_connection(address_of(offer)) as connection:
        stream = PlainStream(connection)
        connection.sendall(hello_of(offer))
        receive_message(stream, ChannelWelcome, 100)
        most = tcp_source.MOST_BLOCKS
        for group, blocks in ((9, [0]), (0, [40]), (0, [0xFFFFFFFF]), (1, [1] * (most + 1))):
            send_message(stream, ReadBlocks(group=group, blocks=blocks))
            assert receive_message(stream, BlocksRead, 1000).refusal
        send_message(stream, ReadBlocks(group=0, blocks=[1]))
        assert receive_message(stream, BlocksRead, 1000).num_bytes == 240


def test_a_slow_one_is_sent_away(source: tuple[BlockMemory, TransferOffer]) -> None:
    """TR6: a byte now and then does not keep a connection."""
    memory, offer = source
    with socket.create_connection(address_of(offer)) as connection, pytest.raises(OSError):
        for byte in hello_of(offer) * 10:
            connection.sendall(bytes([byte]))
            time.sleep(STALL_S / 5)
    assert_still_serves(memory, offer)


def test_one_that_takes_nothing_is_sent_away() -> None:
    """TR6: nor does one that asks, and does not read."""
    memory = make_memory(16, ((200_000,) * 5,), seed=1)
    with (
        offered(memory, by="tcp") as (server, offer),
        socket.create_connection(address_of(offer)) as connection,
    ):
        connection.sendall(hello_of(offer) + framed(ReadBlocks(blocks=range(16)).SerializeToString()))
        pull = server._registrations.find(offer.token)
        while pull._stream is None:
            time.sleep(0.01)
        while pull._stream is not None:
            time.sleep(0.01)


def test_strangers_keep_nobody_out(source: tuple[BlockMemory, TransferOffer]) -> None:
    """TR6: of those that say nothing only so many are kept, and the oldest goes first."""
    memory, offer = source
    crowd = [socket.create_connection(address_of(offer)) for _ in range(3 * MOST_STRANGERS)]
    assert_still_serves(memory, offer)
    assert threads_of_channels() <= MOST_STRANGERS + 8
    for connection in crowd:
        assert is_closed_by_the_source(connection)
        connection.close()


def test_random_bytes_leave_nothing_behind(source: tuple[BlockMemory, TransferOffer]) -> None:
    """TR6: behind a token or ahead of it."""
    memory, offer = source
    draw, before = random.Random(1), threads_of_channels()
    for number in range(60):
        with socket.create_connection(address_of(offer)) as connection:
            noise = framed(draw.randbytes(draw.randrange(60))) if number % 2 else draw.randbytes(40)
            connection.sendall((hello_of(offer) if draw.random() < 0.5 else b"") + noise)
            with contextlib.suppress(OSError):  # the source has closed it already
                connection.shutdown(socket.SHUT_WR)
            assert is_closed_by_the_source(connection)
    assert_still_serves(memory, offer)
    deadline = time.monotonic() + 20
    while threads_of_channels() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threads_of_channels() <= before


@contextmanager
def false_source(answers: bytes) -> Iterator[tuple[str, int]]:
    """A source that takes a hello, and says that."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket, _: Welcome) -> None:
        stream = PlainStream(connection)
        receive_message(stream, ChannelHello, 1000)
        connection.sendall(answers)
        stream.wait()
        receive_message(stream, ReadBlocks, 1000)
        time.sleep(2 * STALL_S)

    acceptor = Acceptor(listener, serve, "false-source")
    try:
        yield listener.getsockname()
    finally:
        acceptor.close()


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No thread is to be had for the first one of that name."""
    real, failed = threading.Thread.start, threading.Event()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == name and not failed.is_set():
            failed.set()
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)


@pytest.mark.parametrize("spoil", [refuse, die_at_birth])
def test_an_error_with_one_connection_leaves_the_port_open(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch, str], None]
) -> None:
    """LO1, LO3: of any kind, a thread that is not to be had too, or that ends before it begins."""
    served = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket, _: Welcome) -> None:
        served.set()

    acceptor = Acceptor(listener, serve, "patient")
    spoil(monkeypatch, "patient")
    try:
        with socket.create_connection(listener.getsockname()) as first:
            assert first.recv(1) == b"", "it is not closed"
        assert not served.is_set()
        with socket.create_connection(listener.getsockname()):
            assert served.wait(10)
    finally:
        acceptor.close()


WELCOME = framed(ChannelWelcome().SerializeToString())


def answer_of(num_bytes: int, content: bytes = b"") -> bytes:
    return WELCOME + framed(BlocksRead(num_bytes=num_bytes).SerializeToString()) + content


@pytest.mark.parametrize(
    "answers",
    [
        b"",
        b"\x00\x00",
        framed(b"\xff\xff"),
        struct.pack(">I", 1 << 31),
        WELCOME,
        WELCOME + framed(b"\xff"),
        answer_of(0),
        answer_of(241),
        answer_of(1 << 62),
        answer_of(240, b"x" * 239),
        WELCOME + framed(BlocksRead(refusal="no").SerializeToString()),
    ],
)
def test_a_target_fails_within_time_whatever_its_source_says(answers: bytes) -> None:
    """TR7"""
    with false_source(answers) as address, pytest.raises(TransferError):
        TcpReader(make_memory(), address, bytes(16)).read(0, [1], [1])


@pytest.mark.parametrize("checksums", [False, True])
def test_bytes_that_change_on_the_way(checksums: bool) -> None:
    """TR7: are noticed where checksums are wanted, and only there."""
    memory, target = make_memory(seed=1), make_memory()
    content = bytearray(memory.read(0, [1]))
    checksum = tcp_source.checksum_of([memoryview(bytes(content))])
    content[100] ^= 1
    with false_source(answer_of(240, bytes(content) + (checksum if checksums else b""))) as address:
        reader = TcpReader(target, address, bytes(16), checksums=checksums)
        if checksums:
            with pytest.raises(TransferError, match="checksum"):
                reader.read(0, [1], [1])
        else:
            reader.read(0, [1], [1])
            assert target.read(0, [1]) == bytes(content)
