"""Starts the other ranks of a group on this host."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from signalbox.v1 import ranks_pb2
from worker_svc.config import WorkerSettings
from worker_svc.ranks.leader import Leader
from worker_svc.ranks.meeting import meet
from worker_svc.ranks.peer import Peer
from worker_svc.runner.split.communicator import Communicator


@contextmanager
def starting_group(settings: WorkerSettings) -> Iterator[tuple[Leader, Communicator]]:
    """The group of a worker with these settings, as rank 0 leads it; its other ranks are loading. If the body fails
    they are ended; else they live as long as this process, or until `Leader.close`."""
    num_ranks = settings.tensor_parallel
    place = tempfile.mkdtemp(prefix="signalbox-ranks-")
    heard = threading.Condition()
    peers: list[Peer] = []
    leader: Leader | None = None
    try:
        for rank in range(1, num_ranks):
            peers.append(_start(rank, num_ranks, settings, place, heard))
        ranks = meet(0, num_ranks, place)
        leader = Leader(peers, ranks, heard)
        yield leader, ranks
    except BaseException:
        for peer in peers:
            peer.kill()
        if leader is not None:
            leader.close()
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _start(
    rank: int, num_ranks: int, settings: WorkerSettings, place: str, heard: threading.Condition
) -> Peer:
    ours, theirs = socket.socketpair()
    with contextlib.closing(theirs):
        process = subprocess.Popen(
            [sys.executable, "-m", "worker_svc.ranks", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
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
