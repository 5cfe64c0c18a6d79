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
    shares_step = True

    def __init__(self, worker: Worker) -> None:
        """Takes over the deletions that were found before the worker's first news."""
        self._worker = worker
        self.index = DiskIndex(len(worker.tiers))
        self.index.drops, worker.disk_drops = list(worker.disk_drops), {}
        self.is_idle = not self.index.drops

    @property
    def has_orders(self) -> bool:
        """As `Part.has_orders`."""
        return self.index.has_orders

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """As `Part.act`."""
        if self.index.has_orders:
            order_stores(self._worker, self.index, step)
            self.is_idle = not self.index.has_wishes

    def find(self, request: Request, prefix: Prefix, needs: list[int], now: float) -> Load | None:
        """As `Source.find`."""
        return find_load(self._worker, self.index, request, prefix)

    def fetch(self, request: Request, plan: Load, needs: list[int], step: StepDecision, now: float) -> None:
        """As `Source.fetch`."""
        load_aside(self._worker, self.index, request, plan, needs, step)

    def explain(self, plan: Load) -> str:
        """As `Source.explain`."""
        name = self._worker.info.worker_id
        return f"{sum(plan.longer.counts)} blocks are to be loaded from the disk tier of {name} first"

    def completed(self, slot: int) -> None:
        """As `Part.completed`: its blocks are to be stored."""
        wish_for(self._worker, self.index, slot)
        self.is_idle = False

    def cache_reset(self) -> None:
        """As `Part.cache_reset`."""
        self.index.clear()
        self.is_idle = False

    def pinned(self, group: int) -> list[Blocks]:
        """As `Part.pinned`: blocks that are being stored."""
        return self.index.pinned(group)

    def drop(self, names: list[bytes]) -> None:
        """Deletes contents that are wrong, with the next step."""
        self.index.drop(names)
        self.is_idle = False


def take_disk_news(worker: Worker, news: DiskNews) -> None:
    """Takes news of the worker's disk into its index. The first news add the part."""
    part = worker.parts.get(DiskPart)
    if part is None:
        part = DiskPart(worker)
        worker.parts.add(part)
    take_news(part.index, news)


def disk_of(worker: Worker) -> DiskIndex | None:
    """Index of the worker's disk tier; None: it has sent no news of a disk."""
    part = worker.parts.get(DiskPart)
    return None if part is None else part.index


def drop_on_disk(worker: Worker, names: list[bytes]) -> None:
    """Deletes contents that are wrong; for a worker that has sent no news of a disk, with the first ones."""
    part = worker.parts.get(DiskPart)
    if part is not None:
        part.drop(names)
    else:
        worker.disk_drops.update(dict.fromkeys(names))


def take_over_drops(worker: Worker, old: Worker) -> None:
    """Deletions that `old`, the same process before its new hello, has not been sent are `worker`'s from now on."""
    index = disk_of(old)
    drop_on_disk(worker, list(old.disk_drops) if index is None else index.drops)
