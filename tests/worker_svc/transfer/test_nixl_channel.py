"""Blocks by NIXL, between agents of real processes (TR10, TR11)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection

import pytest

from signalbox.v1.transfer_offer_pb2 import TransferOffer
from tests.worker_svc.transfer.memories import ROW_BYTES, assert_moved, make_memory
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels import nixl_target
from worker_svc.transfer.channels.block_server import BlockServer
from worker_svc.transfer.channels.choice import choose
from worker_svc.transfer.channels.nixl_agent import MODULE, NixlAgent
from worker_svc.transfer.channels.nixl_target import NixlReader
from worker_svc.transfer.channels.reader import BlockReader
from worker_svc.transfer.channels.registrations import new_token
from worker_svc.transfer.errors import TransferError

pytestmark = [
    pytest.mark.skipif(find_spec(MODULE) is None, reason="NIXL is not installed: make install EXTRAS=,nixl"),
    pytest.mark.timeout(120),
]
LARGE = ((6144, 6144), (6144,))
NUM_SOURCE = 1500


def serve_blocks(
    pipe: Connection, rows: Sequence[Sequence[int]], num_blocks: int, is_registered: bool
) -> None:
    """A source in a process of its own, which offers NIXL alone, until it is killed."""
    os.environ["UCX_TLS"] = "tcp"
    server = BlockServer(make_memory(num_blocks, rows, seed=3), shares_memory=False, agent=NixlAgent())
    token = new_token()
    if is_registered:
        server.register(token, lambda group, blocks: True)
    pipe.send(server.offer(token).SerializeToString())
    pipe.recv()
    server.withdraw(token)
    pipe.send(b"")
    pipe.recv()


class Source:
    """The process, and what it offers."""

    def __init__(self, rows: Sequence[Sequence[int]], num_blocks: int, is_registered: bool) -> None:
        self.pipe, theirs = multiprocessing.get_context("spawn").Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=serve_blocks, args=(theirs, rows, num_blocks, is_registered)
        )
        self.process.start()
        self.offer = TransferOffer.FromString(self.pipe.recv())
        self.memory = make_memory(num_blocks, rows, seed=3)

    def send(self, number: signal.Signals) -> None:
        """Sends the process a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


@contextmanager
def source(
    rows: Sequence[Sequence[int]] = ROW_BYTES, num_blocks: int = 40, *, is_registered: bool = True
) -> Iterator[Source]:
    found = Source(rows, num_blocks, is_registered)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.join()


@pytest.fixture(scope="module")
def agent() -> Iterator[NixlAgent]:
    """This process's, as a machine apart would have it: by TCP alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UCX_TLS", "tcp")
        yield NixlAgent()


def opened(found: Source, target: BlockMemory, agent: NixlAgent) -> BlockReader:
    reader = choose(found.offer, target, names=("nixl",), agent=agent)
    assert reader is not None and reader.channel == "nixl"
    return reader


def test_blocks_of_all_groups_go_where_they_are_told(agent: NixlAgent) -> None:
    """TR2, TR10: scattered at both ends, of two groups, by several pulls at a time."""
    with source() as found:
        target = make_memory(60)
        first, second = opened(found, target, agent), opened(found, target, agent)
        first.read(0, [7, 3, 39, 0], [5, 58, 4, 1])
        first.close()
        second.read(1, [1, 2], [8, 9])
        second.read(1, [], [])
        assert_moved(found.memory, target, 0, [7, 3, 39, 0], [5, 58, 4, 1])
        assert_moved(found.memory, target, 1, [1, 2], [8, 9])
        second.close()
        with pytest.raises(TransferError):
            second.read(0, [1], [1])
        opened(found, target, agent).close()


def test_a_read_that_takes_many_batches(agent: NixlAgent) -> None:
    """TR10"""
    with source(LARGE, NUM_SOURCE) as found:
        target = make_memory(NUM_SOURCE, LARGE)
        reader = opened(found, target, agent)
        blocks = list(range(NUM_SOURCE))
        reader.read(0, blocks, blocks[::-1])
        assert_moved(found.memory, target, 0, blocks, blocks[::-1])
        reader.close()


def test_blocks_that_the_source_does_not_have_are_refused(agent: NixlAgent) -> None:
    """TR7: by number, and where it says wrongly what it has."""
    with source() as found:
        target = make_memory(60)
        with pytest.raises(TransferError, match="no such block"):
            opened(found, target, agent).read(0, [40], [1])
        strips = [strip.SerializeToString() for strip in found.offer.nixl_strips]
        found.offer.nixl_strips[-1].bytes_per_block += 1
        assert choose(found.offer, target, names=("nixl",), agent=agent) is None
        del found.offer.nixl_strips[1:]
        assert choose(found.offer, target, names=("nixl",), agent=agent) is None
        del found.offer.nixl_strips[:]
        found.offer.nixl_strips.extend(type(found.offer.nixl_strips.add()).FromString(s) for s in strips)
        del found.offer.nixl_strips[0]
        found.offer.nixl_strips[0].offset = 4096  # nothing is registered there
        assert choose(found.offer, target, names=("nixl",), agent=agent) is None
        assert not any(rows.any() for group in target.groups for rows in group)


def test_garbage_for_metadata_opens_nothing(agent: NixlAgent) -> None:
    """TR7"""
    with source() as found:
        found.offer.nixl_metadata = found.offer.nixl_metadata[:40]
        assert choose(found.offer, make_memory(), names=("nixl",), agent=agent) is None


def test_a_source_that_dies_fails_the_read_in_time(agent: NixlAgent) -> None:
    """TR7, TR11: and the agent reads from others as before."""
    with source() as found, source() as other:
        target = make_memory()
        reader = opened(found, target, agent)
        found.process.kill()
        found.process.join()
        with pytest.raises(TransferError):
            reader.read(0, [1], [1])
        reader.close()
        opened(other, target, agent).read(0, [1], [1])
        assert target.read(0, [1]) == other.memory.read(0, [1])


def test_what_arrives_behind_the_end_of_a_pull_changes_no_block(agent: NixlAgent) -> None:
    """TR11: a source that hangs; whoever closes the channel does not wait for it, and what it says later is not
    written to blocks, which are others' by then."""
    with source(LARGE, NUM_SOURCE) as found:
        target = make_memory(NUM_SOURCE, LARGE)
        # Another pull keeps the connection, and whoever waits for that one has the late bytes brought in.
        reader, other = opened(found, target, agent), opened(found, target, agent)
        assert isinstance(reader, NixlReader)
        found.send(signal.SIGSTOP)
        closer = threading.Timer(0.5, reader.close)
        closer.start()
        started = time.monotonic()
        with pytest.raises(TransferError, match="closed"):
            reader.read(0, list(range(300)), list(range(300)))
        assert time.monotonic() - started < nixl_target.STALL_S / 2
        closer.join()
        assert not reader._buffer[6144 : 300 * 6144].any()
        found.send(signal.SIGCONT)
        deadline = time.monotonic() + 10
        while not reader._buffer[6144 : 300 * 6144].any():
            assert time.monotonic() < deadline, "nothing came late: this tests nothing"
            other.read(1, [3], [4])
        other.read(1, [5], [6])
        assert_moved(found.memory, target, 1, [3, 5], [4, 6])
        assert not any(rows.any() for rows in target.groups[0])


def test_a_source_that_answers_nobody_does_not_open(
    agent: NixlAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TR10: it answers while it has pulls; whether it does is found out while there are other channels."""
    monkeypatch.setattr(nixl_target, "OPEN_S", 0.5)
    with source(is_registered=False) as found:
        assert choose(found.offer, make_memory(), names=("nixl",), agent=agent) is None


def test_withdrawn_it_is_answered_no_more_where_answers_are_needed(
    agent: NixlAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TR11: by TCP, where no other pull is open. A network that reads memory by itself asks nobody."""
    monkeypatch.setattr(nixl_target, "STALL_S", 0.5)
    with source() as found:
        reader = opened(found, make_memory(), agent)
        reader.read(0, [1], [1])
        found.pipe.send(b"")
        found.pipe.recv()
        with pytest.raises(TransferError, match="took longer"):
            reader.read(0, [2], [2])


def test_the_order_of_names_says_what_is_taken(agent: NixlAgent) -> None:
    """TR2"""
    with source() as found:
        assert choose(found.offer, make_memory(), agent=agent) is None
        reader = choose(found.offer, make_memory(), names=("tcp", "nixl"), agent=agent)
        assert reader is not None and reader.channel == "nixl"
        reader.close()
        assert choose(found.offer, make_memory(), names=("nixl",)) is None
