"""What the disk tier tells the scheduler, as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from signalbox.protocol import columns
from signalbox.v1 import from_worker_pb2
from worker_svc.disk.directory import Changes
from worker_svc.disk.pace import BASE_US, Pace

MOST_NAMES = 1 << 15
"""Names in one message, half a megabyte."""
MOST_TOLD = 1 << 18
"""Contents of a group that a scheduler is told of, the newest: it keeps them in memory."""
Tell = Callable[[from_worker_pb2.WorkerEvent], None]


class Measured(Protocol):
    """The tier, as it is measured."""

    pace: Pace
    sizes: list[int]
    """Bytes of a block of each group."""

    @property
    def is_off(self) -> bool:
        """Nothing is read for a while."""


def news_of(
    tier: Measured, changes: Changes, *, begins: bool = False
) -> Iterator[from_worker_pb2.WorkerEvent]:
    """What has changed, in messages of a bounded size; one at least, with what was measured."""
    first = _news(tier)
    first.begins = begins
    for group, size in enumerate(tier.sizes):
        first.groups.add(group=group, block_ns=int(tier.pace.block_us(size) * 1e3))
    yield from_worker_pb2.WorkerEvent(disk_news=first)
    for field, of_groups in (("added", changes.added), ("removed", changes.removed)):
        for group, names in of_groups.items():
            for first_name in range(0, len(names), MOST_NAMES):
                some = names[first_name : first_name + MOST_NAMES]
                news = _news(tier)
                block_ns = int(tier.pace.block_us(tier.sizes[group]) * 1e3)
                part = news.groups.add(group=group, block_ns=block_ns)
                setattr(part, field, b"".join(some))
                yield from_worker_pb2.WorkerEvent(disk_news=news)


def _news(tier: Measured) -> from_worker_pb2.DiskNews:
    return from_worker_pb2.DiskNews(
        is_off=tier.is_off, base_us=BASE_US, token_ns=int(tier.pace.token_us * 1e3)
    )


def loads_ended(step_id: int, lost: Sequence[int]) -> from_worker_pb2.WorkerEvent:
    """The loads of a step have ended; `lost` are the numbers of those that did not arrive."""
    ended = from_worker_pb2.DiskLoadsEnded(step_id=step_id, lost=columns.pack(lost, columns.U32))
    return from_worker_pb2.WorkerEvent(disk_loads_ended=ended)


def stores_ended(step_id: int) -> from_worker_pb2.WorkerEvent:
    """The blocks that a step ordered to be stored have been read."""
    return from_worker_pb2.WorkerEvent(disk_stores_ended=from_worker_pb2.DiskStoresEnded(step_id=step_id))
