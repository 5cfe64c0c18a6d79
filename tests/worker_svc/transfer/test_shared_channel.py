"""Who may map a worker's cache, and what can be done with it then (TR4)."""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from signalbox.v1.transfer_offer_pb2 import ChannelHello, ChannelWelcome, Strip
from tests.worker_svc.transfer.memories import ROW_BYTES, make_memory, offered
from worker_svc.transfer.channels.acceptor import Acceptor, Welcome
from worker_svc.transfer.channels.registrations import new_token
from worker_svc.transfer.channels.shared_source import SharedSource, strips_of
from worker_svc.transfer.channels.shared_target import SharedReader, ask
from worker_svc.transfer.errors import TransferError

NOBODY = 65_534


def test_a_descriptor_that_is_handed_out_can_be_read_and_nothing_else() -> None:
    """TR4: neither written, nor mapped to write, nor cut off or made longer, also when it is opened again."""
    memory = make_memory(seed=1)
    with offered(memory, by="shared memory") as (_, offer):
        hello = ChannelHello(token=offer.token, layout_digest=offer.layout_digest)
        _, fd = ask(offer.socket_path, hello)
    before = memory.read(0, [0])
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    attempts: list[Callable[[int], object]] = [
        lambda file: os.pwrite(file, b"x", 0),
        lambda file: mmap.mmap(file, 4096),
        lambda file: os.ftruncate(file, 0),
        lambda file: os.ftruncate(file, 1 << 30),
    ]
    for attempt in attempts:
        for file in (fd, again):
            with pytest.raises(OSError):
                attempt(file)
    assert memory.read(0, [0]) == before
    os.close(fd)
    os.close(again)


def test_what_the_source_writes_is_seen_through_the_mapping() -> None:
    """TR4: it is the cache itself that is mapped, and no copy of it."""
    source, target = make_memory(seed=1), make_memory()
    with offered(source, by="shared memory") as (_, offer):
        reader = SharedReader(target, offer.socket_path, offer.token)
    source.groups[0][1][7] = 99
    reader.read(0, [7], [3])
    assert (target.groups[0][1][3] == 99).all()
    reader.close()
    with pytest.raises(TransferError):
        reader.read(0, [7], [3])


def test_nobody_else_enters_the_socket_and_it_goes() -> None:
    """TR4"""
    with offered(make_memory(), by="shared memory") as (_, offer):
        path = Path(offer.socket_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


def test_a_directory_whose_path_is_too_long_for_a_socket_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long-" * 25)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    source, target = make_memory(seed=1), make_memory()
    with offered(source, by="shared memory") as (_, offer):
        assert len(offer.socket_path) > 125
        reader = SharedReader(target, offer.socket_path, offer.token)
    reader.read(0, [7], [3])
    reader.close()
    assert (target.groups[0][1][3] == source.groups[0][1][7]).all()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_handed_nothing_though_it_knows_the_token() -> None:
    """TR4: also where somebody has opened the directory to all."""
    with offered(make_memory(), by="shared memory") as (_, offer):
        path = Path(offer.socket_path)
        for folder in (path.parent, *path.parent.parents[:-1]):
            if not folder.stat().st_mode & stat.S_IXOTH and folder != path.parent:
                pytest.skip("others cannot enter the directory of temporary files")
        path.parent.chmod(0o755)
        path.chmod(0o666)
        child = os.fork()
        if child == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(str(path))
                hello = ChannelHello(token=offer.token, layout_digest=offer.layout_digest)
                try:
                    connection.send(hello.SerializeToString())
                    _, fds, _, _ = socket.recv_fds(connection, 1 << 16, 1)
                except OSError:
                    fds = []
                os._exit(len(fds))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def false_source(tmp_path: Path, welcome: ChannelWelcome, fd: int | None) -> Iterator[str]:
    """A source that answers every hello with that."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = str(tmp_path / "s")
    listener.bind(path)

    def serve(connection: socket.socket, _: Welcome) -> None:
        connection.recv(256)
        content = welcome.SerializeToString() or b"\xff"
        socket.send_fds(connection, [content], [] if fd is None else [fd])

    acceptor = Acceptor(listener, serve, "false-source")
    try:
        yield path
    finally:
        acceptor.close()


def strips(**change: int) -> ChannelWelcome:
    """Those of a memory of 40 blocks, the last of them changed."""
    memory = make_memory(40)
    assert memory.shared is not None
    found = strips_of(memory, memory.shared)
    for name, value in change.items():
        setattr(found[-1], name, value)
    return ChannelWelcome(strips=found)


@pytest.mark.parametrize(
    "welcome",
    [
        strips(offset=1 << 40),
        strips(num_blocks=1 << 31),
        strips(bytes_per_block=33),
        ChannelWelcome(strips=[Strip(offset=0, num_blocks=1, bytes_per_block=96)]),
        ChannelWelcome(),
    ],
    ids=["far", "many", "wide", "few", "none"],
)
def test_a_source_that_says_wrongly_what_it_has_is_left(tmp_path: Path, welcome: ChannelWelcome) -> None:
    """TR7: nothing outside of the file is mapped, whatever is said of it."""
    shared = make_memory(40).shared
    assert shared is not None
    with false_source(tmp_path, welcome, shared.fd) as path, pytest.raises(TransferError):
        SharedReader(make_memory(), path, new_token())


def test_memory_that_could_be_cut_off_is_not_mapped(tmp_path: Path) -> None:
    """TR7: reading it would kill the target."""
    file = os.memfd_create("plain", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 1 << 20)
    with (
        false_source(tmp_path, strips(), file) as path,
        pytest.raises(TransferError, match="cut off"),
    ):
        SharedReader(make_memory(), path, new_token())
    os.close(file)


def test_a_source_that_hands_out_no_descriptor_is_left(tmp_path: Path) -> None:
    """TR7"""
    with false_source(tmp_path, strips(), None) as path, pytest.raises(TransferError):
        SharedReader(make_memory(), path, new_token())


def test_blocks_beyond_the_source_are_refused() -> None:
    """TR7: the source has fewer than the target."""
    target = make_memory(60)
    with offered(make_memory(40), by="shared memory") as (_, offer):
        reader = SharedReader(target, offer.socket_path, offer.token)
        with pytest.raises(TransferError, match="no such block"):
            reader.read(0, [40], [1])
        reader.read(0, [39], [59])


def test_no_descriptor_is_left_behind() -> None:
    """TR6: at either end, whatever was refused."""

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    source, target = make_memory(), make_memory()
    with offered(source, by="shared memory") as (server, offer):
        before = count()
        for token in (offer.token, new_token()) * 5:
            try:
                SharedReader(target, offer.socket_path, token).close()
            except TransferError:
                assert token != offer.token
        assert isinstance(server._shared, SharedSource)
    server.close()
    assert count() <= before


def test_rows_are_the_ones_that_the_memory_says() -> None:
    """TR1: a strip begins on a page, and none lies in another."""
    memory = make_memory(40)
    assert memory.shared is not None
    found = strips_of(memory, memory.shared)
    assert [strip.bytes_per_block for strip in found] == [size for group in ROW_BYTES for size in group]
    spans = sorted((s.offset, s.offset + s.num_blocks * s.bytes_per_block) for s in found)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert all(start % mmap.PAGESIZE == 0 for start, _ in spans)
    assert np.shares_memory(memory.groups[0][0], memory.shared._bytes)
