"""Blocks go from one cache to another by whichever channel opens (TR)."""

from __future__ import annotations

import multiprocessing
import socket
import threading
from multiprocessing.connection import Connection

import numpy as np
import pytest

from tests.worker_svc.transfer.memories import assert_moved, make_memory, offered
from worker_svc.transfer.channels import tcp_target
from worker_svc.transfer.channels.choice import choose
from worker_svc.transfer.channels.registrations import new_token
from worker_svc.transfer.errors import TransferError

CHANNELS = ("shared memory", "tcp")
LARGE = ((200_000,) * 5,)
"""Blocks of a megabyte: an answer of several is more than sockets keep."""


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("channel", CHANNELS)
def test_blocks_arrive_where_they_are_wanted_and_nowhere_else(channel: str, checksums: bool) -> None:
    """TR1, TR2, TR7: scattered ones and runs, of both groups, into a cache of another size."""
    source, random = make_memory(40, seed=1), np.random.default_rng(2)
    with offered(source, by=channel) as (_, offer):
        for group in (0, 1):
            for blocks, into in (
                (random.permutation(40)[:17], random.permutation(60)[:17]),
                (np.arange(5, 25), np.arange(30, 50)),
                (np.array([7]), np.array([0])),
                (np.arange(3, 9), np.array([9, 8, 1, 2, 3, 40])),
                (np.array([], np.int64), np.array([], np.int64)),
            ):
                target = make_memory(60)
                reader = choose(offer, target, checksums=checksums)
                assert reader is not None and reader.channel == channel
                reader.read(group, blocks.tolist(), into.tolist())
                assert_moved(source, target, group, blocks.tolist(), into.tolist())
                reader.close()
                wait_for_detached(channel, offer.token, _)


def wait_for_detached(channel: str, token: bytes, server: object) -> None:
    """A pull has one connection at a time: until the source has seen the end of the last one, the next is refused."""
    if channel == "tcp":
        pull = server._registrations.find(token)  # type: ignore[attr-defined]
        done = threading.Event()
        while pull._stream is not None:
            done.wait(0.01)


@pytest.mark.parametrize("num_strips", [3, 1500])
def test_many_strips_and_many_batches(num_strips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """TR5: more pieces than the system takes at once, and more batches than are asked for ahead."""
    monkeypatch.setattr(tcp_target, "BATCH_BYTES", 3 * num_strips * 24)
    source, target = make_memory(64, [(24,) * num_strips], seed=1), make_memory(64, [(24,) * num_strips])
    with offered(source, by="tcp") as (_, offer):
        reader = choose(offer, target)
        assert reader is not None
        blocks = np.random.default_rng(0).permutation(64)[:50].tolist()
        reader.read(0, blocks, list(range(50)))
        assert_moved(source, target, 0, blocks, range(50))
        reader.close()


def test_the_best_channel_that_opens_is_taken() -> None:
    """TR2: shared memory, then TCP, then none, which means inline."""
    target = make_memory()
    with offered(make_memory(seed=1), by="none") as (server, offer):
        offer.MergeFrom(server.offer(offer.token))
        found = []
        for change in ({}, {"host_id": "another"}, {"tcp_address": "127.0.0.1:1"}, {"tcp_address": ""}):
            for name, value in change.items():
                setattr(offer, name, value)
            reader = choose(offer, target)
            found.append(reader and reader.channel)
    assert found == ["shared memory", "tcp", None, None]


def test_a_cache_of_other_blocks_is_refused_ahead_of_any_channel() -> None:
    """TR1"""
    with (
        offered(make_memory(), by="tcp") as (_, offer),
        pytest.raises(TransferError, match="others than ours"),
    ):
        choose(offer, make_memory(rows=((96, 96, 49), (64, 32))))


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_token_of_no_pull_opens_nothing(channel: str) -> None:
    """TR3"""
    with offered(make_memory(), by=channel) as (server, offer):
        right = offer.token
        for token in (new_token(), b"", right[:-1], right + b"0", bytes(16)):
            offer.token = token
            assert choose(offer, make_memory()) is None
        server.withdraw(right)
        offer.token = right
        assert choose(offer, make_memory()) is None


def test_a_pull_has_one_connection_at_a_time() -> None:
    """TR3"""
    with offered(make_memory(seed=1), by="tcp") as (_, offer):
        first, target = choose(offer, make_memory()), make_memory()
        assert first is not None
        assert choose(offer, target) is None
        first.read(0, [1], [2])


def test_only_blocks_of_the_pull_are_given() -> None:
    """TR5: and a refusal is told."""
    source, target = make_memory(seed=1), make_memory()
    with offered(source, by="tcp") as (server, offer):
        token = new_token()
        server.register(token, lambda group, blocks: group == 0 and bool((blocks < 4).all()))
        offer.token = token
        for group, blocks in ((0, [3, 4]), (1, [1]), (0, [99]), (5, [0])):
            reader = choose(offer, target)
            assert reader is not None
            with pytest.raises(TransferError):
                reader.read(group, blocks, list(range(len(blocks))))
            wait_for_detached("tcp", token, server)
        assert not any(rows.any() for rows in target.groups[0])
        reader = choose(offer, target)
        assert reader is not None
        reader.read(0, [3, 0], [1, 2])
        assert_moved(source, target, 0, [3, 0], [1, 2])


def test_behind_withdraw_nothing_is_read_that_was_being_sent() -> None:
    """TR3: what arrives was read before, although the target takes it only afterwards."""
    source = make_memory(16, LARGE, seed=1)
    with offered(source, by="tcp") as (server, offer):
        reader = choose(offer, make_memory(16, LARGE))
        assert isinstance(reader, tcp_target.TcpReader)
        stream = reader._stream
        tcp_target.send_message(stream, tcp_target.ReadBlocks(group=0, blocks=range(16)))
        pull = server._registrations.find(offer.token)
        while not pull._reading.locked():
            threading.Event().wait(0.01)
        server.withdraw(offer.token)
        for rows in source.groups[0]:
            rows[:] = 255
        taken = drain(stream._socket)  # type: ignore[attr-defined]
        assert 0 < len(taken) < 16 * 1_000_000
        assert b"\xff" * 64 not in taken


def drain(connection: socket.socket) -> bytes:
    """All that is still to come."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize("end", ["withdraw", "close"])
def test_a_read_that_waits_fails_when_its_pull_ends(end: str) -> None:
    """TR3, TR7: by the source's withdrawal, or by the target's own close from another thread."""
    asked, go = threading.Event(), threading.Event()

    def may_read(group: int, blocks: object) -> bool:
        asked.set()
        return go.wait(30)

    with offered(make_memory(seed=1), by="tcp") as (server, offer):
        offer.token = new_token()
        server.register(offer.token, may_read)
        reader = choose(offer, make_memory())
        assert reader is not None
        ender = threading.Thread(
            target=lambda: (
                asked.wait(30),
                server.withdraw(offer.token) if end == "withdraw" else reader.close(),
            )
        )
        ender.start()
        with pytest.raises(TransferError):
            reader.read(0, [1], [1])
        go.set()
        ender.join()


def serve_blocks(pipe: Connection, channel: str) -> None:
    """A source in a process of its own, until it is killed."""
    with offered(make_memory(16, LARGE, seed=3), by=channel) as (_, offer):
        pipe.send(offer.SerializeToString())
        pipe.recv()


@pytest.mark.parametrize("channel", CHANNELS)
def test_between_processes_and_when_the_source_is_killed(channel: str) -> None:
    """TR2, TR4: over TCP a read fails then; what is mapped stays readable as it was."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    source = context.Process(target=serve_blocks, args=(theirs, channel))
    source.start()
    try:
        from signalbox.v1.transfer_offer_pb2 import TransferOffer  # noqa: PLC0415

        offer, target = TransferOffer.FromString(ours.recv()), make_memory(20, LARGE)
        reader = choose(offer, target)
        assert reader is not None and reader.channel == channel
        reader.read(0, list(range(16)), list(range(4, 20)))
        assert_moved(make_memory(16, LARGE, seed=3), target, 0, range(16), range(4, 20))
        source.kill()
        source.join()
        if channel == "tcp":
            with pytest.raises(TransferError):
                reader.read(0, [1], [1])
        else:
            reader.read(0, [1], [0])
            assert target.read(0, [0]) == target.read(0, [5])
        reader.close()
    finally:
        source.kill()
