"""What the caches of a worker still hold when its link was lost and the same process says hello again (A5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler_svc.core.parts.fetch.side_copies import end_fence
from scheduler_svc.core.parts.pulls.part import pulls_of
from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.columns import HOST_BIT


def keep_cache(worker: Worker, old: Worker, last_step_id: int, written_alone: Sequence[Blocks]) -> None:
    """Gives a new `worker` the blocks and the host tier of `old`, which is done for: the same process, with nobody
    holding a block, and without the content that is not there. `last_step_id`: the last step that ran of those sent;
    what the others should have copied is not there, nor what copies beside the steps should have brought or saved, as
    nobody knows whether they have. `written_alone` are the blocks of each group that the worker has written without
    being told to."""
    pulls = pulls_of(old)
    if pulls is not None:
        pulls.shown.clear()
    for fence_id in list(old.fences):
        end_fence(old, fence_id, failed=True)
    missed = [copy for record in old.records if record.step_id > last_step_id for copy in record.copies]
    for tier in old.tiers:
        targets = [target for _, target, group in missed if group == tier.group]
        tier.host.forget_blocks({target & ~HOST_BIT for target in targets if target & HOST_BIT})
        tier.pool.vacate()
        fetched = np.array([target for target in targets if not target & HOST_BIT], np.int32)
        tier.pool.forget(np.concatenate((fetched, *written_alone[tier.group : tier.group + 1])))
    worker.keep_caches(old)


def is_same_cache(worker: Worker, old: Worker) -> bool:
    """Both are one process, with the same blocks."""
    info, other = worker.info, old.info
    is_same = (
        info.instance == other.instance
        and info.identity == other.identity
        and info.groups == other.groups
        and info.state_group == other.state_group
    )
    return is_same and (info.num_blocks, info.num_host_blocks, info.block_size) == (
        other.num_blocks,
        other.num_host_blocks,
        other.block_size,
    )
