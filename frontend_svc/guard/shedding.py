"""Which connections of a port end: those above the bound of their address, and for memory those that bring most.

Pure: what the kernel says of connections comes in, the inodes of those that end go out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frontend_svc.guard.addresses import AddressCounts, TrustedProxies
from frontend_svc.guard.levels import heaviest
from frontend_svc.guard.sockets import Connection

NUM_MARKS = 4
"""Bytes count as brought lately until so many marks are older."""


@dataclass
class Shedding:
    """What is known of the connections of one port."""

    most_per_address: int
    proxies: TrustedProxies
    _known: dict[int, None] = field(default_factory=dict)
    """Inodes of connections that were seen, the oldest first."""
    _marks: deque[Mapping[int, int]] = field(default_factory=lambda: deque(maxlen=NUM_MARKS))
    """Bytes that each had received, by inode, at some moments of the last seconds."""

    def mark(self, connections: Sequence[Connection]) -> None:
        """Has what comes later count as brought lately."""
        self._marks.append({each.inode: each.received_bytes for each in connections})

    def choose(self, connections: Sequence[Connection], *, is_shut: bool, is_rising: bool) -> dict[int, str]:
        """Reasons by inode of those that end. is_shut: for want of memory no new one is taken. is_rising: it is short
        and still rises, and the heaviest end for it."""
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
        if is_rising:
            ends |= dict.fromkeys(heaviest(self._brought(connections)), "memory")
        for inode in ends:
            del self._known[inode]
        return ends

    def _brought(self, connections: Sequence[Connection]) -> dict[int, int]:
        """What each has sent since the oldest mark."""
        oldest = self._marks[0] if self._marks else {}
        return {each.inode: each.received_bytes - oldest.get(each.inode, 0) for each in connections}
