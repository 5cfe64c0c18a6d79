"""Brings the ranks of a group together: children of rank 0, or processes that others have started."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from signalbox.errors import StartupError
from signalbox.links.tls.identity import ours
from signalbox.v1 import ranks_pb2
from worker_svc.config import WorkerSettings
from worker_svc.ranks.joining import JOIN_S, SAYS, TOLD, Gathering, listen
from worker_svc.ranks.leader import Leader
from worker_svc.ranks.meeting import meet, meet_over_gloo, open_store
from worker_svc.ranks.peer import Peer
from worker_svc.ranks.place import RankPlace, place_of
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.over_memory import make_exchange_memory

logger = logging.getLogger(__name__)


@contextmanager
def starting_group(settings: WorkerSettings) -> Iterator[tuple[Leader, Communicator]]:
    """The group of a worker with these settings, as rank 0 leads it; its other ranks are loading. If the body fails
    they are ended; else they live as long as this process, or until `Leader.close`."""
    place = place_of(os.environ, settings.num_ranks)
    come_together = _on_this_host(settings) if place is None else _on_several_hosts(settings, place)
    with contextlib.ExitStack() as made, come_together as (peers, ranks, heard):
        made.callback(_kill, peers)
        leader = Leader(peers, ranks, heard)
        made.callback(leader.close)
        yield leader, ranks
        made.pop_all()


Met = tuple[list[Peer], Communicator, threading.Condition]


@contextmanager
def _on_this_host(settings: WorkerSettings) -> Iterator[Met]:
    """Children of this process."""
    num_ranks, heard, peers = settings.num_ranks, threading.Condition(), []
    place, memory_fd = tempfile.mkdtemp(prefix="signalbox-ranks-"), _memory_for(settings)
    try:
        try:
            for rank in range(1, num_ranks):
                peers.append(_start(rank, num_ranks, settings, place, heard, memory_fd))
            ranks = meet(0, num_ranks, place, memory_fd)
        except BaseException:
            _kill(peers)
            raise
        yield peers, ranks, heard
    finally:
        if memory_fd is not None:
            os.close(memory_fd)
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _on_several_hosts(settings: WorkerSettings, place: RankPlace) -> Iterator[Met]:
    """Ranks that others started, once all of them have come. StartupError when they do not."""
    if settings.collectives == "shared-memory":
        raise StartupError("--collectives shared-memory is for ranks of one host that rank 0 starts")
    gathering = Gathering(place.num_ranks, ours())
    listener = listen(settings.rank_address)
    logger.info("rank 0 of %d waits for the others at %s", place.num_ranks, place.leader)
    gathering.wait(listener, JOIN_S)
    heard = threading.Condition()
    host = place.leader.rpartition(":")[0]
    store = open_store(host, place.num_ranks)
    peers = []
    for rank in range(1, place.num_ranks):
        peer = Peer(rank, gathering.channels[rank, TOLD], gathering.channels[rank, SAYS], heard)
        peers.append(peer)
        peer.send(_setup(rank, place.num_ranks, settings, f"{host}:{store.port}"))
    yield peers, meet_over_gloo(0, place.num_ranks, place.num_here, store, host), heard


def _kill(peers: list[Peer]) -> None:
    for peer in peers:
        peer.kill()


def _setup(rank: int, num_ranks: int, settings: WorkerSettings, place: str) -> ranks_pb2.RankMessage:
    setup = ranks_pb2.RankSetup(
        rank=rank, num_ranks=num_ranks, settings=settings.model_dump_json(), meeting_place=place
    )
    return ranks_pb2.RankMessage(setup=setup)


def _memory_for(settings: WorkerSettings) -> int | None:
    """Memory through which ranks say things to each other; None: they do it over gloo. StartupError where it was asked
    for and cannot be had."""
    if settings.collectives == "gloo":
        return None
    try:
        if native_kernels() is None:
            raise OSError("the native kernels are not available")
        return make_exchange_memory(settings.num_ranks)
    except OSError as error:
        if settings.collectives == "shared-memory":
            raise StartupError(f"--collectives shared-memory: {error}") from None
        logger.warning("ranks speak over gloo, which is slower: %s", error)
        return None


def _start(
    rank: int,
    num_ranks: int,
    settings: WorkerSettings,
    place: str,
    heard: threading.Condition,
    memory_fd: int | None,
) -> Peer:
    own, theirs = socket.socketpair()
    fds = [theirs.fileno(), *([] if memory_fd is None else [memory_fd])]
    with contextlib.closing(theirs):
        process = subprocess.Popen(
            [sys.executable, "-m", "worker_svc.ranks", *map(str, fds)],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            # A terminal's interrupt is for rank 0, which ends the others once requests have ended.
            start_new_session=True,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
    peer = Peer(rank, own, own, heard, process)
    peer.send(_setup(rank, num_ranks, settings, place))
    return peer
