"""A rank but the first, from the first word of rank 0 to its last."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

from signalbox.links.tls.identity import ours
from signalbox.runtime import logs
from signalbox.v1 import ranks_pb2
from worker_svc.config import WorkerSettings
from worker_svc.ranks.follower import Connection, follow
from worker_svc.ranks.joining import dial
from worker_svc.ranks.meeting import Parts, meet_over_gloo, open_store
from worker_svc.ranks.place import RankPlace
from worker_svc.ranks.runners import FollowingRunner
from worker_svc.runner.split.split import Split
from worker_svc.runner_factory import make_following_runner

logger = logging.getLogger(__name__)


def run_rank(connection: Connection, meet: Callable[[ranks_pb2.RankSetup, Parts], Split]) -> None:
    """Loads what rank 0 says, meets the others and makes the calls that come, until rank 0 is gone; then the process
    ends."""
    setup = connection.setup()
    settings = WorkerSettings.model_validate_json(setup.settings)
    level, ids = os.environ.get("SIGNALBOX_LOG_LEVEL", "INFO"), {**settings.ids, "rank": str(setup.rank)}
    logs.set_up(f"rank {setup.rank}", level, settings.log_format, ids)

    def load() -> FollowingRunner:
        return make_following_runner(settings, meet(setup, Parts.of(settings)))

    follow(connection, load)


def join(place: RankPlace) -> None:
    """A rank that was started by itself: finds rank 0, and runs until that is gone. StartupError when it is not found.
    Whoever tells all ranks to end at once (SIGTERM) means rank 0, which lets requests end, and us with it."""
    logger.info("rank %d of %d looks for rank 0 at %s", place.rank, place.num_ranks, place.leader)
    told, says = dial(place, ours())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: logger.info("told to end: it does with rank 0"))

    def meet(setup: ranks_pb2.RankSetup, parts: Parts) -> Split:
        host, _, port = setup.meeting_place.rpartition(":")
        store = open_store(host, setup.num_ranks, int(port))
        return meet_over_gloo(setup.rank, parts, place.num_here, place.number_here, store, host)

    run_rank(Connection(told, says), meet)
