"""Blocks that are being computed: whoever comes second waits for them and shares them, instead of computing them again.

A request that is about to start looks for a *leader*: a running request whose prefill writes the first block that the
cache lacks, and has not reported it yet. It waits for that block only, and then for the next one. The wait ends with
the leader's report, or as soon as the leader cannot be relied on: it ended, was preempted, is paused before the block
was sent, or one of its rows was not run. A leader goes before its followers in the order of the policy, so that nothing
that it lacks could be had by them, and nobody waits in a circle.

Where a model keeps recurrent states, blocks without the state behind them are of no use to others: who comes second
waits for the state at the last boundary that both prompts have, and the leader is told to keep it (CK).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler_svc.core.blocks.block_pool import HASH_DTYPE, NO_BLOCKS, Blocks, Hashes
from scheduler_svc.core.blocks.checkpoints import NO_CHECKPOINT, Checkpoints
from scheduler_svc.core.blocks.prefix_wait import PrefixWait
from scheduler_svc.core.blocks.window import longest_hit
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.state import SlotState
from scheduler_svc.core.slots.worker import Worker


class Prefix(NamedTuple):
    """What the caches hold of the first tokens of a request."""

    hits: Blocks
    """Cached blocks on the device that begin the request's prompt."""
    host_hits: list[int]
    """Host blocks with what follows them."""
    hashes: Hashes
    """Contents of the blocks that could be hit, as far as they are known."""
    branch: int = 0
    """How many blocks the spine alone has, where other groups have lost what is looked back at, or no state is kept."""
    window_hits: tuple[Blocks, ...] = ()
    """In each group but the spine, the last of `hits`: what the next query looks back at. Empty: no groups, or no
    hits."""
    checkpoint: int = NO_CHECKPOINT
    """The recurrent state behind `hits`."""

    @property
    def num_blocks(self) -> int:
        """Blocks that need no computing."""
        return len(self.hits) + len(self.host_hits)


NO_PREFIX = Prefix(NO_BLOCKS, [], np.empty(0, HASH_DTYPE))
"""The prefix of a request that no cached block can serve."""


def find_prefix(worker: Worker, request: Request, is_enabled: bool) -> Prefix:
    """What the caches hold for `request`, which has no blocks. At least one token is computed, and no shared block is
    ever written."""
    if not is_enabled or request.needs_every_position:
        return NO_PREFIX
    table, slot = worker.table, request.slot
    most = (num_known(worker, request) - 1) // table.block_size
    if slot is not None:
        hashes = table.hashes(slot, 0, min(int(table.num_hashes[slot]), most))
    else:
        hashes = table.hashes_of(request)[:most]
    hits = worker.pool.lookup(hashes)
    if worker.checkpoints is not None:
        return _with_state(worker, worker.checkpoints, hits, hashes)
    if worker.windows and len(hits):
        length, window_hits = longest_hit(worker.windows, hashes[: len(hits)])
        return Prefix(hits[:length], [], hashes, len(hits), window_hits)
    return Prefix(hits, worker.host.lookup(hashes[len(hits) :].tolist()) if len(worker.host) else [], hashes)


def _with_state(worker: Worker, checkpoints: Checkpoints, hits: Blocks, hashes: Hashes) -> Prefix:
    """The longest prefix of `hits` that has a state behind it, and in each group what the next query looks back at."""
    length, window_hits = len(hits), tuple[Blocks, ...]()
    while True:
        length, checkpoint = checkpoints.longest(hashes[:length])
        if not worker.windows:
            break
        seen, window_hits = longest_hit(worker.windows, hashes[:length])
        if seen == length:
            break
        length = seen
    return Prefix(hits[:length], [], hashes, len(hits), window_hits, checkpoint)


def num_known(worker: Worker, request: Request) -> int:
    """Tokens of `request` that exist, by now if it has a slot on `worker`."""
    table, slot = worker.table, request.slot
    return request.num_known_tokens if slot is None else int(table.num_prompt[slot] + table.num_output[slot])


def find_leader(worker: Worker, request: Request, prefix: Prefix) -> PrefixWait | None:
    """The request that computes the block that follows `prefix`, or the state behind one; None: nobody that `request`
    may wait for."""
    if worker.checkpoints is not None:
        return _find_state(worker, worker.checkpoints, request, prefix)
    table, index = worker.table, prefix.num_blocks
    if index == len(prefix.hashes):
        return None
    end = (index + 1) * table.block_size
    unreported = np.flatnonzero((table.num_computed < end) & (end <= table.target))
    if not len(unreported) or unreported.tolist() == [request.slot]:
        return None
    same = table.hashes_at(unreported, np.full(len(unreported), index)) == prefix.hashes[index]
    for other in unreported[same & (table.num_hashes[unreported] > index)].tolist():
        if _leads(worker, other, end, request):
            leader = worker.request(other)
            return PrefixWait(leader, other, leader.key.request_id, end)
    return None


def _find_state(
    worker: Worker, checkpoints: Checkpoints, request: Request, prefix: Prefix
) -> PrefixWait | None:
    """The request whose state will be kept furthest along `request`, or can be."""
    table, stride = worker.table, checkpoints.stride
    least = prefix.num_blocks + stride
    if least > len(prefix.hashes):
        return None
    computes = table.num_computed < table.target
    computes[list(checkpoints.ordered)] = True
    others = np.flatnonzero(computes & (table.num_hashes >= least))
    others = others[table.hashes_at(others, np.full(len(others), least - 1)) == prefix.hashes[least - 1]]
    best: PrefixWait | None = None
    for other in others.tolist():
        end = _parting_boundary(worker, checkpoints, other, prefix.hashes)
        if not checkpoints.is_coming(other, end) and not checkpoints.can_keep(
            other, end, int(table.num_sent[other])
        ):
            end = checkpoints.last_coming(other, end)
        is_further = end > (best.end if best is not None else prefix.num_blocks * table.block_size)
        if other != request.slot and is_further and _leads(worker, other, end, request):
            leader = worker.request(other)
            best = PrefixWait(leader, other, leader.key.request_id, end, is_state=True)
    return best


def _parting_boundary(worker: Worker, checkpoints: Checkpoints, slot: int, hashes: Hashes) -> int:
    """The last boundary, in tokens, up to which the request in `slot` begins with these blocks."""
    count = min(len(hashes), int(worker.table.num_hashes[slot]))
    differs = np.flatnonzero(worker.table.hashes(slot, 0, count) != hashes[:count])
    num_common = int(differs[0]) if len(differs) else count
    position: int = checkpoints.group.last_boundary(num_common * worker.table.block_size)
    return position


def awaits_leader(worker: Worker, request: Request) -> bool:
    """Whether the leader that was found for `request` is still on its way to the block. Costs next to nothing, so that
    a crowd may wait."""
    wait, table = request.history.prefix_wait, worker.table
    if wait is None:
        return False
    slot, end = wait.slot, wait.end
    if slot >= table.num_slots:
        return False
    if table.requests[slot] is not wait.leader:
        return False
    if wait.is_state:
        checkpoints = worker.checkpoints
        if checkpoints is None or not checkpoints.is_coming(slot, end):
            return False
    elif int(table.num_computed[slot]) >= end:
        return False
    return _leads(worker, slot, end, request)


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
    return not leader.history.was_refused and leader.order < request.order
