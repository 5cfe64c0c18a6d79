"""`python -m worker_svc.ranks FD [MEMORY]`: a rank but the first, started by rank 0, which is on the other end of the
socket; MEMORY is a descriptor of what all ranks map."""

from __future__ import annotations

import os
import socket
import sys

from signalbox.runtime import logs
from worker_svc.config import WorkerSettings
from worker_svc.ranks.follower import Connection, follow
from worker_svc.ranks.meeting import meet
from worker_svc.runner_factory import make_following_runner


def main() -> None:
    """Runs the rank until rank 0 is gone."""
    fd, *memory_fds = map(int, sys.argv[1:])
    connection = Connection(socket.socket(fileno=fd))
    setup = connection.setup()
    logs.set_up(f"rank {setup.rank}", os.environ.get("SIGNALBOX_LOG_LEVEL", "INFO"))
    settings = WorkerSettings.model_validate_json(setup.settings)

    def load() -> object:
        ranks = meet(setup.rank, setup.num_ranks, setup.meeting_place, memory_fds[0] if memory_fds else None)
        return make_following_runner(settings, ranks)

    follow(connection, load)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
