"""Blocks that are being computed: whoever comes second waits for them and shares them, instead of computing them again.

A request that is about to start looks for a *leader*: a running request whose prefill writes the first block that the
cache lacks, and has not reported it yet. It waits for that block only, and then for the next one. The wait ends with
the leader's report, or as soon as the leader cannot be relied on: it ended, was preempted, is paused before the block
was sent, or one of its rows was not run. A leader goes before its followers in the order of the policy, so that nothing
that it lacks could be had by them, and nobody waits in a circle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler_svc.core.blocks.block_pool import Blocks
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.state import SlotState
from scheduler_svc.core.slots.worker import Worker


class Prefix(NamedTuple):
    """What the caches hold of the first tokens of a request."""

    hits: Blocks
    """Blocks on the device."""
    host_hits: list[int]
    """Host blocks with what follows them."""
    end: int
    """Most blocks that could be hit."""

    @property
    def num_blocks(self) -> int:
        """Blocks that need no computing."""
        return len(self.hits) + len(self.host_hits)


def find_prefix(worker: Worker, slot: int, is_enabled: bool) -> Prefix:
    """What the caches hold for `slot`, which has no blocks. At least one token is computed, and no shared block is ever
    written."""
    table = worker.table
    if not is_enabled or worker.request(slot).needs_every_position:
        return Prefix(np.empty(0, np.int32), [], 0)
    known = int(table.num_prompt[slot] + table.num_output[slot])
    end = min(int(table.num_hashes[slot]), (known - 1) // table.block_size)
    hits = worker.pool.lookup(table.hashes(slot, 0, end))
    if not len(worker.host):
        return Prefix(hits, [], end)
    return Prefix(hits, worker.host.lookup(table.hashes(slot, len(hits), end).tolist()), end)


def find_leader(worker: Worker, slot: int, prefix: Prefix) -> bool:
    """Whether somebody computes the block that follows `prefix`; remembers it in the request of `slot`."""
    request = worker.request(slot)
    request.leader = None
    if prefix.num_blocks == prefix.end:
        return False
    table, index = worker.table, prefix.num_blocks
    end = (index + 1) * table.block_size
    unreported = np.flatnonzero((table.num_computed < end) & (end <= table.target))
    if unreported.tolist() == [slot]:
        return False
    same = table.hashes_at(unreported, np.full(len(unreported), index)) == table.hashes_at(
        np.array([slot]), np.array([index])
    )
    for other in unreported[same & (table.num_hashes[unreported] > index)].tolist():
        if _leads(worker, other, end, request):
            request.leader, request.leader_end = worker.request(other), end
            return True
    return False


def awaits_leader(worker: Worker, request: Request) -> bool:
    """Whether the leader that was found for `request` is still on its way to the block. Costs next to nothing, so that
    a crowd may wait."""
    leader, end, table = request.leader, request.leader_end, worker.table
    if leader is None or leader.slot is None or leader.slot >= table.num_slots:
        return False
    if table.requests[leader.slot] is not leader or int(table.num_computed[leader.slot]) >= end:
        return False
    return _leads(worker, leader.slot, end, request)


def _leads(worker: Worker, slot: int, end: int, request: Request) -> bool:
    """Whether the request in `slot` is on its way to `end` tokens, and `request` may rely on that."""
    table = worker.table
    if table.state[slot] not in (SlotState.PREFILL, SlotState.DECODE):
        return False
    if table.paused[slot] and table.num_sent[slot] < end:
        return False
    if table.started_at[slot] < worker.reset_at:
        return False  # its blocks will not be published
    leader = worker.request(slot)
    return not leader.was_refused and leader.order < request.order
