"""Which worker takes the next waiting request."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.request import Request
from scheduler_svc.core.worker import Worker


def should_take(worker: Worker, others: Iterable[Worker], request: Request, config: SchedulerConfig) -> bool:
    """Whether `worker`, whose step is being built, takes `request`: unless another one with fewer running requests
    could take it into a step right now."""
    return not any(
        other.num_running < worker.num_running
        and other.attached
        and len(other.records) < config.max_inflight_steps
        and _has_room(other, request, config)
        for other in others
    )


def _has_room(worker: Worker, request: Request, config: SchedulerConfig) -> bool:
    blocks = -(-request.num_known_tokens // worker.info.block_size)
    headroom = config.watermark_blocks_per_seq * worker.num_running
    return (
        worker.num_running < worker.limits.max_num_seqs
        and worker.table.num_free_slots > 0
        and not worker.preempted
        and blocks + headroom <= worker.pool.num_available
    )
