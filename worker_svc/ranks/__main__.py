"""`python -m worker_svc.ranks FD [MEMORY]`: a rank but the first, started by rank 0, which is on the other end of the
socket; MEMORY is a descriptor of what all ranks map."""

from __future__ import annotations

import signal
import socket
import sys

from worker_svc.ranks.follower import Connection
from worker_svc.ranks.meeting import meet
from worker_svc.ranks.running import run_rank


def main() -> None:
    """Runs the rank until rank 0 is gone."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what a whole group is sent is rank 0's to obey
    fd, *memory_fds = map(int, sys.argv[1:])
    connection = socket.socket(fileno=fd)
    run_rank(
        Connection(connection, connection),
        lambda setup, parts: meet(
            setup.rank, parts, setup.meeting_place, memory_fds[0] if memory_fds else None
        ),
    )


if __name__ == "__main__":
    main()
