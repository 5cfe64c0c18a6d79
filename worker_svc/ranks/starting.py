"""Brings the ranks of a group together: children of rank 0, or processes that others have started."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from signalbox.errors import StartupError
from signalbox.links.tls.identity import ours
from signalbox.runtime.start.interpreter import module_command
from signalbox.v1 import ranks_pb2
from worker_svc.config import WorkerSettings
from worker_svc.ranks.joining import JOIN_S, SAYS, TOLD, Gathering, listen
from worker_svc.ranks.leader import Leader
from worker_svc.ranks.meeting import Parts, check_gpus, meet, meet_over_gloo, open_store
from worker_svc.ranks.peer import Peer
from worker_svc.ranks.place import RankPlace, place_of
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.split.over_memory import make_exchange_memory
from worker_svc.runner.split.split import Split

logger = logging.getLogger(__name__)


@contextmanager
def starting_group(settings: WorkerSettings) -> Iterator[tuple[Leader, Split]]:
    """The group of a worker with these settings, as rank 0 leads it; its other ranks are loading. If the body fails
    they are ended; else they live as long as this process, or until `Leader.close`."""
    place = place_of(os.environ, settings.num_ranks)
    come_together = _on_this_host(settings) if place is None else _on_several_hosts(settings, place)
    with contextlib.ExitStack() as made, come_together as (peers, split, heard):
        made.callback(_kill, peers)
        everyone = split.everyone if split.num_stages > 1 else None
        leader = Leader(peers, split.ranks, heard, everyone)
        made.callback(leader.close)
        yield leader, split
        made.pop_all()


Met = tuple[list[Peer], Split, threading.Condition]


@contextmanager
def _on_this_host(settings: WorkerSettings) -> Iterator[Met]:
    """Children of this process."""
    parts, heard, peers = Parts.of(settings), threading.Condition(), []
    if parts.on_gpus:
        check_gpus(parts.total)
    place = tempfile.mkdtemp(prefix="signalbox-ranks-")
    memory_fds = _memory_for(settings, parts)
    try:
        try:
            for rank in range(1, parts.total):
                memory_fd = memory_fds[rank // parts.num_ranks] if memory_fds else None
                peers.append(_start(rank, parts.total, settings, place, heard, memory_fd))
            split = meet(0, parts, place, memory_fds[0] if memory_fds else None)
        except BaseException:
            _kill(peers)
            raise
        yield peers, split, heard
    finally:
        for memory_fd in memory_fds:
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
    parts = Parts.of(settings)
    yield peers, meet_over_gloo(0, parts, place.num_here, place.number_here, store, host), heard


def _kill(peers: list[Peer]) -> None:
    for peer in peers:
        peer.kill()


def _setup(rank: int, num_ranks: int, settings: WorkerSettings, place: str) -> ranks_pb2.RankMessage:
    setup = ranks_pb2.RankSetup(
        rank=rank, num_ranks=num_ranks, settings=settings.model_dump_json(), meeting_place=place
    )
    return ranks_pb2.RankMessage(setup=setup)


def _memory_for(settings: WorkerSettings, parts: Parts) -> list[int]:
    """For each stage memory through which its ranks say things to each other; none: they do it over gloo, or there is
    nobody. StartupError where it was asked for and cannot be had."""
    if settings.collectives == "gloo" or parts.num_ranks == 1 or parts.on_gpus:
        return []
    made: list[int] = []
    try:
        if native_kernels() is None:
            raise OSError("the native kernels are not available")
        for _ in range(parts.num_stages):
            made.append(make_exchange_memory(parts.num_ranks))
    except OSError as error:
        for fd in made:
            os.close(fd)
        if settings.collectives == "shared-memory":
            raise StartupError(f"--collectives shared-memory: {error}") from None
        logger.warning("ranks speak over gloo, which is slower: %s", error)
        return []
    return made


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
            module_command("worker_svc.ranks", *map(str, fds)),
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            # A terminal's interrupt is for rank 0, which ends the others once requests have ended.
            start_new_session=True,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
    peer = Peer(rank, own, own, heard, process)
    peer.send(_setup(rank, num_ranks, settings, place))
    return peer
