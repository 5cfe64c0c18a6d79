"""The parts that a worker has from its hello on."""

from __future__ import annotations

from scheduler_svc.core.parts.checkpoints.part import CheckpointsPart
from scheduler_svc.core.parts.fetch.host import HostSource
from scheduler_svc.core.parts.handoff.part import HandoffPart
from scheduler_svc.core.parts.lanes.part import Lanes
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.worker import Worker


def add_parts(worker: Worker, config: SchedulerConfig) -> None:
    """Gives `worker` the parts that its hello names, but for those that begin later: pulls with the coordinator of all
    workers (`PullDesk.attached`), the disk tier with its first news (`take_disk_news`)."""
    info, parts = worker.info, worker.parts
    if info.num_lanes > 1:
        parts.add(Lanes(worker))
    if worker.checkpoints is not None:
        parts.add(CheckpointsPart(worker, worker.checkpoints))
    if worker.has_host_tier and config.side_copy_blocks:
        parts.add(HostSource(worker, config.side_copy_blocks))
    if info.kv_layout:
        parts.add(HandoffPart(worker, reuses_blocks=config.enable_prefix_caching))
