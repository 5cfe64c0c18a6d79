"""The part of workers that have a disk tier."""

from __future__ import annotations

from types import MappingProxyType

from scheduler_svc.core.parts.disk.index import DiskIndex
from scheduler_svc.core.parts.disk.loads import DISK, Load, find_load, load_aside
from scheduler_svc.core.parts.disk.news import DiskNews, take_news
from scheduler_svc.core.parts.disk.stores import order_stores, wish_for
from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.part import Claim, Phase, Resource, Source
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


class DiskPart(Source):
    """Loads and stores of one worker's disk tier (DT)."""

    name = DISK
    rank = 40
    acts = MappingProxyType({Phase.ORDER: Claim(writes=frozenset({Resource.POOL}))})
    excludes = frozenset({"pulls"})

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.index: DiskIndex | None = None
        """None: the worker has told nothing of its disk."""
        self.is_idle = True
        self.early_drops: list[bytes] = []
        """Contents to be deleted that were found before the worker told of its disk."""

    @property
    def has_orders(self) -> bool:
        """As `Part.has_orders`."""
        return self.index is not None and self.index.has_orders

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """As `Part.act`."""
        if self.index is not None and self.index.has_orders:
            order_stores(self._worker, self.index, step)
            self.is_idle = not self.index.has_wishes

    def find(self, request: Request, prefix: Prefix, needs: list[int], now: float) -> Load | None:
        """As `Source.find`."""
        return None if self.index is None else find_load(self._worker, self.index, request, prefix)

    def fetch(self, request: Request, plan: Load, needs: list[int], step: StepDecision, now: float) -> None:
        """As `Source.fetch`."""
        assert self.index is not None
        load_aside(self._worker, self.index, request, plan, needs, step)

    def explain(self, plan: Load) -> str:
        """As `Source.explain`."""
        name = self._worker.info.worker_id
        return f"{sum(plan.longer.counts)} blocks are to be loaded from the disk tier of {name} first"

    def completed(self, slot: int) -> None:
        """As `Part.completed`: its blocks are to be stored."""
        if self.index is not None:
            wish_for(self._worker, self.index, slot)
            self.is_idle = False

    def cache_reset(self) -> None:
        """As `Part.cache_reset`."""
        if self.index is not None:
            self.index.clear()
            self.is_idle = False

    def pinned(self, group: int) -> list[Blocks]:
        """As `Part.pinned`: blocks that are being stored."""
        return [] if self.index is None else self.index.pinned(group)

    def drop(self, names: list[bytes]) -> None:
        """Has contents deleted that are wrong."""
        if self.index is not None:
            self.index.drop(names)
            self.is_idle = False
        else:
            self.early_drops += names

    def take_news(self, news: DiskNews) -> None:
        """Takes what the worker tells of its disk."""
        if self.index is None:
            self.index = DiskIndex(len(self._worker.tiers))
            self.index.drops, self.early_drops = self.early_drops, []
            self.is_idle = not self.index.drops
        take_news(self.index, news)


def disk_part(worker: Worker) -> DiskPart:
    """The disk part of the worker, which gets one if it has none."""
    part = worker.parts.get(DiskPart)
    if part is None:
        part = DiskPart(worker)
        worker.parts.add(part)
    return part


def disk_of(worker: Worker) -> DiskIndex | None:
    """What the worker has on disk; None: it has told nothing of a disk."""
    part = worker.parts.get(DiskPart)
    return None if part is None else part.index


def take_over_drops(worker: Worker, old: Worker) -> None:
    """Contents that `old`, the same process before it said hello again, was to delete and may not have been told of."""
    before = old.parts.get(DiskPart)
    if before is not None:
        drops = before.early_drops if before.index is None else before.index.drops
        if drops:
            disk_part(worker).drop(drops)
