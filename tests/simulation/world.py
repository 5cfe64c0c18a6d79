"""Simulated time, and links that delay, break and come back. One seed decides everything."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


class Node(Protocol):
    """One process of the ring."""

    alive: bool
    dirty: bool
    """Something happened to it since it was last checked."""

    def receive(self, link: Link, message: Any) -> None:
        """A message arrived over `link`."""

    def link_broken(self, link: Link) -> None:
        """This end has noticed that `link` is gone."""


@dataclass
class World:
    """The clock, the events to come, and the dice."""

    rng: random.Random
    now: float = 0.0
    num_events: int = 0
    after_event: Callable[[], None] = lambda: None
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _sequence: int = 0
    _links: list[Link] = field(default_factory=list)

    def kill(self, node: Node) -> None:
        """Ends a process, and with it every link that it has."""
        node.alive = False
        for link in self._links:
            if node in link.ends:
                link.break_()
        self._links = [link for link in self._links if link.open]

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Runs `action` after `delay` seconds."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + delay, self._sequence, action))

    def run(self, until: Callable[[], bool], max_seconds: float) -> bool:
        """Runs events until `until` holds; False when time or events run out first."""
        while not until():
            if not self._queue or self._queue[0][0] > max_seconds:
                return False
            self.now, _, action = heapq.heappop(self._queue)
            action()
            self.num_events += 1
            self.after_event()
        return True


class Link:
    """A stream between two nodes: in order each way, and gone for both when it breaks, each noticing in its time."""

    def __init__(self, world: World, client: Node, server: Node) -> None:
        self._world = world
        self.ends = (client, server)
        world._links.append(self)
        self._free_at = {id(client): 0.0, id(server): 0.0}
        self.open = True

    def send(self, to: Node, message: Any) -> None:
        """Delivers `message` after a random delay, unless the link breaks before."""
        delay = self._world.rng.uniform(0.0005, 0.01)
        at = max(self._world.now + delay, self._free_at[id(to)])
        self._free_at[id(to)] = at
        self._world.at(at - self._world.now, lambda: self._deliver(to, message))

    def _deliver(self, to: Node, message: Any) -> None:
        if self.open and to.alive:
            to.dirty = True
            to.receive(self, message)

    def break_(self) -> None:
        """Loses everything under way."""
        if not self.open:
            return
        self.open = False
        for end in self.ends:
            self._world.at(self._world.rng.uniform(0, 0.3), lambda end=end: self._notice(end))  # type: ignore[misc]

    def _notice(self, end: Node) -> None:
        if end.alive:
            end.dirty = True
            end.link_broken(self)
