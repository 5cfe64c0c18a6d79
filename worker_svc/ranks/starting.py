"""Starts the other ranks of a group on this host."""

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
from signalbox.v1 import ranks_pb2
from worker_svc.config import WorkerSettings
from worker_svc.ranks.leader import Leader
from worker_svc.ranks.meeting import meet
from worker_svc.ranks.peer import Peer
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.over_memory import make_exchange_memory

logger = logging.getLogger(__name__)


@contextmanager
def starting_group(settings: WorkerSettings) -> Iterator[tuple[Leader, Communicator]]:
    """The group of a worker with these settings, as rank 0 leads it; its other ranks are loading. If the body fails
    they are ended; else they live as long as this process, or until `Leader.close`."""
    num_ranks = settings.tensor_parallel
    place = tempfile.mkdtemp(prefix="signalbox-ranks-")
    heard = threading.Condition()
    peers: list[Peer] = []
    leader: Leader | None = None
    memory_fd = _memory_for(settings)
    try:
        for rank in range(1, num_ranks):
            peers.append(_start(rank, num_ranks, settings, place, heard, memory_fd))
        ranks = meet(0, num_ranks, place, memory_fd)
        leader = Leader(peers, ranks, heard)
        yield leader, ranks
    except BaseException:
        for peer in peers:
            peer.kill()
        if leader is not None:
            leader.close()
        raise
    finally:
        if memory_fd is not None:
            os.close(memory_fd)
        shutil.rmtree(place, ignore_errors=True)


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
    ours, theirs = socket.socketpair()
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
    peer = Peer(rank, ours, process, heard)
    setup = ranks_pb2.RankSetup(
        rank=rank, num_ranks=num_ranks, settings=settings.model_dump_json(), meeting_place=place
    )
    peer.send(ranks_pb2.RankMessage(setup=setup))
    return peer
