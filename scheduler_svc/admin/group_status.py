"""What a worker has beside the blocks of its spine, as messages: groups of layers, and checkpoints of states."""

from __future__ import annotations

from dataclasses import asdict

from scheduler_svc.core.parts.disk.part import disk_of
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.block_groups import SPINE
from signalbox.v1 import admin_pb2


def group_statuses(worker: Worker) -> list[admin_pb2.GroupStatus]:
    """The groups but the spine, in order."""
    return [
        admin_pb2.GroupStatus(
            kind=window.group.kind,  # type: ignore[arg-type]
            reach=window.group.reach,
            num_blocks=window.pool.num_blocks,
            num_free_blocks=window.pool.num_free,
            num_cached_blocks=window.pool.num_cached,
            num_host_blocks=host.num_blocks,
            num_used_host_blocks=len(host),
        )
        for window, host in zip(worker.windows, worker.hosts[SPINE + 1 :], strict=False)
    ]


def checkpoint_status(worker: Worker) -> admin_pb2.CheckpointStatus | None:
    """None: the worker keeps none."""
    checkpoints = worker.checkpoints
    if checkpoints is None:
        return None
    return admin_pb2.CheckpointStatus(
        boundary=checkpoints.group.boundary,
        num_checkpoints=checkpoints.pool.num_blocks,
        num_free_checkpoints=checkpoints.pool.num_free,
        num_cached_checkpoints=checkpoints.pool.num_cached,
        num_host_checkpoints=worker.hosts[-1].num_blocks,
        num_used_host_checkpoints=len(worker.hosts[-1]),
        **asdict(checkpoints.counts),
    )


def disk_status(worker: Worker) -> admin_pb2.DiskStatus | None:
    """None: the worker has no disk tier."""
    disk, stats = disk_of(worker), worker.stats
    if disk is None:
        return None
    return admin_pb2.DiskStatus(
        num_blocks=sum(map(len, disk.contents)),
        is_off=disk.is_off,
        num_hit_tokens=stats.num_disk_hit_tokens,
        num_loaded_blocks=stats.num_disk_loaded_blocks,
        num_lost_blocks=stats.num_disk_lost_blocks,
        num_stored_blocks=stats.num_disk_stored_blocks,
    )
