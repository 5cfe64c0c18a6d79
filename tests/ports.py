"""Ports for servers that tests start."""

from __future__ import annotations

import random
import socket

_RANGE = range(20_000, 32_000)
"""Below the ports that the kernel gives to outgoing connections, which could take one in the meantime."""


def free_ports(count: int) -> list[int]:
    """`count` ports in a row that nobody listens on."""
    while True:
        first = random.choice(_RANGE)
        ports = list(range(first, first + count))
        if all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
