"""Orders for disk tiers as messages, and messages of disk tiers as news."""

from __future__ import annotations

from scheduler_svc.core.parts.disk.loads import end_loads
from scheduler_svc.core.parts.disk.news import DiskNews, GroupNews
from scheduler_svc.core.parts.disk.part import disk_of, take_disk_news
from scheduler_svc.core.parts.disk.stores import DiskOrders, end_stores
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import DivergenceError
from signalbox.protocol import columns
from signalbox.protocol.hash_chain import split_hashes
from signalbox.protocol.parts import disk
from signalbox.v1 import from_worker_pb2, to_worker_pb2

DISK_EVENTS = ("disk_news", "disk_loads_ended", "disk_stores_ended")


def write_loads(message: to_worker_pb2.SchedulerOutput, fetch: Fence) -> None:
    """Loads that a step begins."""
    disk.write(message, disk.DiskOrders(message.step_id, fetch.loads, fetch.most_us))


def write_disk_orders(message: to_worker_pb2.SchedulerOutput, orders: DiskOrders) -> None:
    """Stores and deletions of a step."""
    stores, drops, drops_all = orders.stores, orders.drops, orders.drops_all
    disk.write(message, disk.DiskOrders(message.step_id, stores=stores, drops=drops, drops_all=drops_all))


def take_disk_event(worker: Worker, event: from_worker_pb2.WorkerEvent) -> None:
    """Takes an event of a worker's disk tier. DivergenceError when it cannot be read."""
    try:
        if event.HasField("disk_news"):
            take_disk_news(worker, parse_disk_news(event.disk_news))
            return
        lost = columns.unpack(event.disk_loads_ended.lost, columns.U32)
        index = disk_of(worker)
        if index is None:
            return  # an event of an older link
        if event.HasField("disk_loads_ended"):
            end_loads(worker, index, event.disk_loads_ended.step_id, lost)
        else:
            end_stores(worker, index, event.disk_stores_ended.step_id)
    except ValueError as error:
        raise DivergenceError(f"what it says of its disk cannot be read: {error}") from error


def parse_disk_news(message: from_worker_pb2.DiskNews) -> DiskNews:
    """What a worker says of its disk tier. ValueError for a name that is cut short."""
    groups = [
        GroupNews(each.group, split_hashes(each.added), split_hashes(each.removed), each.block_ns / 1e3)
        for each in message.groups
    ]
    return DiskNews(message.begins, groups, message.is_off, message.base_us, message.token_ns / 1e3)
