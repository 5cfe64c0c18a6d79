"""A mapping of another worker's cache that is kept from pull to pull (TR9)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from signalbox.v1.transfer_offer_pb2 import TransferOffer
from tests.worker_svc.transfer.memories import assert_moved, make_memory, offered
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels.kept_mappings import KEEP_S, KeptMappings
from worker_svc.transfer.channels.registrations import new_token
from worker_svc.transfer.channels.shared_target import SharedReader
from worker_svc.transfer.errors import TransferError

FEW_S = 0.05


def num_mapped(memory: BlockMemory) -> int:
    """How often this process has mapped the file of a memory."""
    assert memory.shared is not None
    name = f"/proc/self/fd/{memory.shared.fd}"
    inode = str(Path(name).stat().st_ino)
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(line.split()[4] == inode for line in lines)


def assert_soon(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def kept(keep_s: float) -> Iterator[KeptMappings]:
    mappings = KeptMappings(keep_s)
    try:
        yield mappings
    finally:
        mappings.close()


def open_reader(target: BlockMemory, offer: TransferOffer, mappings: KeptMappings) -> SharedReader:
    return SharedReader(target, offer.socket_path, offer.token, mappings)


def test_all_pulls_from_a_worker_read_by_one_mapping() -> None:
    """TR9: also two that are open at a time; each finds what the source has written since."""
    source, target = make_memory(seed=1), make_memory()
    with offered(source, by="shared memory") as (_, offer), kept(KEEP_S) as mappings:
        assert num_mapped(source) == 1  # its own
        first = open_reader(target, offer, mappings)
        second = open_reader(target, offer, mappings)
        first.close()
        second.close()
        source.groups[0][1][7] = 99
        third = open_reader(target, offer, mappings)
        assert num_mapped(source) == 2
        third.read(0, [7, 8, 3], [3, 5, 6])
        assert_moved(source, target, 0, [7, 8, 3], [3, 5, 6])


def test_a_mapping_that_is_kept_lets_in_nobody_without_a_token() -> None:
    """TR4: TR9 saves the mapping, and nothing of what is shown for it."""
    source, target = make_memory(seed=1), make_memory()
    with offered(source, by="shared memory") as (server, offer), kept(KEEP_S) as mappings:
        open_reader(target, offer, mappings)
        with pytest.raises(TransferError):
            SharedReader(target, offer.socket_path, new_token(), mappings)
        server.withdraw(offer.token)
        with pytest.raises(TransferError):
            open_reader(target, offer, mappings)


def test_another_worker_is_never_taken_for_the_one_before() -> None:
    """TR9: one that comes behind the end of the other, at whatever descriptor."""
    with kept(KEEP_S) as mappings:
        for seed in range(1, 4):
            source, target = make_memory(seed=seed), make_memory()
            with offered(source, by="shared memory") as (_, offer):
                open_reader(target, offer, mappings).read(1, [2], [4])
            assert_moved(source, target, 1, [2], [4])
            del source


def test_a_mapping_goes_when_nobody_has_asked_for_it_for_a_while() -> None:
    """TR9: so does the memory of a worker that has died."""
    source, target = make_memory(seed=1), make_memory()
    with offered(source, by="shared memory") as (_, offer), kept(FEW_S) as mappings:
        for _ in range(2):
            reader = open_reader(target, offer, mappings)
            reader.read(0, [1], [1])
            assert num_mapped(source) == 2
            reader.close()
            assert_soon(lambda: num_mapped(source) == 1)


def test_a_mapping_stays_for_as_long_as_a_pull_reads_by_it() -> None:
    """TR9"""
    source, target = make_memory(seed=1), make_memory()
    with offered(source, by="shared memory") as (_, offer), kept(FEW_S) as mappings:
        reader = open_reader(target, offer, mappings)
        time.sleep(6 * FEW_S)
        assert num_mapped(source) == 2
        reader.read(0, [1, 2], [7, 5])
        assert_moved(source, target, 0, [1, 2], [7, 5])
        mappings.close()
        reader.read(1, [1, 2], [7, 5])
        assert_moved(source, target, 1, [1, 2], [7, 5])
        reader.close()
        assert_soon(lambda: num_mapped(source) == 1)
