"""Gives a slot that starts, or goes on after a preemption, its blocks in all groups, and the state that it goes on
from."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import NO_BLOCKS, Blocks
from scheduler_svc.core.state.blocks.tier import Found, Tier
from scheduler_svc.core.state.groups.checkpoints import NO_CHECKPOINT, Checkpoints
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker


def start_slot(
    worker: Worker, slot: int, prefix: Prefix, num_new: int, step: StepDecision, *, is_kept: bool
) -> tuple[Blocks, int]:
    """Gives a slot without blocks its block tables: shared hits of `prefix` first, then copies of what the host tier
    has of it, and in the spine `num_new` new blocks with these. Others may go on from its states, if `is_kept`. Returns
    the table in the spine, and the checkpoint that it goes on from."""
    table, num_found = worker.table, prefix.num_blocks
    for part in worker.parts.all:
        part.blocks_change(slot, "resumed")  # it was to be handed over without blocks
    spine, *others = zip(worker.tiers, prefix.found(worker.windows, worker.checkpoints), strict=True)
    hits = _take_found(worker, *spine, prefix, step)
    new = worker.take_blocks(num_new - len(prefix.host_hits), step)
    blocks = np.concatenate((hits, new)) if len(hits) else new
    table.start(slot, step.step_id, num_found, blocks, worker.pool.generations[blocks])
    branch = prefix.branch if prefix.branch > num_found else 0
    for window, other in zip(worker.windows, others, strict=False):
        found = _take_found(worker, *other, prefix, step)
        window.start(slot, num_found, found, (branch, _prompt_blocks(worker, slot)))
    if worker.checkpoints is None:
        return blocks, NO_CHECKPOINT
    taken = _take_found(worker, *others[-1], prefix, step)
    checkpoint = int(taken[0]) if len(taken) else NO_CHECKPOINT
    _start_states(worker, worker.checkpoints, slot, prefix, checkpoint, is_kept=is_kept)
    return blocks, checkpoint


def _take_found(worker: Worker, tier: Tier, found: Found, prefix: Prefix, step: StepDecision) -> Blocks:
    """Holds on the device what was found in one group. Copies come before all work of the step, so whoever starts in it
    may share what they bring already."""
    if not len(found.blocks):
        return NO_BLOCKS
    blocks, copies = tier.take_for(found, prefix.names_of(found))
    worker.add_copies(tier, copies, step.copies)
    return blocks


def _start_states(
    worker: Worker, checkpoints: Checkpoints, slot: int, prefix: Prefix, checkpoint: int, *, is_kept: bool
) -> None:
    table = worker.table
    position = prefix.num_blocks * table.block_size
    checkpoints.start(slot, position, checkpoint, is_kept=is_kept)
    num_known = int(table.num_prompt[slot] + table.num_output[slot])
    checkpoints.want_ends(slot, num_known, prefix.branch)


def _prompt_blocks(worker: Worker, slot: int) -> int:
    """Blocks that another request with the prompt of `slot` could go on from."""
    return (int(worker.table.num_prompt[slot]) - 1) // worker.table.block_size
