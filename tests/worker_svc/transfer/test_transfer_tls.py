"""The TCP channel where the ring has certificates: both ends are workers (TR5, TL1 to TL3, TL7)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from signalbox.links.tls.identity import take_on
from signalbox.links.tls.roles import Role
from tests.signalbox.links.tls.certificates import Certificates
from tests.worker_svc.transfer.memories import assert_moved, make_memory, offered
from worker_svc.transfer.channels.choice import choose
from worker_svc.transfer.channels.tcp_target import TcpReader
from worker_svc.transfer.errors import TransferError

LARGE = ((200_000, 100, 5000),)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Certificates]:
    """Certificates of a ring, and this process as a worker of it."""
    certificates = Certificates.make(tmp_path / "ring")
    take_on(certificates.identity(Role.WORKER))
    yield certificates
    take_on(None)


@pytest.mark.parametrize("checksums", [False, True])
def test_blocks_arrive(ring: Certificates, checksums: bool) -> None:
    """TR5: large rows and small ones."""
    source, target = make_memory(40, LARGE, seed=1), make_memory(60, LARGE)
    with offered(source, by="tcp") as (_, offer):
        assert offer.is_tls
        reader = choose(offer, target, checksums=checksums)
        assert reader is not None
        reader.read(0, [7, 8, 9, 30, 2], [50, 51, 20, 1, 2])
        assert_moved(source, target, 0, [7, 8, 9, 30, 2], [50, 51, 20, 1, 2])
        reader.close()


@pytest.mark.parametrize("role", [Role.FRONTEND, Role.SCHEDULER, Role.RELAY, Role.OPERATOR])
@pytest.mark.parametrize("is_source", [False, True])
def test_other_roles_are_refused(ring: Certificates, role: Role, is_source: bool) -> None:
    """TR5, TL3: at both ends."""
    ours, other = ring.identity(Role.WORKER), ring.identity(role)
    take_on(other if is_source else ours)
    with offered(make_memory(), by="tcp") as (_, offer):
        host, _, port = offer.tcp_address.rpartition(":")
        with pytest.raises(TransferError):
            TcpReader(make_memory(), (host, int(port)), offer.token, identity=ours if is_source else other)


def test_plaintext_and_another_authority_are_refused(ring: Certificates, tmp_path: Path) -> None:
    """TR5, TL1"""
    foreign = Certificates.make(tmp_path / "foreign").identity(Role.WORKER)
    with offered(make_memory(), by="tcp") as (_, offer):
        host, _, port = offer.tcp_address.rpartition(":")
        for identity in (None, foreign):
            with pytest.raises(TransferError):
                TcpReader(make_memory(), (host, int(port)), offer.token, identity=identity)
        take_on(None)
        assert choose(offer, make_memory()) is None


def test_files_count_with_the_next_connection(ring: Certificates, tmp_path: Path) -> None:
    """TR5, TL7: those of another authority put in their place keep the first one's out."""
    before, (cert, key, authority) = ring.identity(Role.WORKER), ring.files(Role.WORKER)
    kept = tmp_path / "kept"
    shutil.copytree(ring.folder, kept)
    old = Certificates(kept, ring.authority).identity(Role.WORKER)
    with offered(make_memory(seed=1), by="tcp") as (_, offer):
        host, _, port = offer.tcp_address.rpartition(":")
        address = (host, int(port))
        TcpReader(make_memory(), address, offer.token, identity=old).close()
        others = Certificates.make(tmp_path / "new").files(Role.WORKER)
        for new, path in zip(others, (cert, key, authority), strict=True):
            path.unlink()
            shutil.copy(new, path)
        with pytest.raises(TransferError):
            TcpReader(make_memory(), address, offer.token, identity=old)
        for _ in range(200):  # the source may not have seen the end of the first one yet
            try:
                TcpReader(make_memory(), address, offer.token, identity=before).close()
                break
            except TransferError:
                continue
        else:
            raise AssertionError("the new files do not count")
