"""A disk that simulated workers share: it loads and stores in its own time, loses things, and fails."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.parts.disk import DiskOrders
from signalbox.v1 import from_worker_pb2
from tests.simulation.block_rules import Place, poison_places
from worker_svc.core.step import StepDelta
from worker_svc.links import disk_news as news
from worker_svc.runner.sim.model import SimRunner

if TYPE_CHECKING:
    from tests.simulation.worker_node import WorkerNode


@dataclass(frozen=True)
class DiskSetup:
    """How the disk of a scenario is."""

    load_s: float = 0.05
    """Longest time that loads take."""
    loss: float = 0.0
    """Share of loads and stores that come to nothing."""
    deletions: float = 0.0
    """Share of contents that are deleted unnoticed, each time something is stored."""
    block_us: int = 1
    token_us: int = 1000
    """What a worker says that it has measured; 0: nothing."""


def draw_disk(dice: random.Random) -> DiskSetup:
    """A disk that works, or does not, with loads that are worth it, sometimes, or not known to be."""
    return DiskSetup(
        load_s=dice.choice((0.001, 0.05, 0.5)),
        loss=dice.choice((0.0, 0.0, 0.2, 0.9)),
        deletions=dice.choice((0.0, 0.0, 0.1)),
        block_us=dice.choice((1, 1, 1000)),
        token_us=dice.choice((0, 1000, 1000)),
    )


class SharedDisk:
    """What all workers of a scenario have stored, by group and name."""

    def __init__(self, setup: DiskSetup, dice: random.Random) -> None:
        self.setup, self.dice = setup, dice
        self.contents: dict[tuple[int, bytes], bytes] = {}
        self.num_loaded = self.num_lost = 0

    def fails(self) -> bool:
        return self.dice.random() < self.setup.loss

    def read(self, group: int, name: bytes) -> bytes | None:
        """A content; None: it is not there, or not right."""
        return None if self.fails() else self.contents.get((group, name))

    def write(self, group: int, name: bytes, content: bytes) -> None:
        self.contents[group, name] = content
        for place in [place for place in self.contents if self.dice.random() < self.setup.deletions]:
            del self.contents[place]


class NodeDisk:
    """The disk as one worker process has it."""

    def __init__(self, disk: SharedDisk, node: WorkerNode) -> None:
        self.disk, self._node = disk, node
        self.open: list[DiskOrders] = []
        """Orders whose blocks may be touched yet."""

    def begin(self, orders: DiskOrders) -> None:
        """Begins with what a step orders."""
        world, dice = self._node.world, self.disk.dice
        poison_places(self._node.runner, loaded(orders))
        for name in orders.drops:
            for place in [place for place in self.disk.contents if place[1] == name]:
                del self.disk.contents[place]
        if orders.drops_all:
            self.disk.contents.clear()
        if not (orders.loads or orders.stores):
            return
        self.open.append(orders)
        incarnation = self._node.incarnation
        world.at(dice.uniform(0, self.disk.setup.load_s), lambda: self._done(incarnation, orders))

    def wait(self) -> None:
        """What is open touches no block any more."""
        self.open.clear()

    def _done(self, incarnation: int, orders: DiskOrders) -> None:
        node = self._node
        if not node.alive or incarnation != node.incarnation or orders not in self.open:
            return
        node.dirty = True
        self.open.remove(orders)
        if orders.loads:
            node.tell(news.loads_ended(orders.step_id, self._load(orders, node.runner)))
        if orders.stores:
            self._store(orders, node.runner)
            node.tell(news.stores_ended(orders.step_id))

    def _load(self, orders: DiskOrders, runner: SimRunner) -> list[int]:
        lost = []
        for number, (group, block, name) in enumerate(orders.loads):
            content = self.disk.read(group, name)
            if content is None:
                lost.append(number)
            else:
                rows = np.frombuffer(content, np.uint8).reshape(1, -1).copy()
                runner.writes_aside(group, np.array([block], np.int32))(rows)
        self.disk.num_lost += len(lost)
        self.disk.num_loaded += len(orders.loads) - len(lost)
        return lost

    def _store(self, orders: DiskOrders, runner: SimRunner) -> None:
        """Reads the blocks now; they are there, or are not, a while later, as others see them, too."""
        for group, block, name in orders.stores:
            content = runner.reads_aside(group, np.array([block], np.int32))().tobytes()
            is_lost, delay = self.disk.fails(), self.disk.dice.uniform(0, self.disk.setup.load_s)
            self._node.world.at(delay, lambda c=content, g=group, n=name, x=is_lost: self._stored(g, n, c, x))  # type: ignore[misc]

    def _stored(self, group: int, name: bytes, content: bytes, is_lost: bool) -> None:
        if not is_lost:
            self.disk.write(group, name, content)
        for node in self._node.peers():
            if node.alive and node.disk is not None:
                node.disk.tell_of(group, name, is_lost=is_lost)

    def tell_of(self, group: int, name: bytes, *, is_lost: bool) -> None:
        event = self._news()
        part = event.disk_news.groups.add(group=group, block_ns=self.disk.setup.block_us * 1000)
        setattr(part, "removed" if is_lost else "added", name)
        self._node.tell(event)

    def announce(self) -> None:
        """All that is there, behind a hello."""
        event = self._news()
        event.disk_news.begins = True
        for group in range(1 + len(self._node.info.groups)):
            names = b"".join(name for number, name in self.disk.contents if number == group)
            event.disk_news.groups.add(group=group, added=names, block_ns=self.disk.setup.block_us * 1000)
        self._node.tell(event)

    def _news(self) -> from_worker_pb2.WorkerEvent:
        measured = from_worker_pb2.DiskNews(token_ns=self.disk.setup.token_us * 1000)
        return from_worker_pb2.WorkerEvent(disk_news=measured)


def loaded(orders: DiskOrders) -> set[Place]:
    return {(load.group, load.block) for load in orders.loads}


def stored(orders: DiskOrders) -> set[Place]:
    return {(store.group, store.block) for store in orders.stores}


def check_orders(
    open_orders: list[DiskOrders], delta: StepDelta, used: set[Place], written: set[Place]
) -> None:
    """DT3, DT4: asserts that a step touches nothing that is loaded, and writes nothing that is being stored."""
    for orders in open_orders:
        assert not used & loaded(orders), f"step {delta.step_id} touches what is being loaded"
        assert not written & stored(orders), f"step {delta.step_id} writes what is being stored"


def check_owned(worker: Worker, open_orders: list[DiskOrders]) -> None:
    """DT3, DT4: asserts that in the scheduler's eyes nobody has what a worker still loads, and that what it still
    stores is given to nobody."""
    for orders in open_orders:
        if orders.loads:
            fence = worker.fences.get(-orders.step_id)
            assert fence is not None, "loads ended before they had"
        for tier in worker.tiers:
            blocks = [block for group, block in loaded(orders) if group == tier.group]
            assert not tier.pool.ref_counts[blocks].any(), "a block that is loaded has a holder"
            assert not tier.pool.has_content[blocks].any(), "a block that is loaded can be hit"
            read = [block for group, block in stored(orders) if group == tier.group]
            assert (tier.pool.ref_counts[read] > 0).all(), "a block that is stored may be given away"
