"""What a worker has beside the blocks of its spine, as messages: groups of layers, and checkpoints of states."""

from __future__ import annotations

from dataclasses import asdict

from scheduler_svc.core.slots.worker import Worker
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
        )
        for window in worker.windows
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
        **asdict(checkpoints.counts),
    )
