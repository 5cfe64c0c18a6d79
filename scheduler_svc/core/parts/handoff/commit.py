"""The commit of a hand-off: request, counts and names are the target's from then on (HO6, HO12)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.hash_chain import HASH_BYTES


class Arrived(NamedTuple):
    """What a target has of a request that it has taken over, by its own word."""

    num_computed: int
    """Positions whose KV is there."""
    num_output: int
    """Output tokens, prior ones included."""
    sealed_hashes: bytes
    """Names of the blocks behind those that the request came with."""


def contradiction_of(handoff: Handoff, arrived: Arrived) -> str:
    """Why a target cannot have that of the request; empty: it can."""
    table, slot = handoff.target.table, handoff.target_slot
    num_known = int(table.num_prompt[slot]) + arrived.num_output
    if not handoff.request.num_prior_output_tokens <= arrived.num_output or num_known >= int(
        table.limit[slot]
    ):
        return f"it has {arrived.num_output} output tokens"
    if not 0 <= arrived.num_computed < num_known:
        return f"it has computed {arrived.num_computed} of {num_known} tokens"
    if not handoff.has_blocks and arrived.num_computed:
        return f"it has computed {arrived.num_computed} tokens, and has no blocks"
    if handoff.has_blocks and -(-num_known // table.block_size) > int(table.num_blocks[slot]):
        return f"it has {num_known} tokens, and {int(table.num_blocks[slot])} blocks"
    num_sealed, rest = divmod(len(arrived.sealed_hashes), HASH_BYTES)
    if rest or int(table.num_hashes[slot]) + num_sealed > num_known // table.block_size:
        return f"it has {len(arrived.sealed_hashes)} bytes of names for {num_known} tokens"
    return ""


def take_over(handoff: Handoff, arrived: Arrived, *, may_publish: bool, is_kept: bool) -> None:
    """The request goes on in the target's slot, where it stood. Others may go on from its blocks there, if they may be
    published (`may_publish`), and from its states, if `is_kept`."""
    worker, slot, request = handoff.target, handoff.target_slot, handoff.request
    table = worker.table
    if not may_publish:
        # What was computed before a reset counts as started before the first step.
        worker.reset_at = max(worker.reset_at, 1)
    started_at = worker.next_step_id if may_publish else 0
    request.worker_id, request.leg = worker.info.worker_id, handoff.leg
    sealed = np.frombuffer(arrived.sealed_hashes, HASH_DTYPE)
    table.take_over(slot, arrived.num_computed, arrived.num_output, sealed, started_at)
    if not handoff.has_blocks:
        return
    # What its windows have passed meanwhile may never have come, and it may need the blocks to go on.
    worker.leave_behind(np.array([slot]))
    if may_publish:
        _publish(worker, slot, arrived.num_computed)
    if worker.checkpoints is not None:
        worker.checkpoints.go_on(slot, arrived.num_computed, int(table.target[slot]), is_kept=is_kept)
    if worker.num_active > worker.limits.max_num_seqs:
        table.displace_arrived(slot)


def _publish(worker: Worker, slot: int, num_computed: int) -> None:
    """What is written whole can be found by its name."""
    table = worker.table
    count = min(num_computed // table.block_size, int(table.num_hashes[slot]))
    worker.pool.publish(table.table(slot)[:count], table.hashes(slot, 0, count))
    for window in worker.windows:
        first = int(window.firsts[slot])
        blocks = window.table(slot)[: max(count - first, 0)]
        if len(blocks):
            window.pool.publish(blocks, table.hashes(slot, first, first + len(blocks)))
