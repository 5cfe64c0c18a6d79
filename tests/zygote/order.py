"""The order of a process: what the zygote is told by the process that starts one."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

_LENGTH = struct.Struct("!I")
MAX_FDS = 64
DIVIDED = ("--tensor-parallel=", "--pipeline-parallel=")
"""Options of a worker whose model is divided among ranks, which it starts."""


@dataclass(frozen=True)
class Order:
    """`python -m MODULE ...`. It comes with file descriptors: stdin, stdout, stderr, then `pass_fds`."""

    command: list[str]
    environment: dict[str, str]
    cwd: str
    new_session: bool
    process_group: int
    """As `os.setpgid` takes it; -1: the group of the process that asks."""
    death_signal: int
    """Sent to it when that process ends; 0: none."""
    pass_fds: list[int]
    """Their numbers in the new process."""

    @property
    def starts_more(self) -> bool:
        """Whether it starts services or ranks itself: it gets a zygote of its own, as it has threads when it needs
        one."""
        module, *words = self.command[2:]
        if module == "worker_svc":
            return any(word.startswith(DIVIDED) and not word.endswith("=1") for word in words)
        return module == "signalbox" and words[:1] in (["up"], ["bench"])


def send_order(control: socket.socket, order: Order, fds: Sequence[int]) -> None:
    """Raises OSError when nobody reads it."""
    body = json.dumps(asdict(order)).encode("utf-8", "surrogateescape")
    socket.send_fds(control, [_LENGTH.pack(len(body))], list(fds))
    control.sendall(body)


def receive_order(control: socket.socket) -> tuple[Order, list[int]] | None:
    """None: the other side has closed."""
    head, fds, _, _ = socket.recv_fds(control, _LENGTH.size, MAX_FDS)
    if len(head) < _LENGTH.size:
        return None
    body = bytearray()
    (length,) = _LENGTH.unpack(head)
    while len(body) < length:
        if not (part := control.recv(length - len(body))):
            return None
        body += part
    return Order(**json.loads(body.decode("utf-8", "surrogateescape"))), fds


def close_all(fds: Sequence[int]) -> None:
    """Of these, those that are open."""
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
