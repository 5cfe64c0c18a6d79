"""Which connections of a port end, and who may open none: those above the bound of their address, and for memory those
that bring most.

Pure: what the kernel says of connections comes in, what it is to do with them goes out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frontend_svc.guard.addresses import AddressCounts, TrustedProxies, client_of
from frontend_svc.guard.levels import heaviest
from frontend_svc.guard.packet_filter import DROP_ALL, MAX_CLIENTS, Filter, drop_clients
from frontend_svc.guard.sockets import Connection

NUM_MARKS = 4
"""Bytes count as brought lately until so many marks are older."""
BAN_S = 30.0
"""How long a client whose connection brought most, when memory was short, opens no other one."""


@dataclass
class Shedding:
    """Tracks the connections of one port and selects those to reset."""

    most_per_address: int
    proxies: TrustedProxies
    _known: dict[int, None] = field(default_factory=dict)
    """Inodes of connections that were seen, the oldest first."""
    _marks: deque[Mapping[int, int]] = field(default_factory=lambda: deque(maxlen=NUM_MARKS))
    """Bytes that each had received, by inode, at some moments of the last seconds."""
    _banned: dict[str, float] = field(default_factory=dict)
    """Until when each client opens no connection, the newest last."""

    def left_s(self, now: float) -> dict[str, float]:
        """Seconds for which each client stays banned, the newest ban last."""
        return {client: until - now for client, until in self._banned.items() if until > now}

    def ban(self, left_s: Mapping[str, float], now: float) -> None:
        """Bans clients for so many seconds."""
        for client, seconds in left_s.items():
            self._banned.pop(client, None)
            self._banned[client] = now + seconds

    def mark(self, connections: Sequence[Connection]) -> None:
        """Has what comes later count as brought lately."""
        self._marks.append({each.inode: each.received_bytes for each in connections})

    def choose(
        self, connections: Sequence[Connection], now: float, *, is_shut: bool, is_rising: bool
    ) -> list[tuple[Connection, str]]:
        """Connections that end, with the reason. is_shut: for want of memory no new one is taken. is_rising: memory is
        short and still rises: the heaviest that are no trusted proxy's end for it, and their clients are banned. What
        a banned client has opened all the same, where the kernel drops no packets or not yet, ends too."""
        by_inode = {each.inode: each for each in connections}
        before = self._known
        self._known = {inode: None for inode in before if inode in by_inode}
        self._known.update((inode, None) for inode in by_inode if inode not in before)
        ends: dict[int, str] = {}
        counts = AddressCounts(self.most_per_address, self.proxies)
        for inode in self._known:
            if not counts.enter(by_inode[inode].host):
                ends[inode] = "address"
        if is_shut:
            ends |= {inode: "memory" for inode in by_inode if inode not in before}
        if self._banned:
            new = (each for inode, each in by_inode.items() if inode not in before)
            ends |= {each.inode: "memory" for each in new if client_of(each.host) in self._banned}
        if is_rising:
            heavy = heaviest(self._brought([each for each in connections if not self.proxies.has(each.host)]))
            ends |= dict.fromkeys(heavy, "memory")
            self.ban({client_of(by_inode[inode].host): BAN_S for inode in heavy}, now)
        for inode in ends:
            del self._known[inode]
        return [(by_inode[inode], reason) for inode, reason in ends.items()]

    def filter_for(self, now: float, *, is_shut: bool) -> Filter | None:
        """What the kernel drops of packets that would open a connection; None: nothing."""
        if is_shut:
            return DROP_ALL
        if not self._banned:
            return None
        self._banned = {client: until for client, until in self._banned.items() if until > now}
        return drop_clients(list(self._banned)[-MAX_CLIENTS:]) if self._banned else None

    def _brought(self, connections: Sequence[Connection]) -> dict[int, int]:
        """What each has sent since the oldest mark."""
        oldest = self._marks[0] if self._marks else {}
        return {each.inode: each.received_bytes - oldest.get(each.inode, 0) for each in connections}
