"""The zygote's work: a fork for each order. It has one thread, and its only open file is the socket of orders."""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import NoReturn

from tests.zygote import popen
from tests.zygote.imports import Imports
from tests.zygote.order import Order, close_all, receive_order
from tests.zygote.seat import Seat, die_with_parent, place
from tests.zygote.zygote import Zygote


def run(seat: Seat, imports: Imports, control: socket.socket) -> NoReturn:
    """Serves, and in a fork runs its module."""
    if (served := serve(imports, control)) is None:
        os._exit(0)
    order, fds = served
    seat.take(order, fds)
    if order.starts_more:
        near, far = socket.socketpair()
        if not os.fork():
            near.close()
            _become_zygote(seat, far)
            run(seat, imports, far)
        far.close()
        popen.install(Zygote(os.environ, near))
    seat.run(order.command[2])


def serve(imports: Imports, control: socket.socket) -> tuple[Order, list[int]] | None:
    """In a fork: what it is to be. In the zygote: None, when the process that asks has ended."""
    while (received := receive_order(control)) is not None:
        order, fds = received
        imports.prepare(order)
        if (num_threads := len(os.listdir("/proc/self/task"))) != 1:  # noqa: PTH208
            answer: dict[str, object] = {"refused": f"the zygote has {num_threads} threads"}
        elif pid := _fork():
            answer = {"pid": pid}
        else:
            return order, fds
        close_all(fds)
        control.sendall(json.dumps(answer).encode())
    return None


def _fork() -> int:
    """Process id of a fork of a fork, which falls to the process that asks; 0: we are it."""
    reading, writing = os.pipe()
    waiting, holding = os.pipe()
    middle = os.fork()
    if not middle:
        if child := os.fork():
            os.write(writing, str(child).encode())
            os._exit(0)
        os.close(holding)
        os.read(waiting, 1)  # until the middle one has gone
        return 0
    os.waitpid(middle, 0)
    pid = int(os.read(reading, 32))
    close_all([reading, writing, waiting, holding])
    return pid


def _become_zygote(seat: Seat, control: socket.socket) -> None:
    """Makes this fork the zygote of another fork that starts services: it ends with that one, and receives no signal of
    its process group."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(signal.SIGKILL)
    seat.command_line.write([popen.NAME], popen.NAME.encode())
    null, kept = os.open(os.devnull, os.O_RDWR), control.fileno()
    place([null, null, null, kept], [0, 1, 2, kept])
