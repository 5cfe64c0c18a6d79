"""Whom a process refused when its memory was short, for the process after it (AK12)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from ipaddress import IPv6Network, ip_network
from pathlib import Path

from frontend_svc.guard.addresses import CLIENT_PREFIX, Network
from frontend_svc.guard.packet_filter import MAX_CLIENTS

log = logging.getLogger(__name__)
MAX_BYTES = 16 << 10
"""Most bytes of the file that are read: more than MAX_CLIENTS take."""


class BanFile:
    """A file of clients and the Unix times until which each is banned: two processes share no other clock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, left_s: Mapping[str, float], wall_s: float) -> None:
        """Replaces its content by the newest MAX_CLIENTS. left_s: seconds for which each client stays banned. One that
        cannot be written is logged: the process is about to end, and nothing waits for it."""
        kept = dict(list(left_s.items())[-MAX_CLIENTS:])
        text = json.dumps({client: round(wall_s + seconds, 3) for client, seconds in kept.items()})
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            new.write_text(text)
            new.replace(self.path)
        except OSError as error:
            log.warning("the bans cannot be left in %s: %s", self.path, error)

    def take(self, wall_s: float, longest_s: float) -> dict[str, float]:
        """Reads and removes the file: no later process meets it again. Returns the seconds for which each client stays
        banned, longest_s at most: a clock that was set back makes none last longer. Empty when there is no file, or
        none of ours."""
        try:
            with self.path.open("rb") as file:
                text = file.read(MAX_BYTES)
            self.path.unlink()
            untils = {ip_network(client): float(until) for client, until in json.loads(text).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            log.warning("the bans in %s cannot be read: %s", self.path, error)
            return {}
        left_s = {str(each): until - wall_s for each, until in untils.items() if _is_client(each)}
        return {
            client.removesuffix("/32"): min(seconds, longest_s)
            for client, seconds in list(left_s.items())[-MAX_CLIENTS:]
            if seconds > 0
        }


def _is_client(network: Network) -> bool:
    """Whether it is as wide as one client: a wider one, such as 0.0.0.0/0, was not written here."""
    return network.prefixlen == (CLIENT_PREFIX if isinstance(network, IPv6Network) else 32)
