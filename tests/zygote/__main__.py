"""`python -m tests.zygote FD`: a zygote that takes orders at a socket."""

from __future__ import annotations

import socket
import sys

from tests.zygote.seat import Seat

if __name__ == "__main__":
    seat = Seat()

    from tests.zygote.forks import run
    from tests.zygote.imports import Imports

    run(seat, Imports(), socket.socket(fileno=int(sys.argv[1])))
